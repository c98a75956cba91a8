//! Ends of a turn, each in one transaction.

use std::time::Duration;

use holdfast_agent::is_silent;
use holdfast_bus::DeltaBody;
use holdfast_kit::trace;
use holdfast_session::{Completion, CompletionResult, NewDelivery, TurnOutcome};
use holdfast_types::{Entry, Handover, Note, ProviderFailure, RunId, Usage, Wait};
use tracing::{Span, info, warn};

use crate::{
    error::Error,
    turn::{
        approvals,
        context::media,
        firings,
        journal::ReplyKind,
        reply::{
            blocks,
            end_notes::end_note,
            language::Language,
            quotes,
            replies::{self, Failure},
        },
        state::TurnState,
    },
};

pub(crate) async fn finish_with_answer(
    turn: &mut TurnState<'_>,
    thought: Entry,
) -> Result<CompletionResult, Error> {
    let text = match &thought {
        Entry::Thought { text, .. } if !is_silent(text) => text.clone(),
        _ => String::new(),
    };
    let reason = turn.stop.early_end().map(str::to_owned);
    finish(turn, TurnOutcome::Completed, reason, thought, text, turn.unfinished_seqs()).await
}

/// Ends the turn with an entry other than a thought, and a text to send.
pub(crate) async fn finish_with_note(
    turn: &mut TurnState<'_>,
    last: Entry,
    text: String,
) -> Result<CompletionResult, Error> {
    finish(turn, TurnOutcome::Completed, None, last, text, turn.unfinished_seqs()).await
}

/// Ends the turn with a text that says why there is no answer.
pub(crate) async fn finish_with_failure(
    turn: &mut TurnState<'_>,
    failure: &Failure<'_>,
) -> Result<CompletionResult, Error> {
    let language = Language::of_turn(turn);
    let text = failure.user_text(turn.run, trace::current().as_deref(), language);
    let reason = failure.class().to_owned();
    metrics::counter!("holdfast_runner_failures_total", "class" => failure.class()).increment(1);
    let failures = turn.failures.take();
    if let (Failure::Model(_), Some(last)) = (failure, failures.last()) {
        warn_of_provider(turn.run, last);
    }
    let note = Entry::failed(text.as_str(), failures);
    if turn.heartbeat().is_some() {
        // Nobody asked: the failure is reported in the heartbeat's event only.
        let why = Some(failure.description(language).into_owned());
        return finish(turn, TurnOutcome::Failed, why, note, String::new(), turn.unfinished_seqs())
            .await;
    }
    finish(turn, TurnOutcome::Failed, Some(reason), note, text, turn.unfinished_seqs()).await
}

/// Logs why a provider failed a turn, without its text, which may have words of the conversation.
fn warn_of_provider(run: RunId, failure: &ProviderFailure) {
    warn!(
        run.id = %run,
        provider = failure.provider(),
        model = failure.model.as_str(),
        class = failure.class.as_str(),
        status = failure.status,
        code = failure.code.as_str(),
        attempts = failure.attempts,
        "the model's provider failed a turn; its words are in the run"
    );
}

/// Ends the turn with calls of the client's tools, for which the session waits.
pub(crate) async fn finish_with_handover(
    turn: &mut TurnState<'_>,
    handover: Handover,
    wait: Wait,
) -> Result<CompletionResult, Error> {
    approvals::withdraw_approvals(turn).await?;
    let done = turn.unfinished_seqs();
    let completion =
        Completion { wait, ..new_completion(turn, done.clone(), TurnOutcome::Completed) };
    let completed = turn.journal.complete(handover.entry(), ReplyKind::Yes, completion).await?;
    turn.stream.send(DeltaBody::Done {
        seqs: done,
        text: handover.text,
        outcome: to_bus_outcome(TurnOutcome::Completed),
        reason: None,
        usage: turn.journal.usage(),
        model: turn.journal.model(),
        calls: handover.calls,
    });
    record_metrics(turn, TurnOutcome::Completed);
    Ok(completed)
}

/// Ends a turn that was interrupted or cancelled.
pub(crate) async fn finish_early(
    turn: &mut TurnState<'_>,
    note: Note,
    done: Vec<i64>,
) -> Result<CompletionResult, Error> {
    let (outcome, reason) = match note {
        Note::Interrupted => (TurnOutcome::Interrupted, "a newer message ended this turn"),
        Note::Cancelled => (TurnOutcome::Cancelled, "the turn was cancelled"),
        Note::Failed
        | Note::DeadlinePassed
        | Note::Summary
        | Note::Flush
        | Note::Flushed
        | Note::Command
        | Note::Reset
        | Note::Asked
        | Note::Allowed
        | Note::Routed
        | Note::Told
        | Note::Posted
        | Note::Dispatched
        | Note::HandedOver
        | Note::Unknown => (TurnOutcome::Failed, "given up"),
    };
    let entry = Entry::noted(note, reason);
    finish(turn, outcome, Some(reason.to_owned()), entry, String::new(), done).await
}

