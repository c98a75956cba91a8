//! Heartbeats: turns without a past, of whose answers only news is sent (spec HBT, C-11 to C-13).
//!
//! What asked, and what follows once the answer has arrived, is the scheduler's; here the answer is
//! taken for what it means. What is not sent ends the turn with a word of
//! [`holdfast_schedule::heartbeat`] as its reason, by which the scheduler knows.

use holdfast_agent::is_silent;
use holdfast_schedule::heartbeat::{
    After, Answer, HeartbeatConfig, RECENT, Recent, Reply, Status, after,
};
use holdfast_session::{Completed, Loaded, Outcome};
use holdfast_types::{Entry, Heartbeat, RunId, SessionKind};
use jiff::Timestamp;
use tracing::debug;

use crate::{error::Error, turn::Turn};

/// The model that the heartbeat asks for which began this turn.
pub(crate) fn model(loaded: &Loaded, run: RunId) -> Option<String> {
    let first = loaded.waiting.iter().find(|row| RunId::from(row.message) == run);
    first.and_then(|row| row.body.heartbeat.as_ref()).and_then(|beat| beat.model.clone())
}

/// Leaves of a journal what its open turn needs, the last `open` entries, in a session that has no
/// past.
pub(crate) fn forget(kind: Option<SessionKind>, entries: &mut Vec<Entry>, open: usize) {
    if kind == Some(SessionKind::Heartbeat) {
        entries.drain(..entries.len().saturating_sub(open));
    }
}

impl Turn<'_> {
    /// The heartbeat that this turn is, unless a person has spoken in it too.
    pub(crate) fn beat(&self) -> Option<&Heartbeat> {
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

    /// Whether what the model thinks is sent with what it says.
    pub(crate) fn sends_thinking(&self) -> bool {
        self.beat().is_some_and(|beat| beat.include_reasoning)
    }

    /// Ends the turn with the answer to a heartbeat: it is sent if it is news.
    pub(crate) async fn answer_beat(
        &mut self,
        beat: Heartbeat,
        thought: Entry,
    ) -> Result<Completed, Error> {
        let said = match &thought {
            Entry::Thought { text, .. } if !is_silent(text) => text.clone(),
            _ => String::new(),
        };
        let has_media = !self.attachments(self.target().as_ref()).is_empty();
        let config = HeartbeatConfig {
            ack_max_chars: beat.ack_max_chars,
            include_reasoning: beat.include_reasoning,
            ..HeartbeatConfig::default()
        };
        let now = Timestamp::now();
        let recent = self.recent(&beat, now).await;
        let answer = Answer { text: &said, has_media };
        let reply = Reply::Said { answer, reasoning: self.mulled.as_deref() };
        let (reason, text) = match after(&config, reply, &recent, now) {
            After::Deliver { text, .. } => (None, text),
            After::Quiet { reason, status } => {
                (Some(reason.unwrap_or_else(|| word(status).to_owned())), String::new())
            }
        };
        self.end(Outcome::Completed, reason, thought, text, self.unfinished()).await
    }

    /// What was said lately. Without Redis it is not known, and may be said again.
    async fn recent(&self, beat: &Heartbeat, now: Timestamp) -> Recent {
        let since = now.checked_sub(RECENT).unwrap_or(Timestamp::MIN).as_millisecond();
        match self.worker.leases.lately(&beat.recent, since).await {
            Ok(said) => said.into_iter().collect(),
            Err(error) => {
                debug!(%error, "what a heartbeat said lately is not known");
                Recent::default()
            }
        }
    }
}

const fn word(status: Status) -> &'static str {
    match status {
        Status::Sent => "sent",
        Status::OkEmpty => "ok-empty",
        Status::OkToken => "ok-token",
        Status::Skipped => "skipped",
        Status::Failed => "failed",
    }
}
