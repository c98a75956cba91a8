//! What is counted. Labels are of closed sets, and no tenant is one.

use std::time::Duration;

use holdfast_jobs::{JobKind, Outcome};

/// A firing was recorded, so long after its slot by the database's clock.
pub fn recorded(kind: JobKind, lateness: Duration) {
    metrics::histogram!("holdfast_scheduler_lateness_seconds", "kind" => kind.as_str())
        .record(lateness);
}

/// Something became of a firing that was handed out.
pub fn fired(kind: JobKind, fate: &'static str) {
    metrics::counter!("holdfast_scheduler_firings_total", "kind" => kind.as_str(), "fate" => fate)
        .increment(1);
}

/// A batch of firings was delivered, so long after it was handed out.
pub fn delivered(after: Duration) {
    metrics::histogram!("holdfast_scheduler_delivery_duration_seconds").record(after);
}

/// What a firing became has ended.
pub fn ended(outcome: Outcome) {
    metrics::counter!("holdfast_scheduler_ended_total", "outcome" => outcome.as_str()).increment(1);
}

/// So many firings are out.
pub fn out(count: usize) {
    metrics::gauge!("holdfast_scheduler_out").set(u32::try_from(count).unwrap_or(u32::MAX));
}