pub(crate) async fn finish(
    turn: &mut TurnState<'_>,
    outcome: TurnOutcome,
    reason: Option<String>,
    last: Entry,
    text: String,
    done: Vec<i64>,
) -> Result<CompletionResult, Error> {
    approvals::withdraw_approvals(turn).await?;
    let is_reply = if text.is_empty() { ReplyKind::No } else { ReplyKind::Yes };
    let target = turn.reply_target();
    let answer = match is_reply {
        ReplyKind::Yes => {
            let shown = turn.spoken.as_ref().map_or(text.as_str(), |aloud| &aloud.text);
            let place = quotes::with_quote(turn, target.clone());
            let answer =
                replies::reply_delivery(turn.run, turn.journal.turn(), place.as_ref(), shown);
            answer.filter(|answer| !answer.text.is_empty())
        }
        ReplyKind::No => None,
    };
    let is_answer = outcome == TurnOutcome::Completed && matches!(last, Entry::Thought { .. });
    let mut deliveries = deliveries_of(turn, answer, is_answer);
    if outcome == TurnOutcome::Completed {
        deliveries.extend(media::attachments(turn, target.as_ref()));
    }
    let mut channels: Vec<String> = turn.journal.outbox_channels().collect();
    channels.extend(deliveries.iter().map(|sent| sent.target.channel.clone()));
    channels.sort_unstable();
    channels.dedup();
    if outcome == TurnOutcome::Completed
        && let Some(posted) = firings::main_session_post(turn, &text)
    {
        turn.journal.add_unstored(posted);
    }
    let completion = Completion {
        reason: reason.clone(),
        deliveries,
        last_target: turn.switched_target.take().or_else(|| {
            let channel = turn.settings.channel.as_ref();
            // A message by another channel does not change the one that the user has chosen, and a
            // reminder does not change where the conversation is held.
            target
                .filter(|target| channel.is_none_or(|channel| *channel == target.channel))
                .filter(|_| !turn.is_firing_in_user_session())
        }),
        ..new_completion(turn, done.clone(), outcome)
    };
    let pauses: Vec<(String, Duration)> = completion
        .deliveries
        .iter()
        .filter(|sent| !sent.delay.is_zero())
        .map(|sent| (sent.target.channel.clone(), sent.delay))
        .collect();
    let completed = turn.journal.complete(last, is_reply, completion).await?;

    for channel in &channels {
        turn.worker.bus.wake_deliver(channel);
    }
    // Without these, a bridge notices a block that became due within a second.
    for (channel, pause) in pauses {
        let bus = turn.worker.bus.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            bus.wake_deliver(&channel);
        });
    }
    turn.stream.send(DeltaBody::Done {
        seqs: done,
        text,
        outcome: to_bus_outcome(outcome),
        reason,
        usage: turn.journal.usage(),
        model: turn.journal.model(),
        calls: Vec::new(),
    });
    record_metrics(turn, outcome);
    Ok(completed)
}

/// Adds a note to an answer that ended early.
fn with_end_note(turn: &TurnState<'_>, mut answer: NewDelivery) -> NewDelivery {
    if let Some(note) = end_note(turn.stop, Language::of_turn(turn)) {
        answer.text = format!("{}\n\n{note}", answer.text.trim_end());
    }
    answer
}

/// Deliveries of a reply: one, or several blocks, with the agent's name where several agents answer.
fn deliveries_of(
    turn: &TurnState<'_>,
    answer: Option<NewDelivery>,
    is_answer: bool,
) -> Vec<NewDelivery> {
    let answer = answer.map(|answer| match is_answer {
        true => with_end_note(turn, answer),
        false => answer,
    });
    let (Some(mut answer), Some(options)) = (answer.clone(), turn.message_options()) else {
        return answer.into_iter().collect();
    };
    if let Some(name) = &options.signature {
        answer.text.insert_str(0, &format!("[{name}] "));
    }
    match &options.channel.blocks {
        Some(settings) if is_answer => blocks::blocks_of(answer, turn.run, settings),
        Some(_) | None => vec![answer],
    }
}

/// Completion without a reply; the journal fills in what it knows.
fn new_completion(turn: &TurnState<'_>, done: Vec<i64>, outcome: TurnOutcome) -> Completion {
    Completion {
        run: turn.run,
        at: None,
        newest: None,
        entries: Vec::new(),
        done,
        outcome,
        reason: None,
        reply: None,
        deliveries: Vec::new(),
        usage: Usage::default(),
        model: String::new(),
        steps: 0,
        tools: Vec::new(),
        started_at: turn.timing.started_at,
        wait: turn.wait.clone(),
        last_target: None,
        effects: None,
    }
}

fn record_metrics(turn: &TurnState<'_>, outcome: TurnOutcome) {
    let all = turn.timing.began.elapsed();
    let ours = all.saturating_sub(turn.timing.model + turn.timing.tools);
    metrics::counter!("holdfast_runner_turns_total", "outcome" => outcome.as_str()).increment(1);
    metrics::histogram!("holdfast_runner_turn_duration_seconds").record(all.as_secs_f64());
    metrics::histogram!("holdfast_runner_overhead_duration_seconds").record(ours.as_secs_f64());
    Span::current().record("outcome", outcome.as_str());
    let duration_ms = u64::try_from(all.as_millis()).unwrap_or(u64::MAX);
    let overhead_ms = u64::try_from(ours.as_millis()).unwrap_or(u64::MAX);
    info!(run.id = %turn.run, outcome = outcome.as_str(), duration_ms, overhead_ms, "turn ended");
}

const fn to_bus_outcome(outcome: TurnOutcome) -> holdfast_bus::Outcome {
    match outcome {
        TurnOutcome::Completed => holdfast_bus::Outcome::Completed,
        TurnOutcome::Interrupted => holdfast_bus::Outcome::Interrupted,
        TurnOutcome::Cancelled => holdfast_bus::Outcome::Cancelled,
        TurnOutcome::Failed => holdfast_bus::Outcome::Failed,
        TurnOutcome::Dead => holdfast_bus::Outcome::Dead,
    }
}
