//! One step: rounds of the model's own calls, then its result.
//!
//! | the model's answer | follows |
//! |---|---|
//! | calls, within the limits | they are made, and the model is asked again |
//! | a result | it is stored with its actions |
//! | neither | one correction; then the session waits, and the next step is told |

use std::sync::Arc;

use holdfast_agent::behavior::{
    Behavior, Composed, RESULT_TOOL, StepEntries, next_behavior, read_result,
    state::{BehaviorState, NextAction, UnusableAnswer, advance, advance_after_failure},
};
use holdfast_bus::StepProgress;
use holdfast_llm::Error as ModelError;
use holdfast_session::{CompletionResult, NewDelivery};
use holdfast_types::{Chat, ChatMessage, Entry, Reply, StepResult, Usage};

use super::{
    effects::{ResultEffects, StateWrite},
    input::{self, StepMaterial},
    request::{self, StepReply},
    result,
    run::PeriodCheck,
    upkeep,
};
use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    tools::mesh,
    turn::{
        budget::{self, hit_points::HitPointLevel},
        reply::{completion, replies::Failure},
        state::{TurnState, count_thoughts},
    },
};

/// Part of an unusable answer that the model is shown, in bytes.
const MAX_SHOWN_ANSWER_BYTES: usize = 8 * 1024;

/// Times that a prompt is halved if the provider finds it too long.
const MAX_HALVINGS: u32 = 2;

/// Result of a call beyond the limit of a round.
const CALL_BEYOND_LIMIT: &str = "not made: the limit of calls at once is reached; read the results \
                                 of those before it, then ask again for what is still needed";

/// What an answer of the model is.
enum Answer {
    Calls,
    Result(Box<StepResult>),
}

/// Outcome of asking the model for a step.
enum AskOutcome {
    Answered(Box<Reply>, Answer),
    /// No answer can be used; what is wrong with the last one.
    Unusable(String),
    Ended(Option<CompletionResult>),
}

