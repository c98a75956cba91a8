//! Records of a step and of a run: worklog, tasks and ledger in one call.

use std::time::Duration;

use holdfast_pg::TenantTx;
use holdfast_types::Usage;
use jiff::Timestamp;
use serde_json::json;

use crate::{
    Error, ImpactLevel, Place,
    ledger::{self, LedgerKind, NewEntry},
    tasks::{self, NewTask},
    todo::shown,
    worklog::{
        self, ACTION_RECORD, CREATE_SUBAGENT, FUNCTION_RECORD, GET_MESSAGE, NewRecord,
        REPLY_MESSAGE, STEP_SUMMARY,
    },
};

/// Tool that starts a subagent.
const SPAWN_TOOL: &str = "sessions_spawn";

/// Characters of a reply that are kept.
const MAX_REPLY_CHARS: usize = 2_000;

/// Characters of an error that are kept.
const MAX_ERROR_CHARS: usize = 1_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StepStatus {
    #[default]
    Ok,
    Failed,
}

impl StepStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Failed => "FAILED",
        }
    }
}

/// One request to a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelCall {
    pub model: String,
    pub usage: Usage,
    /// Cost in millionths of a US dollar.
    pub micros: u64,
    pub error: Option<String>,
    pub duration: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ActionKind {
    /// Called by the model within the step.
    #[default]
    Tool,
    /// Named in the step's result, and made afterwards.
    Action,
}

/// One call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionRecord {
    pub kind: ActionKind,
    /// Id of the call.
    pub call: String,
    pub tool: String,
    pub impact: ImpactLevel,
    /// What it was asked to do, on one line.
    pub input: String,
    /// What it answered; shortened where it is stored.
    pub output: String,
    pub error: Option<String>,
    pub duration: Duration,
    /// Files and other results, such as paths.
    pub artifacts: Vec<String>,
}

/// What a step did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepRecord {
    pub status: StepStatus,
    /// Summary, as the next step is shown it.
    pub summary: String,
    /// Behaviour that follows, `WAIT` or `END`; empty for another step of the same.
    pub next: String,
    pub error: Option<String>,
    /// Texts of the messages that it was given, of which the lengths are stored.
    pub messages: Vec<String>,
    /// Texts for people.
    pub replies: Vec<String>,
    pub model_calls: Vec<ModelCall>,
    pub actions: Vec<ActionRecord>,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub trace: Option<String>,
}

impl StepRecord {
    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.model_calls.iter().for_each(|call| usage += call.usage);
        usage
    }

    fn micros(&self) -> u64 {
        self.model_calls.iter().map(|call| call.micros).sum()
    }
}

/// A scheduling period: a run from its first step until it ends or yields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Period {
    pub steps: u32,
    /// Why it ended, as a word, such as `wait`, `end` or `limit`.
    pub outcome: String,
    pub usage: Usage,
    pub micros: u64,
    pub duration: Duration,
    pub trace: Option<String>,
}

/// Records a step in worklog, tasks and ledger, and commits the records that were written within it.
///
/// To be called once, after [`apply_todos`](crate::apply_todos), in the transaction that saves the
/// step. The session must exist. Returns the `seq` of the step's newest record in the worklog.
pub async fn record_step(
    tx: &mut TenantTx,
    place: &Place,
    step: &StepRecord,
) -> Result<i64, Error> {
    let newest = worklog::append(tx, place, &worklog_records(place, step)).await?;
    worklog::settle_pending(tx, place).await?;
    tasks::insert(tx, place, &step_tasks(place, step)).await?;
    ledger::insert(tx, place, &ledger_entries(step)).await?;
    Ok(newest)
}

/// Records a scheduling period in the ledger.
pub async fn record_period(tx: &mut TenantTx, place: &Place, period: &Period) -> Result<(), Error> {
    let entry = NewEntry {
        kind: LedgerKind::Period,
        name: place.behavior.clone(),
        outcome: period.outcome.clone(),
        usage: period.usage,
        micros: period.micros,
        duration: period.duration,
        steps: period.steps,
        trace: period.trace.clone(),
        amount: None,
    };
    ledger::insert(tx, place, &[entry]).await
}

