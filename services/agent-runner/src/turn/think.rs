//! Model requests of a turn, and the events that end them early.

pub(crate) mod record;

use std::convert::Infallible;

use holdfast_agent::compact::{OverflowMeasures, Reason};
use holdfast_llm::{Delta, Model as _, OnDelta};
use holdfast_session::CompletionResult;
use holdfast_types::{Entry, Reply};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    failpoints, scheduled_messages,
    turn::{
        approvals::outside_text,
        budget,
        client_options::{answer_format, client_tools},
        context::{compaction, flush, media, memory_prefetch},
        heartbeats,
        intake::{Intake, decide_intake},
        prompt,
        reply::{completion, progress_messages, quotes, replies::Failure},
        skills::recommendations,
        state::{TurnState, count_thoughts},
        think::record::CallStart,
    },
};

/// Outcome of a model request.
enum ModelOutcome {
    Replied(Box<Reply>),
    Failed(holdfast_llm::Error),
    /// The text for the user.
    Spent(String),
    /// New input or a cancellation must be handled first.
    Interrupted,
}

/// Whether a tool only describes other tools.
pub(crate) fn is_tool_lookup(tool: &str) -> bool {
    matches!(tool, "tool_search" | "tool_describe")
}

/// Asks the model and stores its answer. Returns `Some` if that ends the turn.
pub(crate) async fn think_and_release(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
) -> Result<Option<CompletionResult>, Error> {
    if turn.is_flushing() {
        let flushed = flush::run_flush(turn, snapshot).await;
        budget::release_reservation(turn).await;
        return flushed.map(|()| None);
    }
    let thought = Box::pin(run_think_step(turn, snapshot, with_tools)).await;
    // Only after the usage is stored.
    budget::release_reservation(turn).await;
    thought
}

async fn run_think_step(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
) -> Result<Option<CompletionResult>, Error> {
    turn.stream.begin_step(count_thoughts(turn.journal.turn()));
    if let Some(why) = budget::spent_budget(turn, snapshot).await? {
        return completion::finish_with_failure(turn, &Failure::BudgetSpent(&why)).await.map(Some);
    }
    if let Some(name) = client_tools::find_clash(turn, snapshot) {
        let failure = Failure::ToolNameTaken(&name);
        return completion::finish_with_failure(turn, &failure).await.map(Some);
    }
    if with_tools && flush::begin_flush(turn, snapshot, Reason::Proactive).await? {
        return Ok(None);
    }
    Box::pin(recommendations::recommend_skills(turn, snapshot)).await?;
    compaction::compact_if_needed(turn, snapshot).await?;
    let mut tried = OverflowMeasures::default();
    if std::mem::take(&mut turn.is_too_long) {
        compaction::recover_from_overflow(turn, snapshot, &mut tried).await?;
    }
    let mut asked = ask_model(turn, snapshot, with_tools, None).await?;
    // The provider may count more tokens than we do.
    while let ModelOutcome::Failed(holdfast_llm::Error::ContextOverflow) = asked {
        if compaction::can_shorten(turn, snapshot) {
            progress_messages::announce_shortening(turn);
        }
        if with_tools && flush::begin_flush(turn, snapshot, Reason::Overflow).await? {
            turn.is_too_long = true;
            return Ok(None);
        }
        if !compaction::recover_from_overflow(turn, snapshot, &mut tried).await? {
            break;
        }
        asked = ask_model(turn, snapshot, with_tools, None).await?;
    }
    let error = match &asked {
        ModelOutcome::Replied(reply) => format_error(turn, reply, with_tools),
        ModelOutcome::Failed(_) | ModelOutcome::Spent(_) | ModelOutcome::Interrupted => None,
    };
    if let (ModelOutcome::Replied(reply), Some(error)) = (&asked, error) {
        turn.journal.charge_reply(&reply.model, &reply.usage);
        turn.stream.on_model_delta(Delta::Restarted);
        let correction = Some((reply.text.clone(), error));
        asked = ask_model(turn, snapshot, with_tools, correction).await?;
    }
    let reply = match asked {
        ModelOutcome::Replied(reply) => *reply,
        ModelOutcome::Interrupted => {
            budget::charge_read(turn);
            return turn.reload_inbox().await.map(|()| None);
        }
        ModelOutcome::Spent(why) => {
            return completion::finish_with_failure(turn, &Failure::BudgetSpent(&why))
                .await
                .map(Some);
        }
        ModelOutcome::Failed(error) => {
            return completion::finish_with_failure(turn, &Failure::Model(&error)).await.map(Some);
        }
    };
    if let Some(error) = format_error(turn, &reply, with_tools) {
        turn.journal.charge_reply(&reply.model, &reply.usage);
        return completion::finish_with_failure(turn, &Failure::AnswerFormat(&error))
            .await
            .map(Some);
    }
    take_reply(turn, snapshot, reply, with_tools).await
}

