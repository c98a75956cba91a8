//! Metrics. Labels come from closed sets and never contain a tenant.

use std::time::Duration;

use holdfast_schedule::store::{JobKind, Outcome};

/// Records that a firing was claimed, `lateness` after its slot by the database's clock.
pub fn recorded(kind: JobKind, lateness: Duration) {
    metrics::histogram!("holdfast_scheduler_lateness_seconds", "kind" => kind.as_str())
        .record(lateness);
}

/// Counts a claimed firing by its outcome.
pub fn fired(kind: JobKind, fate: &'static str) {
    metrics::counter!("holdfast_scheduler_firings_total", "kind" => kind.as_str(), "fate" => fate)
        .increment(1);
}

/// Records that a batch of firings was delivered, this long after it was claimed.
pub fn delivered(after: Duration) {
    metrics::histogram!("holdfast_scheduler_delivery_duration_seconds").record(after);
}

/// Counts a firing that has ended.
pub fn ended(outcome: Outcome) {
    metrics::counter!("holdfast_scheduler_ended_total", "outcome" => outcome.as_str()).increment(1);
}

/// Sets the number of delivered firings that have not ended.
pub fn set_in_progress(count: usize) {
    metrics::gauge!("holdfast_scheduler_out").set(u32::try_from(count).unwrap_or(u32::MAX));
}