fn worklog_records(place: &Place, step: &StepRecord) -> Vec<NewRecord> {
    let saved =
        |record: NewRecord| NewRecord { is_saved: true, trace: step.trace.clone(), ..record };
    let mut records = Vec::new();
    for text in &step.messages {
        // The text is in the history only, where the erasure of its author finds it.
        let chars = text.chars().count();
        let digest = format!("a message of {chars} characters");
        records.push(saved(NewRecord::new(GET_MESSAGE, json!({"chars": chars}), digest)));
    }
    records.extend(step.actions.iter().map(|action| saved(action_record(action))));
    for text in &step.replies {
        let text: String = text.chars().take(MAX_REPLY_CHARS).collect();
        let digest = format!("told: {}", shown(&text));
        let payload = json!({ "text": text });
        let record = NewRecord::new(REPLY_MESSAGE, payload, digest);
        records.push(saved(NewRecord { level: ImpactLevel::External, ..record }));
    }
    let usage = step.usage();
    let digest = format!(
        "{} step {} ({}, {} tokens, ${:.6}): {}",
        place.behavior,
        place.step,
        step.status.as_str(),
        usage.input + usage.output,
        step.micros() as f64 / 1e6,
        shown(&step.summary)
    );
    let payload = json!({
        "next": step.next,
        "model_calls": step.model_calls.len(),
        "actions": step.actions.len(),
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cost_micros": step.micros(),
    });
    records.push(saved(NewRecord {
        error: step.error.as_deref().map(shortened),
        detail: step.summary.clone(),
        ..NewRecord::new(STEP_SUMMARY, payload, digest)
    }));
    records
}

fn action_record(action: &ActionRecord) -> NewRecord {
    let kind = match action.kind {
        _ if action.tool == SPAWN_TOOL => CREATE_SUBAGENT,
        ActionKind::Tool => FUNCTION_RECORD,
        ActionKind::Action => ACTION_RECORD,
    };
    let outcome = action.error.as_ref().unwrap_or(&action.output);
    let word = if action.error.is_some() { "failed" } else { "ok" };
    let digest = format!("{} {word}: {}", action.tool, shown(outcome));
    let payload = json!({
        "call": action.call,
        "tool": action.tool,
        "input": shown(&action.input),
        "output": shown(&action.output),
    });
    NewRecord {
        level: action.impact,
        domain: "tool",
        error: action.error.as_deref().map(shortened),
        artifacts: action.artifacts.clone(),
        ..NewRecord::new(kind, payload, digest)
    }
}

fn step_tasks(place: &Place, step: &StepRecord) -> Vec<NewTask> {
    let whole = NewTask {
        name: place.behavior.clone(),
        usage: step.usage(),
        micros: step.micros(),
        error: step.error.as_deref().map(shortened),
        is_failed: step.status == StepStatus::Failed,
        ..NewTask::new("step", None, (step.started_at, step.finished_at))
    };
    let parent = Some(whole.id);
    let mut tasks = vec![whole];
    for call in &step.model_calls {
        tasks.push(NewTask {
            name: call.model.clone(),
            usage: call.usage,
            micros: call.micros,
            is_failed: call.error.is_some(),
            error: call.error.as_deref().map(shortened),
            ..NewTask::new("model", parent, span(step, call.duration))
        });
    }
    for action in &step.actions {
        let kind = match action.kind {
            ActionKind::Tool => "tool",
            ActionKind::Action => "action",
        };
        tasks.push(NewTask {
            name: action.tool.clone(),
            is_failed: action.error.is_some(),
            error: action.error.as_deref().map(shortened),
            result: shown(&action.output),
            ..NewTask::new(kind, parent, span(step, action.duration))
        });
    }
    let next = if step.next.is_empty() { place.behavior.clone() } else { step.next.clone() };
    let end = (step.finished_at, step.finished_at);
    tasks.push(NewTask {
        name: next,
        result: shown(&step.summary),
        ..NewTask::new("result", parent, end)
    });
    tasks
}

/// Time of a part of a step, of which only the duration is known: from the step's begin.
fn span(step: &StepRecord, duration: Duration) -> (Timestamp, Timestamp) {
    let end = step.started_at.checked_add(duration).unwrap_or(step.finished_at);
    (step.started_at, end)
}

fn ledger_entries(step: &StepRecord) -> Vec<NewEntry> {
    let models = step.model_calls.iter().map(|call| model_entry(call, step.trace.clone()));
    let tools = step.actions.iter().map(|action| NewEntry {
        kind: LedgerKind::Tool,
        name: action.tool.clone(),
        outcome: outcome(action.error.as_ref()),
        usage: Usage::default(),
        micros: 0,
        duration: action.duration,
        steps: 0,
        trace: step.trace.clone(),
        amount: None,
    });
    models.chain(tools).collect()
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_ERROR_CHARS).collect()
}

pub(crate) fn model_entry(call: &ModelCall, trace: Option<String>) -> NewEntry {
    NewEntry {
        kind: LedgerKind::Model,
        name: call.model.clone(),
        outcome: outcome(call.error.as_ref()),
        usage: call.usage,
        micros: call.micros,
        duration: call.duration,
        steps: 0,
        trace,
        amount: None,
    }
}

fn outcome(error: Option<&String>) -> String {
    if error.is_some() { "failed" } else { "ok" }.to_owned()
}
