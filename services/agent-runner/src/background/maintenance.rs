//! Maintenance for all sessions: sweep, relay, metrics, pruning.
//!
//! The runner that holds the duty of upkeep sweeps, measures and prunes. Every runner relays: an
//! event may be published twice under one id.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use holdfast_bus::{Bus, Subject};
use holdfast_sandbox_pods::{PodSandbox, PodSweep};
use holdfast_session::{Archive, Event, Gauges, Retention, SweepCounts};
use holdfast_types::DeliveryState;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{failure_log::FailureLog, jitter::jittered, worker::Worker};

/// Events per read.
const EVENT_BATCH_SIZE: i64 = 64;

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

pub(crate) async fn relay(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("events are not published");
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => break,
            () = worker.events.notified() => {}
            () = sleep(jittered(worker.config.relay)) => {}
        }
        loop {
            // Without NATS the events stay stored.
            if !worker.bus.is_connected() {
                break;
            }
            let bus = worker.bus.clone();
            let publish = publisher(move |events| publish_all(bus, events).boxed());
            match worker.sessions.relay(EVENT_BATCH_SIZE, publish).await {
                // No more events, or another runner has locked them.
                Ok(count) if count < EVENT_BATCH_SIZE.unsigned_abs() => {
                    trouble.on_success();
                    break;
                }
                Ok(_) => {}
                Err(error) => {
                    trouble.on_failure(&error);
                    break;
                }
            }
        }
        // Combines the ends of many turns into one read.
        sleep(Duration::from_millis(50)).await;
    }
}

/// Gives the closure its type: the compiler cannot yet see that an `async` one is `Send`.
const fn publisher<F>(publish: F) -> F
where
    F: for<'e> FnOnce(&'e [Event]) -> BoxFuture<'e, usize>,
{
    publish
}

/// Publishes events in order. Returns how many of them, counted from the first, the bus has.
///
/// All are sent before the first acknowledgement.
async fn publish_all(bus: Bus, events: &[Event]) -> usize {
    let done = join_all(events.iter().map(|event| publish(&bus, event))).await;
    done.into_iter().take_while(|done| *done).count()
}

async fn publish(bus: &Bus, event: &Event) -> bool {
    let subject = Subject::event(event.tenant, &event.family, event.session);
    let envelope = json!({
        "id": event.id,
        "tenant": event.tenant,
        "session": event.session,
        "name": event.name,
        "payload": event.payload,
    });
    let id = format!("event-{}", event.id);
    match bus.publish_event(&subject, &id, Bytes::from(envelope.to_string())).await {
        Ok(()) => true,
        Err(holdfast_bus::Error::TooLarge { size, limit }) => {
            warn!(event.id, size, limit, "an event is too large and is left out");
            true
        }
        Err(error) => {
            debug!(
                event.id,
                error = &error as &dyn std::error::Error,
                "an event was not published"
            );
            false
        }
    }
}

/// Measures queues for `/metrics`. The runner with the duty of upkeep reports the whole
/// installation, and the others 0: use the maximum.
pub(crate) async fn measure(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("queues are not measured");
    while stop.run_until_cancelled(sleep(jittered(worker.config.gauges))).await.is_some() {
        let held = i64::try_from(worker.leases.len()).unwrap_or(i64::MAX);
        metrics::gauge!("holdfast_runner_running_sessions").set(to_gauge(held));
        let gauges = match worker.upkeep.is_held() {
            true => worker.sessions.queues().gauges().await,
            false => Ok(Gauges::default()),
        };
        match gauges {
            Ok(gauges) => {
                trouble.on_success();
                report_gauges(&gauges);
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
    let retention = Retention::default();
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