/// Runs the current step to its next thought. Returns `Some` if the turn ended.
pub(crate) async fn run_step(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<Option<CompletionResult>, Error> {
    let step = Box::pin(think(turn, snapshot)).await;
    // Only after the usage is stored.
    budget::release_reservation(turn).await;
    step
}

async fn think(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<Option<CompletionResult>, Error> {
    let rounds = StepEntries::of(turn.journal.entries(), false).round_count();
    if rounds == 0
        && let Some(completed) = check_limits(turn, snapshot).await?
    {
        return Ok(Some(completed));
    }
    let Some(run) = &mut turn.behavior else { return Ok(None) };
    if run.behavior().is_none() {
        run.restart();
    }
    let (set, name) = (Arc::clone(run.set()), run.state.behavior.clone());
    let Some(behavior) = set.find(&name) else {
        let failure = Failure::NoBehavior(name.base());
        return completion::finish_with_failure(turn, &failure).await.map(Some);
    };
    turn.stream.begin_step(count_thoughts(turn.journal.turn()));
    if turn.answer_options().is_some_and(|options| !options.tools.is_empty()) {
        return completion::finish_with_failure(turn, &Failure::ClientTools).await.map(Some);
    }
    if let Some(why) = budget::spent_budget(turn, snapshot).await? {
        return completion::finish_with_failure(turn, &Failure::BudgetSpent(&why)).await.map(Some);
    }
    let asking = request::with_model(turn, snapshot, &behavior.models).await?;
    let asking = asking.as_deref().unwrap_or(snapshot);
    let material = input::load(turn, snapshot, behavior).await?;
    let (reply, result) = match ask(turn, asking, behavior, &material, rounds).await? {
        AskOutcome::Ended(completed) => return Ok(completed),
        AskOutcome::Unusable(error) => return fail_step(turn, snapshot, &error).await.map(Some),
        AskOutcome::Answered(reply, Answer::Calls) => {
            return store_round(turn, behavior, *reply).await;
        }
        AskOutcome::Answered(reply, Answer::Result(result)) => (*reply, result),
    };
    store_result(turn, reply, &result).await
}

/// Ends the claim or the turn if it has reached a limit.
async fn check_limits(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<Option<CompletionResult>, Error> {
    if turn.is_self_improvement() && upkeep::is_spent(turn, snapshot).await? {
        metrics::counter!("holdfast_runner_self_improvements_ended_total").increment(1);
        end_work(turn);
        return finish_idle(turn).await.map(Some);
    }
    check_period(turn).await
}

/// Lets the session begin anew with its next input.
fn end_work(turn: &mut TurnState<'_>) {
    if let Some(run) = &turn.behavior {
        let (session, state) = (turn.lease.claim.session, run.state.clone());
        let state = BehaviorState { ended: true, ..state };
        turn.journal.set_effects(Arc::new(StateWrite { session, state }));
    }
}

/// Ends the claim or the turn if its period is over.
async fn check_period(turn: &mut TurnState<'_>) -> Result<Option<CompletionResult>, Error> {
    let deadline = turn.worker.config.turn_deadline;
    // The turn goes on when the agent has recovered.
    if turn.journal.hit_points() == HitPointLevel::BelowFloor {
        return Err(Error::ReleaseRequested);
    }
    match turn.behavior.as_ref().map(|run| run.check_period(run.state.run, deadline)) {
        Some(PeriodCheck::Continue) | None => Ok(None),
        Some(PeriodCheck::Yield) => {
            metrics::counter!("holdfast_runner_behavior_yields_total").increment(1);
            Err(Error::ReleaseRequested)
        }
        Some(PeriodCheck::GiveUp) => {
            end_work(turn);
            completion::finish_with_failure(turn, &Failure::StepLimit).await.map(Some)
        }
    }
}

/// Asks the model, once more if its answer cannot be used.
async fn ask(
    turn: &mut TurnState<'_>,
    asking: &AgentSnapshot,
    behavior: &Behavior,
    material: &StepMaterial,
    rounds: usize,
) -> Result<AskOutcome, Error> {
    let run = turn.behavior.as_ref();
    let with_tools = run.is_some_and(|run| run.has_round_left(behavior, rounds));
    let mut room = behavior.limits.max_prompt_tokens.min(turn.context_tokens);
    let mut halvings = 0;
    let mut correction: Option<(String, String)> = None;
    loop {
        let Composed { chat, is_empty_input } =
            input::compose_chat(turn, asking, behavior, material, (with_tools, room));
        if is_empty_input && rounds == 0 && correction.is_none() {
            metrics::counter!("holdfast_runner_behavior_idle_total").increment(1);
            return finish_idle(turn).await.map(|completed| AskOutcome::Ended(Some(completed)));
        }
        if rounds == 0 && correction.is_none() {
            tell_progress(turn, material);
        }
        let chat = with_correction(chat, correction.as_ref());
        let reply = match request::ask(turn, asking, behavior, chat).await? {
            StepReply::Replied(reply) => reply,
            StepReply::Interrupted => {
                budget::charge_read(turn);
                turn.reload_inbox().await?;
                return Ok(AskOutcome::Ended(None));
            }
            StepReply::Spent(why) => {
                let failure = Failure::BudgetSpent(&why);
                let ended = completion::finish_with_failure(turn, &failure).await?;
                return Ok(AskOutcome::Ended(Some(ended)));
            }
            StepReply::Failed(ModelError::ContextOverflow) if halvings < MAX_HALVINGS => {
                halvings += 1;
                room /= 2;
                continue;
            }
            StepReply::Failed(error) => {
                note_model_error(turn, asking, &error);
                let failure = Failure::Model(&error);
                let ended = completion::finish_with_failure(turn, &failure).await?;
                return Ok(AskOutcome::Ended(Some(ended)));
            }
        };
        match judge(behavior, material, &reply, with_tools) {
            Ok(answer) => return Ok(AskOutcome::Answered(reply, answer)),
            Err(error) => {
                note_unusable(turn, &reply, &error);
                if correction.is_some() {
                    return Ok(AskOutcome::Unusable(error));
                }
                metrics::counter!("holdfast_runner_behavior_corrections_total").increment(1);
                correction = Some((reply.text, error));
            }
        }
    }
}

/// Charges an answer that cannot be used, and keeps it for the record of the step.
fn note_unusable(turn: &mut TurnState<'_>, reply: &Reply, error: &str) {
    turn.journal.charge_reply(&reply.model, &reply.usage);
    if let Some(run) = &mut turn.behavior {
        let (model, usage) = (reply.model.clone(), reply.usage);
        run.state.unusable.push(UnusableAnswer { model, usage, error: error.to_owned() });
    }
}

/// Records the step as failed if the model has answered in it, and no answer is of use.
fn note_model_error(turn: &mut TurnState<'_>, asking: &AgentSnapshot, error: &ModelError) {
    let Some(run) = &mut turn.behavior else { return };
    if is_about_answer(error) {
        let (model, usage) = (asking.model_id.to_string(), Usage::default());
        run.state.unusable.push(UnusableAnswer { model, usage, error: error.to_string() });
    }
    if !run.state.unusable.is_empty() {
        note_failure(turn, asking, &error.to_string());
    }
}

/// Stores answers that could not be used with the thought that follows them, for whoever records the
/// step.
fn store_unusable(turn: &mut TurnState<'_>) {
    let Some(run) = turn.behavior.as_ref().filter(|run| !run.state.unusable.is_empty()) else {
        return;
    };
    let (session, state) = (turn.lease.claim.session, run.state.clone());
    turn.journal.set_effects(Arc::new(StateWrite { session, state }));
}

/// Tells followers of the turn which step begins.
fn tell_progress(turn: &TurnState<'_>, material: &StepMaterial) {
    let Some(run) = &turn.behavior else { return };
    let name = &run.state.behavior;
    turn.stream.send_progress(StepProgress {
        behavior: name.base().to_owned(),
        step: run.state.step,
        todo: name.params().get("todo").cloned().unwrap_or_default(),
        todos_done: material.counts.done,
        todos: material.counts.total(),
        cost_micros: turn.journal.turn_micros(),
    });
}

fn judge(
    behavior: &Behavior,
    material: &StepMaterial,
    reply: &Reply,
    with_tools: bool,
) -> Result<Answer, String> {
    if reply.calls.iter().any(|call| call.tool == RESULT_TOOL) {
        return Err(format!("`{RESULT_TOOL}` is no tool: write the result as your answer"));
    }
    match (reply.calls.is_empty(), with_tools) {
        (false, true) => Ok(Answer::Calls),
        (false, false) if reply.text.trim().is_empty() => {
            Err("no more calls can be made in this step: answer with its result".to_owned())
        }
        (true, _) | (false, false) => {
            let result = read_result(behavior, &reply.text)?;
            if material.awaits_reply && result::is_silent_end(&result) {
                return Err(result::NO_REPLY.to_owned());
            }
            Ok(Answer::Result(Box::new(result)))
        }
    }
}

fn with_correction(mut chat: Chat, correction: Option<&(String, String)>) -> Chat {
    if let Some((answer, error)) = correction {
        let end = answer.floor_char_boundary(MAX_SHOWN_ANSWER_BYTES);
        let shown = match answer[..end].trim() {
            "" => "(no text)".to_owned(),
            shown => shown.to_owned(),
        };
        chat.messages.push(ChatMessage::assistant(shown, Vec::new()));
        chat.messages.push(ChatMessage::user(format!(
            "This answer cannot be used: {error}. Answer again, with the corrected JSON object only."
        )));
    }
    chat
}

/// Stores a round of the model's own calls. Those beyond the limit get their results at once.
async fn store_round(
    turn: &mut TurnState<'_>,
    behavior: &Behavior,
    reply: Reply,
) -> Result<Option<CompletionResult>, Error> {
    let most = usize::try_from(behavior.limits.max_calls_per_round.max(1)).unwrap_or(usize::MAX);
    let beyond: Vec<Entry> = reply
        .calls
        .iter()
        .skip(most)
        .map(|call| Entry::returned(&call.id, CALL_BEYOND_LIMIT, true))
        .collect();
    let Reply { calls, usage, model, carry, record, .. } = reply;
    // Text beside calls is for nobody: what a person reads is in the result.
    let thought = Entry::Thought { text: String::new(), calls, usage, model, carry, record };
    store_unusable(turn);
    turn.append([vec![thought], beyond].concat()).await?;
    Ok(None)
}

/// Stores a result with its actions, and sends its reply unless it ends the turn: then the reply is
/// the turn's answer.
async fn store_result(
    turn: &mut TurnState<'_>,
    reply: Reply,
    result: &StepResult,
) -> Result<Option<CompletionResult>, Error> {
    let text = result::reply_text(result);
    let is_last = ends_turn(turn, result);
    let cost = (reply.usage, reply.model, reply.record);
    store_unusable(turn);
    if is_last || text.is_empty() {
        let thought = result::thought(&turn.tools, result, String::new(), cost);
        turn.append(vec![thought]).await?;
        return Ok(None);
    }
    turn.journal.enqueue(step_delivery(turn, &text));
    turn.append(vec![result::thought(&turn.tools, result, text.clone(), cost)]).await?;
    turn.stream.on_model_delta(holdfast_llm::Delta::Text(text));
    turn.stream.flush();
    Ok(None)
}

/// Whether the turn ends when this result is applied.
fn ends_turn(turn: &TurnState<'_>, result: &StepResult) -> bool {
    turn.behavior.as_ref().is_none_or(|run| {
        let next = next_behavior(result);
        let after = run.with_rules(|rules| advance(&run.state, rules, next, String::new()));
        after.action != NextAction::Continue
    })
}

/// Delivery of a step's reply, the same on any runner.
fn step_delivery(turn: &TurnState<'_>, text: &str) -> Option<NewDelivery> {
    let step = count_thoughts(turn.journal.turn());
    let key = format!("{}:{}:{step}:reply", turn.lease.claim.session, turn.run);
    Some(NewDelivery {
        target: turn.reply_target()?,
        text: text.to_owned(),
        act: None,
        id: mesh::delivery_id(&key),
        delay: std::time::Duration::ZERO,
    })
}

/// Ends a turn in which no step has anything to do; no model is asked.
async fn finish_idle(turn: &mut TurnState<'_>) -> Result<CompletionResult, Error> {
    let nothing = Entry::Thought {
        text: String::new(),
        calls: Vec::new(),
        usage: Usage::default(),
        model: String::new(),
        carry: None,
        record: None,
    };
    completion::finish_with_answer(turn, nothing).await
}

/// Ends the turn after a step without a usable result. The next step is told why.
async fn fail_step(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    error: &str,
) -> Result<CompletionResult, Error> {
    note_failure(turn, snapshot, error);
    completion::finish_with_failure(turn, &Failure::AnswerFormat(error)).await
}

/// Whether the model answered, and the answer is of no use.
fn is_about_answer(error: &ModelError) -> bool {
    matches!(error, ModelError::Empty | ModelError::TooLong { .. } | ModelError::Malformed(_))
}

/// Records the step as failed with the write that ends the turn, and tells the next step why.
fn note_failure(turn: &mut TurnState<'_>, snapshot: &AgentSnapshot, error: &str) {
    if let Some(run) = &turn.behavior {
        let reason = format!("the answer of the step before could not be used: {error}");
        let state = advance_after_failure(&run.state, &reason);
        let effects = ResultEffects::of_failure(turn, snapshot, run, error, state);
        turn.journal.set_effects(Arc::new(effects));
    }
}
