//! Prometheus metrics.
//!
//! Record with the macros of the `metrics` crate, under names such as
//! `holdfast_runner_step_duration_seconds`. Labels come from closed sets and never contain a
//! tenant's id. Values recorded before [`install`] are lost.

pub mod descriptions;

use std::sync::{LazyLock, OnceLock};

use anyhow::Context as _;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;

static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Metrics of the process itself: CPU time, memory, open files.
static PROCESS: LazyLock<Collector> = LazyLock::new(Collector::default);

/// Commit of the sources, where the build sets it.
const COMMIT: &str = match option_env!("HOLDFAST_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Bucket bounds of all histograms in seconds, from a wake-up (1 ms) to a long turn (10 minutes).
const SECONDS_BUCKETS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0];

/// Installs the recorder. [`telemetry::init`](crate::telemetry::init) calls this; further calls
/// have no effect.
///
/// # Errors
///
/// If the process has already installed another recorder.
pub fn install() -> anyhow::Result<()> {
    if RECORDER.get().is_some() {
        return Ok(());
    }
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)?
        .install_recorder()
        .context("cannot install the recorder of metrics")?;
    RECORDER.get_or_init(|| handle);
    descriptions::describe();
    PROCESS.describe();
    metrics::gauge!(
        "holdfast_build_info", "version" => env!("CARGO_PKG_VERSION"), "commit" => COMMIT
    )
    .set(1);
    Ok(())
}

/// Returns all metrics in Prometheus' text format; empty if no recorder is installed.
#[must_use]
pub fn render() -> String {
    PROCESS.collect();
    RECORDER.get().map(PrometheusHandle::render).unwrap_or_default()
}

/// Aggregates the samples of histograms. Until then each sample takes memory.
pub(crate) fn aggregate() {
    if let Some(recorder) = RECORDER.get() {
        recorder.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_shown_with_its_bounds() {
        install().unwrap();
        install().unwrap();
        metrics::counter!("holdfast_kit_tests_total").increment(2);
        metrics::counter!("holdfast_runner_turns_total").increment(1);
        metrics::histogram!("holdfast_kit_test_duration_seconds").record(0.2);

        let text = render();

        assert!(text.contains("holdfast_kit_tests_total 2"), "{text}");
        assert!(
            text.contains("holdfast_kit_test_duration_seconds_bucket{le=\"0.25\"} 1"),
            "{text}"
        );
        assert!(text.contains("# HELP holdfast_runner_turns_total Turns that ended"), "{text}");
        assert!(text.contains("holdfast_build_info{version="), "{text}");
        assert!(text.contains("process_resident_memory_bytes "), "{text}");
    }
}
