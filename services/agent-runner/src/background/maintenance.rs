//! Maintenance for all sessions, by the runner that holds the duty of upkeep: sweep, metrics, pruning.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use holdfast_pg::FailureLog;
use holdfast_sandbox_pods::{PodSandbox, PodSweep};
use holdfast_session::{Archive, EventGauges, Gauges, PoolGauges, Retention, SweepCounts};
use holdfast_types::DeliveryState;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{jitter::jittered, worker::Worker};

/// Longest interval of sweeps of commands' pods.
const MAX_POD_SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Delivery states that are reported as metrics.
const REPORTED_STATES: [DeliveryState; 4] =
    [DeliveryState::Pending, DeliveryState::Sending, DeliveryState::Unknown, DeliveryState::Dead];

/// Frees expired leases, passes deadlines, and gives up what failed too often, while this process
/// holds the duty of upkeep.
pub(crate) async fn sweep(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("lost runners are not noticed");
    while stop.run_until_cancelled(sleep(jittered(worker.config.sweep))).await.is_some() {
        match worker.upkeep.hold().await {
            Ok(true) => {}
            Ok(false) => {
                trouble.on_success();
                continue;
            }
            Err(error) => {
                trouble.on_failure(&error);
                continue;
            }
        }
        let swept = worker.sessions.sweep().await;
        match &swept.failure {
            None => trouble.on_success(),
            Some(error) => trouble.on_failure(error),
        }
        if swept.done.needs_wake_up() {
            report_sweep(&worker, swept.done);
        }
    }
    if let Err(error) = worker.upkeep.leave().await {
        debug!(%error, "another runner sweeps when the lease of the duty has expired");
    }
}

/// Deletes pods of commands that nobody uses, and fills the warm pool, while this process holds the
/// duty of upkeep.
pub(crate) async fn sweep_pods(worker: Arc<Worker>, pods: PodSandbox, stop: CancellationToken) {
    let trouble = FailureLog::new("pods of commands are not swept");
    let every = MAX_POD_SWEEP_INTERVAL.min(worker.config.pods.lease / 2);
    while stop.run_until_cancelled(sleep(jittered(every))).await.is_some() {
        if !worker.upkeep.is_held() {
            continue;
        }
        match pods.sweep().await {
            Ok(PodSweep { deleted, made }) => {
                trouble.on_success();
                if deleted + made > 0 {
                    info!(deleted, made, "pods of commands were swept");
                }
            }
            Err(error) => trouble.on_failure(&error),
        }
    }
}

fn report_sweep(worker: &Worker, swept: SweepCounts) {
    let counts = [
        ("orphaned", swept.orphaned),
        ("overdue", swept.overdue),
        ("promoted", swept.promoted),
        ("dead", swept.dead),
    ];
    for (what, count) in counts {
        metrics::counter!("holdfast_runner_swept_total", "what" => what).increment(count);
    }
    debug!(?swept, "swept");
    worker.wake.notify_one();
    worker.events.notify_one();
    worker.bus.wake_run(0);
}

/// Measures queues for `/metrics`. The runner with the duty of upkeep reports all tenants that its
/// login reaches, and the others 0: use the maximum.
pub(crate) async fn measure(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("queues are not measured");
    let mut reported_pools = ReportedPools::default();
    while stop.run_until_cancelled(sleep(jittered(worker.config.gauges))).await.is_some() {
        let held = i64::try_from(worker.leases.len()).unwrap_or(i64::MAX);
        metrics::gauge!("holdfast_runner_running_sessions").set(to_gauge(held));
        let gauges = match worker.upkeep.is_held() {
            true => worker.sessions.queues().gauges().await,
            false => Ok(Gauges::default()),
        };
        let pools = match worker.upkeep.is_held() {
            true => worker.sessions.runner_pools().gauges().await,
            false => Ok(Vec::new()),
        };
        let of_events = match worker.upkeep.is_held() {
            true => worker.sessions.event_log().gauges().await,
            false => Ok(EventGauges::default()),
        };
        match gauges.and_then(|gauges| Ok((gauges, pools?, of_events?))) {
            Ok((gauges, pools, of_events)) => {
                trouble.on_success();
                report_gauges(&gauges);
                reported_pools.report(&pools);
                report_event_gauges(of_events);
            }
            Err(error) => trouble.on_failure(&error),
        }
    }
}

