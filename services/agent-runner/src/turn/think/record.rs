//! Record of a model call: when, how long, how often, and by which runner.

use std::time::Duration;

use holdfast_kit::trace;
use holdfast_llm::Request;
use holdfast_types::Reply;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::turn::state::TurnState;

/// Start of a model call.
#[derive(Debug)]
pub(crate) struct CallStart {
    at: Timestamp,
    began: Instant,
    first_piece: Option<Duration>,
}

impl CallStart {
    pub(crate) fn now() -> Self {
        Self { at: Timestamp::now(), began: Instant::now(), first_piece: None }
    }

    /// Notes that a piece of the reply has arrived; the first one counts.
    pub(crate) fn note_piece(&mut self) {
        self.first_piece.get_or_insert(self.began.elapsed());
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Completes the record of the reply, which the journal stores with its thought.
    pub(crate) fn record(&self, turn: &TurnState<'_>, reply: &mut Reply) {
        let cost_micros = turn.journal.micros(&reply.model, &reply.usage);
        let stop = reply.stop.as_str().to_owned();
        let record = reply.record.get_or_insert_default();
        record.started_at_ms = self.at.as_millisecond();
        record.took_ms = millis(self.began.elapsed());
        record.first_piece_ms = self.first_piece.map_or(0, millis);
        // Models that repeat no requests, such as the built-in one, do not count them.
        record.attempts = record.attempts.max(1);
        record.failures = turn.failures.take();
        record.cost_micros = cost_micros;
        record.runner = Some(turn.worker.id);
        record.trace = trace::current_id().unwrap_or_default();
        record.stop = stop;
    }
}

/// Records the failure of a request, unless its attempts have done so.
pub(crate) fn note_failure(request: &Request, error: &holdfast_llm::Error) {
    if request.failures.is_empty() {
        request.failures.push_error(&request.model, error);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
