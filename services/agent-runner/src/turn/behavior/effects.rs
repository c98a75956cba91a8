//! What the result of a step writes, in the transaction that stores it.

use holdfast_agent::behavior::{
    FinishedEntries,
    state::{BehaviorState, NextAction, Transition},
};
use holdfast_pg::TenantTx;
use holdfast_session::{
    EffectFuture, NewStep, StepEffects, StepId, WorkspaceBinding, bind_workspace, store_behavior,
    store_step, store_title,
};
use holdfast_types::{Effect, SessionId, StepResult, TodoInit, TodoOperation};
use holdfast_work::{
    ActionKind, ActionRecord, Actor, ActorKind, ImpactLevel, JoinedList, ModelCall, Period, Place,
    StepRecord, StepStatus, apply_todos, join_list, record_period, record_step,
};
use holdfast_workspace::{FileWatch, watch_files};
use jiff::Timestamp;
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};
use uuid::Uuid;

use super::{
    run::{BehaviorRun, PeriodCheck, StoredState},
    watch::watch_of,
};
use crate::{
    agents::snapshots::AgentSnapshot,
    turn::state::{TurnState, count_thoughts},
};

/// The state alone.
#[derive(Debug)]
pub(super) struct StateWrite {
    pub(super) session: SessionId,
    pub(super) state: BehaviorState,
}

/// Todos, worklog, ledger, title and state, as the end of a step changes them.
#[derive(Debug)]
pub(super) struct ResultEffects {
    place: Place,
    actor: Actor,
    /// The same for each attempt to apply this result.
    operation: String,
    todos: Vec<TodoOperation>,
    record: StepRecord,
    /// The step and the state before it, for a rollback.
    saved: NewStep,
    /// The scheduling period that ends with the step.
    period: Option<Period>,
    title: Option<String>,
    /// Local workspace that the result has chosen.
    workspace: Option<(Uuid, WorkspaceBinding)>,
    /// The session waits for a change of files that comes after this time.
    watch: Option<(FileWatch, Timestamp)>,
    state: BehaviorState,
    stored: StoredState,
}

impl StepEffects for StateWrite {
    fn apply<'a>(&'a self, tx: &'a mut TenantTx) -> EffectFuture<'a> {
        Box::pin(store_state(tx, self.session, &self.state))
    }
}

impl StepEffects for ResultEffects {
    fn apply<'a>(&'a self, tx: &'a mut TenantTx) -> EffectFuture<'a> {
        Box::pin(self.write(tx))
    }
}

impl ResultEffects {
    pub(super) fn new(
        turn: &TurnState<'_>,
        snapshot: &AgentSnapshot,
        run: &BehaviorRun,
        result: &StepResult,
        (Transition { state, action }, workspace): (Transition, Option<(Uuid, WorkspaceBinding)>),
    ) -> Self {
        let finished = FinishedEntries::of(turn.journal.entries());
        let replies = result.reply.iter().map(|reply| reply.content.clone());
        let record = StepRecord {
            status: StepStatus::Ok,
            summary: state.last_step.clone(),
            next: result.next_behavior.clone().unwrap_or_default(),
            replies: replies.filter(|text| !text.trim().is_empty()).collect(),
            ..record(turn, run, &finished)
        };
        let watch = match action {
            NextAction::Wait(kind) => {
                watch_of(turn, snapshot, &kind.wait(result.wait_details.as_ref()))
            }
            NextAction::Continue | NextAction::End => None,
        };
        Self {
            todos: result.todo_delta.clone(),
            period: period(turn, run, &state, action),
            title: result.session_delta.title.clone(),
            workspace,
            watch: watch.map(|watch| (watch, run.step_began)),
            ..Self::without_result((turn, snapshot, run), finished.first, record, state)
        }
    }

    /// What is written after a step whose answer could not be used. `state` is the one after it.
    pub(super) fn of_failure(
        turn: &TurnState<'_>,
        snapshot: &AgentSnapshot,
        run: &BehaviorRun,
        error: &str,
        state: BehaviorState,
    ) -> Self {
        let finished = FinishedEntries::without_result(turn.journal.entries());
        let record = StepRecord {
            status: StepStatus::Failed,
            summary: format!("the answer could not be used: {error}"),
            next: "WAIT".to_owned(),
            error: Some(error.to_owned()),
            ..record(turn, run, &finished)
        };
        let period = Some(new_period(turn, run, &state, "failed"));
        Self {
            period,
            ..Self::without_result((turn, snapshot, run), finished.first, record, state)
        }
    }

