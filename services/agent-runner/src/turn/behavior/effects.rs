//! What the result of a step writes, in the transaction that stores it.

use holdfast_agent::behavior::{
    FinishedEntries,
    state::{BehaviorState, NextAction, Transition},
};
use holdfast_pg::TenantTx;
use holdfast_session::{
    EffectFuture, StepEffects, WorkspaceBinding, bind_workspace, store_behavior, store_title,
};
use holdfast_types::{Effect, SessionId, StepResult, TodoOperation};
use holdfast_work::{
    ActionKind, ActionRecord, Actor, ActorKind, ImpactLevel, ModelCall, Period, Place, StepRecord,
    StepStatus, apply_todos, record_period, record_step,
};
use jiff::Timestamp;
use std::time::Duration;

use super::run::{BehaviorRun, PeriodCheck};
use crate::{
    agents::snapshots::AgentSnapshot,
    turn::state::{TurnState, count_thoughts},
};

/// The state alone, after a step without a usable result.
#[derive(Debug)]
pub(super) struct StateWrite {
    pub(super) session: SessionId,
    pub(super) state: BehaviorState,
}

/// Todos, worklog, ledger, title and state, as a result changes them.
#[derive(Debug)]
pub(super) struct ResultEffects {
    place: Place,
    actor: Actor,
    /// The same for each attempt to apply this result.
    operation: String,
    todos: Vec<TodoOperation>,
    record: StepRecord,
    /// The scheduling period that ends with the step.
    period: Option<Period>,
    title: Option<String>,
    /// Local workspace that the result has chosen.
    workspace: Option<WorkspaceBinding>,
    state: BehaviorState,
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
        (Transition { state, action }, workspace): (Transition, Option<WorkspaceBinding>),
    ) -> Self {
        let step = count_thoughts(turn.journal.turn());
        Self {
            place: place(turn, snapshot, run),
            actor: actor(turn, snapshot, run),
            operation: format!("{}:{}:{step}", turn.lease.claim.session, turn.run),
            todos: result.todo_delta.clone(),
            record: record(turn, run, result, &state),
            period: period(turn, run, &state, action),
            title: result.session_delta.title.clone(),
            workspace,
            state,
        }
    }

    async fn write(&self, tx: &mut TenantTx) -> Result<(), holdfast_session::Error> {
        let mut state = self.state.clone();
        let results = apply_todos(tx, &self.place, &self.actor, &self.operation, &self.todos).await;
        for (number, result) in (1..).zip(results.map_err(session_error)?) {
            if let Err(error) = result {
                let told = format!("operation {number} of `todo_delta` was not applied: {error}\n");
                state.observation.insert_str(0, &told);
            }
        }
        record_step(tx, &self.place, &self.record).await.map_err(session_error)?;
        if let Some(period) = &self.period {
            record_period(tx, &self.place, period).await.map_err(session_error)?;
        }
        store_state(tx, self.place.session, &state).await?;
        if let Some(workspace) = &self.workspace {
            bind_workspace(tx, self.place.session, Some(workspace)).await?;
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

fn place(turn: &TurnState<'_>, snapshot: &AgentSnapshot, run: &BehaviorRun) -> Place {
    Place {
        session: turn.lease.claim.session,
        list: run.list,
        agent: snapshot.agent,
        run: Some(turn.run),
        behavior: run.state.behavior.to_string(),
        step: run.state.step,
        todo: run.state.behavior.params().get("todo").cloned(),
    }
}

fn actor(turn: &TurnState<'_>, snapshot: &AgentSnapshot, run: &BehaviorRun) -> Actor {
    let role = Some(run.role());
    match &turn.task {
        Some(task) => Actor { kind: ActorKind::SubAgent, name: task.label.clone(), role },
        None => Actor { kind: ActorKind::RootAgent, name: snapshot.name.to_string(), role },
    }
}

fn record(
    turn: &TurnState<'_>,
    run: &BehaviorRun,
    result: &StepResult,
    after: &BehaviorState,
) -> StepRecord {
    let finished = FinishedEntries::of(turn.journal.entries());
    let model_calls = finished.thoughts.iter().map(|(model, usage)| ModelCall {
        model: (*model).to_owned(),
        usage: *usage,
        micros: turn.journal.micros(model, usage),
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
    let replies = result.reply.iter().map(|reply| reply.content.clone());
    StepRecord {
        status: StepStatus::Ok,
        summary: after.last_step.clone(),
        next: result.next_behavior.clone().unwrap_or_default(),
        error: None,
        messages: finished.messages.iter().map(|text| (*text).to_owned()).collect(),
        replies: replies.filter(|text| !text.trim().is_empty()).collect(),
        model_calls: model_calls.collect(),
        actions: actions.collect(),
        started_at: run.step_began,
        finished_at: Timestamp::now(),
        trace: holdfast_kit::trace::current(),
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
    let usage = turn.journal.usage();
    Some(Period {
        steps: run.steps_of_period(after.run),
        outcome: outcome.to_owned(),
        usage,
        micros: turn.journal.micros(&turn.journal.model(), &usage),
        duration: turn.timing.began.elapsed(),
        trace: holdfast_kit::trace::current(),
    })
}

const fn impact(effect: Effect) -> ImpactLevel {
    match effect {
        Effect::Reads => ImpactLevel::None,
        Effect::Writes => ImpactLevel::Internal,
        Effect::Acts => ImpactLevel::External,
    }
}
