//! Heartbeat turns: without history, and only news is sent (spec HBT, C-11 to C-13).
//!
//! The scheduler creates heartbeats and handles what follows a delivered reply; this file decides
//! whether the reply is news. A reply that is not sent ends the turn with a status word of
//! [`holdfast_schedule::heartbeat`] as its reason, from which the scheduler knows.

use holdfast_agent::is_silent;
use holdfast_schedule::heartbeat::{
    DeliveryDecision, HeartbeatAnswer, HeartbeatConfig, ModelReply, RECENT, RecentAnswers, Status,
    decide_delivery,
};
use holdfast_session::{CompletionResult, LoadedSession, TurnOutcome};
use holdfast_types::{Entry, Heartbeat, RunId, SessionKind};
use jiff::Timestamp;
use tracing::debug;

use crate::{
    error::Error,
    turn::{context::media, reply::completion, state::TurnState},
};

/// Model that the heartbeat which began this turn requests.
pub(crate) fn heartbeat_model(loaded: &LoadedSession, run: RunId) -> Option<String> {
    let first = loaded.waiting.iter().find(|row| RunId::from(row.message) == run);
    first.and_then(|row| row.body.heartbeat.as_ref()).and_then(|beat| beat.model.clone())
}

/// Drops the history of a heartbeat session: only the last `open` entries, the open turn, remain.
pub(crate) fn drop_history(kind: Option<SessionKind>, entries: &mut Vec<Entry>, open: usize) {
    if kind == Some(SessionKind::Heartbeat) {
        entries.drain(..entries.len().saturating_sub(open));
    }
}

impl TurnState<'_> {
    /// Returns the heartbeat of this turn; `None` if a person has written in it too.
    pub(crate) fn heartbeat(&self) -> Option<&Heartbeat> {
        let mut beat = None;
        for entry in self.journal.turn() {
            match entry {
                Entry::Heard { body, .. } if body.silent => {}
                Entry::Heard { body, .. } => beat = Some(body.heartbeat.as_deref()?),
                Entry::Thought { .. }
                | Entry::Called { .. }
                | Entry::Returned { .. }
                | Entry::Noted { .. } => {}
            }
        }
        beat
    }

    /// Whether the model's reasoning is sent with its answer.
    pub(crate) fn sends_thinking(&self) -> bool {
        self.heartbeat().is_some_and(|beat| beat.include_reasoning)
    }
}

/// Ends the turn with the answer to a heartbeat, which is sent if it is news.
pub(crate) async fn finish_heartbeat(
    turn: &mut TurnState<'_>,
    beat: Heartbeat,
    thought: Entry,
) -> Result<CompletionResult, Error> {
    let said = match &thought {
        Entry::Thought { text, .. } if !is_silent(text) => text.clone(),
        _ => String::new(),
    };
    let has_media = !media::attachments(turn, turn.reply_target().as_ref()).is_empty();
    let config = HeartbeatConfig {
        ack_max_chars: beat.ack_max_chars,
        include_reasoning: beat.include_reasoning,
        ..HeartbeatConfig::default()
    };
    let now = Timestamp::now();
    let recent = recently_sent(turn, &beat, now).await;
    let answer = HeartbeatAnswer { text: &said, has_media };
    let reply = ModelReply { answer, reasoning: turn.reasoning.as_deref() };
    let (reason, text) = match decide_delivery(&config, reply, &recent, now) {
        DeliveryDecision::Deliver { text, .. } => (None, text),
        DeliveryDecision::Quiet { reason, status } => {
            (Some(reason.unwrap_or_else(|| status_name(status).to_owned())), String::new())
        }
    };
    completion::finish(turn, TurnOutcome::Completed, reason, thought, text, turn.unfinished_seqs())
        .await
}

/// Texts that were sent recently. Without Redis there are none, and a text may be sent twice.
async fn recently_sent(turn: &TurnState<'_>, beat: &Heartbeat, now: Timestamp) -> RecentAnswers {
    let since = now.checked_sub(RECENT).unwrap_or(Timestamp::MIN).as_millisecond();
    match turn.worker.redis_locks.recent_messages(&beat.recent, since).await {
        Ok(said) => said.into_iter().collect(),
        Err(error) => {
            debug!(%error, "what a heartbeat said lately is not known");
            RecentAnswers::default()
        }
    }
}

const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Sent => "sent",
        Status::OkEmpty => "ok-empty",
        Status::OkToken => "ok-token",
        Status::Skipped => "skipped",
        Status::Failed => "failed",
    }
}