    fn without_result(
        (turn, snapshot, run): (&TurnState<'_>, &AgentSnapshot, &BehaviorRun),
        first: usize,
        record: StepRecord,
        state: BehaviorState,
    ) -> Self {
        let step = count_thoughts(turn.journal.turn());
        Self {
            place: place(turn, snapshot, run),
            actor: actor(turn, snapshot, run),
            operation: format!("{}:{}:{step}", turn.lease.claim.session, turn.run),
            todos: Vec::new(),
            record,
            saved: saved_step(turn, run, first),
            period: None,
            title: None,
            workspace: None,
            watch: None,
            state,
            stored: StoredState::default(),
        }
    }

    pub(super) fn stored(&self) -> StoredState {
        Arc::clone(&self.stored)
    }

    async fn write(&self, tx: &mut TenantTx) -> Result<(), holdfast_session::Error> {
        let (mut state, mut todos) = (self.state.clone(), self.todos.clone());
        if let Some((workspace, binding)) = &self.workspace {
            bind_workspace(tx, self.place.session, Some(binding)).await?;
            // The todos of this result are those of the workspace.
            let (agent, root) = (self.place.agent, self.place.list);
            let joined = join_list(tx, agent, root, *workspace).await.map_err(session_error)?;
            if joined == JoinedList::Existing {
                todos.iter_mut().for_each(keep_others);
            }
        }
        let results = apply_todos(tx, &self.place, &self.actor, &self.operation, &todos).await;
        for (number, result) in (1..).zip(results.map_err(session_error)?) {
            if let Err(error) = result {
                let told = format!("operation {number} of `todo_delta` was not applied: {error}\n");
                state.observation.insert_str(0, &told);
            }
        }
        let newest = record_step(tx, &self.place, &self.record).await.map_err(session_error)?;
        store_step(tx, self.place.session, &self.saved, newest).await?;
        if let Some(period) = &self.period {
            record_period(tx, &self.place, period).await.map_err(session_error)?;
        }
        store_state(tx, self.place.session, &state).await?;
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        if let Some((watch, since)) = &self.watch {
            watch_files(tx, watch, *since).await.map_err(files_error)?;
        }
        match &self.title {
            Some(title) => store_title(tx, self.place.session, title).await,
            None => Ok(()),
        }
    }
}

async fn store_state(
    tx: &mut TenantTx,
    session: SessionId,
    state: &BehaviorState,
) -> Result<(), holdfast_session::Error> {
    let corrupt = |source| holdfast_session::Error::Corrupt { what: "state of behaviours", source };
    store_behavior(tx, session, &serde_json::to_value(state).map_err(corrupt)?).await
}

pub(crate) fn session_error(error: holdfast_work::Error) -> holdfast_session::Error {
    match error {
        holdfast_work::Error::Store(error) => error.into(),
        other => holdfast_session::Error::Conflict(other.to_string()),
    }
}

/// A step that has not seen a list adds to it.
fn keep_others(operation: &mut TodoOperation) {
    if let TodoOperation::Init { mode, .. } = operation {
        *mode = TodoInit::Merge;
    }
}

fn files_error(error: holdfast_workspace::Error) -> holdfast_session::Error {
    match error {
        holdfast_workspace::Error::Store(error) => error.into(),
        other => holdfast_session::Error::Conflict(other.to_string()),
    }
}

fn place(turn: &TurnState<'_>, snapshot: &AgentSnapshot, run: &BehaviorRun) -> Place {
    Place {
        session: turn.lease.claim.session,
        list: run.list,
        agent: snapshot.agent,
        run: Some(turn.run),
        behavior: run.state.behavior.to_string(),
        step: run.state.step,
        todo: run.state.behavior.params().get("todo").cloned(),
        has_outside_text: turn.has_read_outside_text(),
    }
}

fn actor(turn: &TurnState<'_>, snapshot: &AgentSnapshot, run: &BehaviorRun) -> Actor {
    let role = Some(run.role());
    let (kind, name) = match &turn.task {
        Some(task) => (ActorKind::SubAgent, task.label.clone()),
        None => (ActorKind::RootAgent, snapshot.name.to_string()),
    };
    Actor { kind, name, role, has_outside_text: turn.has_read_outside_text() }
}

/// The step with the state before it. `first` is the index of its first entry in the journal.
fn saved_step(turn: &TurnState<'_>, run: &BehaviorRun, first: usize) -> NewStep {
    let entries = turn.journal.entries();
    let turn_start = entries.len() - turn.journal.turn().len();
    let before = count_thoughts(entries.get(turn_start..first).unwrap_or_default());
    let first_thought = u32::try_from(before).unwrap_or(u32::MAX);
    let state = BehaviorState { unusable: Vec::new(), ..run.state.clone() };
    NewStep {
        id: StepId { run: turn.run, first_thought },
        behavior: run.state.behavior.to_string(),
        step: run.state.step,
        first_entry: turn.journal.first_entry() + i64::try_from(first).unwrap_or(i64::MAX),
        // A state always converts to JSON: it was read from it.
        state: serde_json::to_value(state).unwrap_or_default(),
    }
}

/// What the step did, without its outcome.
fn record(turn: &TurnState<'_>, run: &BehaviorRun, finished: &FinishedEntries<'_>) -> StepRecord {
    let thoughts = finished.thoughts.iter().map(|(model, usage)| ModelCall {
        model: (*model).to_owned(),
        usage: *usage,
        micros: turn.journal.micros(model, usage),
        ..ModelCall::default()
    });
    let unusable = run.state.unusable.iter().map(|answer| ModelCall {
        model: answer.model.clone(),
        usage: answer.usage,
        micros: turn.journal.micros(&answer.model, &answer.usage),
        error: Some(answer.error.clone()),
        ..ModelCall::default()
    });
    let actions = finished.outcomes.iter().map(|outcome| {
        let output = outcome.output.to_owned();
        ActionRecord {
            kind: if outcome.is_action { ActionKind::Action } else { ActionKind::Tool },
            call: outcome.call.id.clone(),
            tool: outcome.call.tool.clone(),
            impact: impact(turn.tools.effect(&outcome.call.tool)),
            input: outcome.call.input.clone(),
            error: outcome.failed.then(|| output.clone()),
            output,
            duration: Duration::from_millis(outcome.record.took_ms),
            artifacts: Vec::new(),
        }
    });
    StepRecord {
        messages: finished.messages.iter().map(|text| text.clone().into_owned()).collect(),
        model_calls: thoughts.chain(unusable).collect(),
        actions: actions.collect(),
        started_at: run.step_began,
        finished_at: Timestamp::now(),
        trace: holdfast_kit::trace::current(),
        ..StepRecord::default()
    }
}

/// The scheduling period, if it ends with the step.
fn period(
    turn: &TurnState<'_>,
    run: &BehaviorRun,
    after: &BehaviorState,
    action: NextAction,
) -> Option<Period> {
    let outcome = match action {
        NextAction::Continue => {
            let deadline = turn.worker.config.turn_deadline;
            if run.check_period(after.run, deadline) == PeriodCheck::Continue {
                return None;
            }
            "limit"
        }
        NextAction::Wait(_) => "wait",
        NextAction::End => "end",
    };
    Some(new_period(turn, run, after, outcome))
}

fn new_period(
    turn: &TurnState<'_>,
    run: &BehaviorRun,
    after: &BehaviorState,
    outcome: &str,
) -> Period {
    let usage = turn.journal.usage();
    Period {
        steps: run.steps_of_period(after.run),
        outcome: outcome.to_owned(),
        usage,
        micros: turn.journal.micros(&turn.journal.model(), &usage),
        duration: turn.timing.began.elapsed(),
        trace: holdfast_kit::trace::current(),
    }
}

const fn impact(effect: Effect) -> ImpactLevel {
    match effect {
        Effect::Reads => ImpactLevel::None,
        Effect::Writes => ImpactLevel::Internal,
        Effect::Acts => ImpactLevel::External,
    }
}