fn report_gauges(gauges: &Gauges) {
    metrics::gauge!("holdfast_runner_waiting_sessions").set(to_gauge(gauges.waiting_sessions));
    metrics::gauge!("holdfast_runner_oldest_wait_seconds").set(gauges.oldest_wait.as_secs_f64());
    for state in REPORTED_STATES {
        let found = gauges.deliveries.iter().find(|(found, _)| found == state.as_str());
        let deliveries = found.map_or(0, |(_, deliveries)| *deliveries);
        metrics::gauge!("holdfast_runner_deliveries", "state" => state.as_str())
            .set(to_gauge(deliveries));
    }
}

/// Pools whose gauges this process has set.
#[derive(Default)]
struct ReportedPools(BTreeSet<String>);

impl ReportedPools {
    /// Sets the gauges of these pools, and those of pools without tenants to 0.
    fn report(&mut self, pools: &[PoolGauges]) {
        for gone in self.0.iter().filter(|name| pools.iter().all(|pool| pool.pool != **name)) {
            set_pool_gauges(gone, 0, 0);
        }
        for PoolGauges { pool, live_runners, waiting_sessions } in pools {
            set_pool_gauges(pool, *live_runners, *waiting_sessions);
            self.0.insert(pool.clone());
        }
    }
}

fn set_pool_gauges(pool: &str, live_runners: i64, waiting_sessions: i64) {
    metrics::gauge!("holdfast_runner_pool_runners", "pool" => pool.to_owned())
        .set(to_gauge(live_runners));
    metrics::gauge!("holdfast_runner_pool_waiting_sessions", "pool" => pool.to_owned())
        .set(to_gauge(waiting_sessions));
}

fn report_event_gauges(gauges: EventGauges) {
    metrics::gauge!("holdfast_runner_event_log_lag_seconds").set(gauges.lag.as_secs_f64());
    metrics::gauge!("holdfast_runner_webhook_held_events").set(to_gauge(gauges.held));
    metrics::gauge!("holdfast_runner_webhook_dead_letters").set(to_gauge(gauges.dead));
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge of more than 2^52 sessions may be off by one"
)]
const fn to_gauge(number: i64) -> f64 {
    number as f64
}

/// Deletes data past its retention, while this process holds the duty of upkeep.
pub(crate) async fn prune(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("old rows are not removed");
    let event_log = worker.config.event_retention;
    let retention = Retention { event_log, ..Retention::default() };
    let folder = &worker.config.archive;
    let archive = (!folder.as_os_str().is_empty()).then(|| Archive::new(folder.clone()));
    // Soon after the start, as a process may not live for an hour.
    let mut wait = jittered(worker.config.prune.min(Duration::from_secs(300)));
    while stop.run_until_cancelled(sleep(wait)).await.is_some() {
        wait = jittered(worker.config.prune);
        if !worker.upkeep.is_held() {
            // This process may get the duty, or get it back, at the next sweep.
            wait = jittered(worker.config.sweep);
            continue;
        }
        let upkeep = worker.sessions.upkeep().archiving_to(archive.as_ref());
        let pruned = upkeep.prune(&retention).await;
        match &pruned.failure {
            None => trouble.on_success(),
            Some(error) => trouble.on_failure(error),
        }
        let pruned = pruned.done;
        if pruned.rows + pruned.sessions > 0 {
            info!(rows = pruned.rows, sessions = pruned.sessions, "pruned");
        }
        if let Err(error) = worker.workspaces.sweep_branches().await {
            warn!(error = &error as &dyn std::error::Error, "old copies of files are not removed");
        }
    }
}