/// Ends the turn with the model's answer, or stores its thought with the calls that follow.
async fn take_reply(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    reply: Reply,
    with_tools: bool,
) -> Result<Option<CompletionResult>, Error> {
    turn.stop = reply.stop;
    let is_answer = is_answer(&reply, with_tools);
    let Reply { text, thinking, mut calls, usage, model, carry, record, .. } = reply;
    progress_messages::send_reasoning(turn, &thinking);
    turn.reasoning = turn.sends_thinking().then_some(thinking);
    let asks = !is_answer;
    if is_answer {
        calls.clear();
    }
    // The provider needs it only together with the results of calls.
    let carry = carry.filter(|_| asks);
    let has_format = turn.answer_options().is_some_and(|options| options.format.is_some());
    let (text, quote) = match asks || has_format {
        true => (text, None),
        false => quotes::extract_quote(&text),
    };
    turn.quote = quote;
    let thought = Entry::Thought { text, calls, usage, model, carry, record };
    if !asks {
        if let Some(beat) = turn.heartbeat().cloned() {
            return heartbeats::finish_heartbeat(turn, beat, thought).await.map(Some);
        }
        media::synthesize_answer(turn, snapshot, &thought).await?;
        return completion::finish_with_answer(turn, thought).await.map(Some);
    }
    turn.append(vec![thought]).await?;
    Ok(None)
}

/// Whether a reply ends the turn: it has no calls, or the model was told to answer and did. Its
/// calls were not offered then.
fn is_answer(reply: &Reply, with_tools: bool) -> bool {
    reply.calls.is_empty() || (!with_tools && !reply.text.trim().is_empty())
}

/// What is wrong with the form of an answer, if the client asked for one.
fn format_error(turn: &TurnState<'_>, reply: &Reply, with_tools: bool) -> Option<String> {
    let format = turn.answer_options()?.format.as_ref()?;
    answer_format::find_error(format, reply).filter(|_| is_answer(reply, with_tools))
}

/// Asks the model; with an answer of this step and what is wrong with it, for a correction.
async fn ask_model(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
    correction: Option<(String, String)>,
) -> Result<ModelOutcome, Error> {
    turn.ensure_owned().await?;
    failpoints::point("runner.before_model").await;
    media::load_images(turn).await?;
    memory_prefetch::await_prefetch(turn).await;
    let mut request = prompt::model_request(turn, snapshot, with_tools);
    if let Some((answer, error)) = correction {
        answer_format::push_correction(&mut request.chat, answer, &error);
    }
    outside_text::mark_outside_prompt(turn, &request.chat.tools);
    if let Some(why) = budget::reserve(turn, snapshot, &mut request).await? {
        return Ok(ModelOutcome::Spent(why));
    }
    let model = snapshot.chain.for_conversation(turn.settings.profile.clone());
    let cancelled = CancellationToken::new();
    let mut began = CallStart::now();
    turn.stream.set_reasoning(turn.effective_reasoning());
    let stream = &turn.stream;
    let mut take = |delta| {
        began.note_piece();
        stream.on_model_delta(delta);
    };
    let on_delta: OnDelta<'_> = &mut take;
    // A branch that ends early drops the request, which aborts it.
    let mut asked = tokio::select! {
        answer = model.reply(&request, on_delta, &cancelled) => match answer {
            Ok(reply) => Ok(ModelOutcome::Replied(Box::new(reply))),
            Err(error) => {
                record::note_failure(&request, &error);
                Ok(ModelOutcome::Failed(error))
            }
        },
        unwanted = until_interrupted(turn) => unwanted.map(|()| ModelOutcome::Interrupted),
        never = turn.stream.send_pending() => match never {},
    };
    turn.stream.flush();
    let took = began.elapsed();
    if let Ok(ModelOutcome::Replied(reply)) = &mut asked {
        began.record(turn, reply);
    }
    metrics::histogram!("holdfast_runner_model_duration_seconds").record(took.as_secs_f64());
    turn.timing.model += took;
    store_key(turn, model.used_key()).await?;
    failpoints::point("runner.after_model").await;
    asked
}

/// Stores the key that answered, if there are several, so that the conversation keeps it.
pub(crate) async fn store_key(turn: &mut TurnState<'_>, used: Option<String>) -> Result<(), Error> {
    if used.is_none() || used == turn.settings.profile {
        return Ok(());
    }
    turn.settings.profile = used;
    Ok(turn.worker.sessions.settings().set(&turn.lease.claim, &turn.settings).await?)
}

/// Completes when the answer is not wanted any more: cancelled or interrupted. Fails if the
/// session is lost or must be released.
pub(crate) async fn until_interrupted(turn: &TurnState<'_>) -> Result<(), Error> {
    tokio::select! {
        () = turn.lease.lost.cancelled() => Err(Error::Lost),
        () = turn.worker.giving_up.cancelled() => Err(Error::ReleaseRequested),
        () = until_signalled(turn) => Ok(()),
    }
}

async fn until_signalled(turn: &TurnState<'_>) {
    let mut signal = turn.lease.subscribe();
    let (mut next_in, mut hints) = (turn.next_in, turn.hints);
    loop {
        let now = *signal.borrow_and_update();
        if now.cancel_upto > turn.cancel_upto {
            return;
        }
        if now.next_in > next_in || now.hints > hints {
            (next_in, hints) = (now.next_in.max(next_in), now.hints);
            if is_interrupted(turn).await {
                return;
            }
        }
        if signal.changed().await.is_err() {
            // The sender is part of the lease, so this cannot happen.
            let _: Infallible = std::future::pending().await;
        }
    }
}

/// Whether new messages end the turn. On failure the turn goes on.
async fn is_interrupted(turn: &TurnState<'_>) -> bool {
    let Ok(loaded) = scheduled_messages::load(turn.worker, &turn.lease.claim, 0).await else {
        return false;
    };
    let upto = loaded.cancel_upto.max(turn.cancel_upto);
    match decide_intake(&loaded.waiting, &turn.heard_seqs(), true, upto) {
        Intake::Cancelled(_) | Intake::Interrupted(_) => true,
        Intake::Hear(_) => false,
    }
}
