//! Application of a step's result, once its actions have their results.

use std::sync::Arc;

use holdfast_agent::behavior::{
    ActionOutcome, CallOutcome, FinishedEntries, FinishedStep, StepPosition, last_reply,
    next_behavior,
    state::{NextAction, Transition, advance},
    step_summary,
};
use holdfast_session::CompletionResult;
use holdfast_types::{BehaviorRole, Entry, StepResult, ToolCall, Usage, Wait};

use super::{
    effects::ResultEffects,
    handover, result,
    run::{self, BehaviorRun},
    workspace,
};
use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    turn::{context::media, reply::completion, state::TurnState},
};

/// Result of the call that applies a step's result.
const APPLIED: &str = "applied";

/// Applies the result of a step. Returns `Some` if that ends the turn.
pub(crate) async fn apply_result(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
) -> Result<Option<CompletionResult>, Error> {
    turn.ensure_owned().await?;
    let parsed = serde_json::from_str::<StepResult>(&call.input);
    let (Some(run), Ok(result)) = (&turn.behavior, parsed) else {
        // Only another version can have stored a result that this one cannot read.
        turn.append(vec![Entry::returned(&call.id, "this result cannot be read", true)]).await?;
        return Ok(None);
    };
    let refused = handover::hand_over(turn, snapshot, &result).await?;
    let mut transition = transition(turn, run, &result, refused);
    let chosen = workspace::choose_workspace(turn, snapshot, &result).await?;
    let chosen = chosen.unwrap_or_else(|refused| {
        transition.state.observation.push_str(&refused);
        None
    });
    let (action, is_bound) = (transition.action, chosen.is_some());
    let effects = ResultEffects::new(turn, snapshot, run, &result, (transition, chosen));
    let stored = effects.stored();
    turn.journal.set_effects(Arc::new(effects));
    turn.journal.add_unstored(Entry::returned(&call.id, APPLIED, false));
    let wait = match action {
        NextAction::Continue => {
            turn.append(Vec::new()).await?;
            if is_bound {
                // The next claim waits until no other session works in the workspace.
                return Err(Error::ReleaseRequested);
            }
            run::go_on(turn, &stored).await?;
            return Ok(None);
        }
        NextAction::Wait(kind) => kind.wait(result.wait_details.as_ref()),
        NextAction::End => Wait::Anything,
    };
    turn.wait = wait;
    finish(turn, snapshot, &result).await.map(Some)
}

/// State after the step. `refused` is why its messages could not be given to another session.
fn transition(
    turn: &TurnState<'_>,
    run: &BehaviorRun,
    result: &StepResult,
    refused: Option<String>,
) -> Transition {
    let summary = summary(turn, run, result);
    let next = match &refused {
        Some(_) => None,
        None => next_behavior(result),
    };
    let mut transition = run.with_rules(|rules| advance(&run.state, rules, next, summary));
    let is_router = run.role() == BehaviorRole::Route;
    transition.state.forwards = is_router && transition.action == NextAction::Continue;
    if !result.session_delta.tags.is_empty() {
        transition.state.set_tags(&result.session_delta.tags);
    }
    if let Some(refused) = refused {
        transition.state.observation = refused;
    }
    transition
}

/// What the next step is told of this one.
fn summary(turn: &TurnState<'_>, run: &BehaviorRun, result: &StepResult) -> String {
    let Some(behavior) = run.behavior() else { return String::new() };
    let finished = FinishedEntries::of(turn.journal.entries());
    let outcome = |one: &CallOutcome<'_>| ActionOutcome {
        tool: one.call.tool.clone(),
        ok: !one.failed,
        output: one.output.to_owned(),
    };
    let outcomes: Vec<ActionOutcome> = finished.outcomes.iter().map(outcome).collect();
    let position = StepPosition { name: &run.state.behavior, step: run.state.step };
    let usage = finished.usage();
    step_summary(behavior, &FinishedStep { position, usage, result, outcomes: &outcomes })
}

/// Ends the turn with the last text for the user as its answer.
async fn finish(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    result: &StepResult,
) -> Result<CompletionResult, Error> {
    let mut text = result::reply_text(result);
    // On a channel the earlier replies were sent when they were made.
    if text.is_empty() && turn.reply_target().is_none() {
        last_reply(turn.journal.entries()).clone_into(&mut text);
    }
    let answer = Entry::Thought {
        text,
        calls: Vec::new(),
        usage: Usage::default(),
        model: turn.journal.model(),
        carry: None,
        record: None,
    };
    media::synthesize_answer(turn, snapshot, &answer).await?;
    completion::finish_with_answer(turn, answer).await
}
