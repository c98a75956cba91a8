//! The log of tenants' events, by the runner with the duty of upkeep: moves committed events from the
//! outboxes to the log, and publishes what was logged to JetStream.
//!
//! Both happen outside of turns and in batches. A batch is marked as published after JetStream has
//! stored it; after a crash in between it is published again under the same ids.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use holdfast_bus::{Bus, Subject};
use holdfast_directory::TenantEvent;
use holdfast_pg::FailureLog;
use holdfast_session::{Event, LoggedEvent, NewEvent, UnpublishedEvents};
use holdfast_types::{SessionId, TenantId};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{jitter::jittered, worker::Worker};

/// Rows of an outbox that one transaction moves to the log.
const ROWS_PER_BATCH: i64 = 500;

/// Rows of the log that are published before they are marked.
const ROWS_PER_PUBLICATION: i64 = 64;

/// Pause after a round: combines the ends of many turns.
const PAUSE: Duration = Duration::from_millis(100);

/// Version of the fields of events of tenants' lives and settings.
const TENANT_EVENT_VERSION: u32 = 1;

/// Logs and publishes events, until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("events are not logged");
    let unpublished = FailureLog::new("events are not published");
    // Whether there may be unpublished events, also those that another process has logged.
    let mut is_behind = true;
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => break,
            () = worker.events.notified() => {}
            () = sleep(jittered(worker.config.relay)) => {}
        }
        if worker.upkeep.is_held() {
            match log_all(&worker).await {
                Ok(has_logged) => {
                    trouble.on_success();
                    is_behind |= has_logged;
                }
                Err(error) => trouble.on_failure(error.as_ref()),
            }
            if is_behind {
                match publish_all(&worker).await {
                    Ok(is_done) => {
                        unpublished.on_success();
                        is_behind = !is_done;
                    }
                    Err(error) => unpublished.on_failure(&error),
                }
            }
        } else {
            is_behind = true;
        }
        sleep(PAUSE).await;
    }
}

/// Moves everything that is committed to the log. Returns whether there was anything.
async fn log_all(worker: &Worker) -> anyhow::Result<bool> {
    let mut has_logged = false;
    while worker.sessions.event_log().has_unlogged().await? {
        // Another process writes, which may be slow to notice that it lost the duty.
        let Some(mut writer) = worker.sessions.event_log().writer().await? else { break };
        let (rows, mut events) = writer.take(ROWS_PER_BATCH).await?;
        let of_tenants =
            worker.directory.tenant_events().take_unlogged(writer.tx(), ROWS_PER_BATCH).await?;
        let is_full = of_tenants.len() as u64 == ROWS_PER_BATCH.unsigned_abs()
            || rows == ROWS_PER_BATCH.unsigned_abs();
        events.extend(of_tenants.into_iter().map(tenant_event));
        metrics::counter!("holdfast_runner_events_logged_total").increment(events.len() as u64);
        let tenants = writer.commit(events).await?;
        has_logged |= !tenants.is_empty();
        worker.bus.wake_events(&tenants);
        if !is_full {
            break;
        }
    }
    Ok(has_logged)
}

fn tenant_event(told: TenantEvent) -> NewEvent {
    let agent = told.detail.get("agent").and_then(|agent| agent.as_str()?.parse().ok());
    NewEvent {
        tenant: told.tenant,
        event: Event {
            kind: told.kind,
            schema_version: TENANT_EVENT_VERSION,
            at: told.created_at,
            agent,
            session: None,
            channel: None,
            data: told.detail,
        },
    }
}

/// Publishes what was logged. Without NATS it stays in the log, and is published later. Returns
/// whether everything is published.
async fn publish_all(worker: &Worker) -> Result<bool, holdfast_session::Error> {
    let log = worker.sessions.event_log();
    while worker.bus.is_connected() {
        let batch = log.unpublished(ROWS_PER_PUBLICATION).await?;
        if batch.is_empty() {
            return Ok(true);
        }
        let done = join_all(batch.iter().map(|events| publish(&worker.bus, events))).await;
        // After a failure the later rows of this tenant are published again, to keep the order.
        let mut failed: Vec<TenantId> = Vec::new();
        let mut published = Vec::new();
        for (events, is_done) in batch.iter().zip(done) {
            match events.events.last() {
                Some(last) if is_done && !failed.contains(&events.tenant) => {
                    published.push((events.tenant, last.position));
                }
                _ => failed.push(events.tenant),
            }
        }
        if !published.is_empty() {
            log.mark_published(&published).await?;
        }
        if !failed.is_empty() {
            break;
        }
    }
    Ok(false)
}

/// Publishes events of a tenant, those of each session in one message. Returns whether JetStream has
/// all of them.
async fn publish(bus: &Bus, events: &UnpublishedEvents) -> bool {
    let mut by_session: BTreeMap<SessionId, Vec<&LoggedEvent>> = BTreeMap::new();
    for event in &events.events {
        // Events of the tenant's life are published by `tenant_events.rs`.
        if let Some(session) = subject_session(&event.event) {
            by_session.entry(session).or_default().push(event);
        }
    }
    let sent = by_session
        .iter()
        .map(|(session, told)| publish_session(bus, (events.tenant, *session), told));
    join_all(sent).await.into_iter().all(|done| done)
}

/// Session in whose subject an event is published: all zeros for a job without one.
fn subject_session(event: &Event) -> Option<SessionId> {
    let is_of_job = event.kind.starts_with("job.") || event.kind.starts_with("reminder.");
    event.session.or_else(|| is_of_job.then(|| SessionId::from(uuid::Uuid::nil())))
}

async fn publish_session(
    bus: &Bus,
    (tenant, session): (TenantId, SessionId),
    told: &[&LoggedEvent],
) -> bool {
    let Some(first) = told.first() else { return true };
    let subject = Subject::session_events(tenant, session);
    let events: Vec<_> = told.iter().map(|event| event.to_json()).collect();
    let envelope = json!({ "tenant": tenant, "session": session, "events": events });
    let id = format!("{tenant}-{}", first.cursor());
    match bus.publish_event(&subject, &id, Bytes::from(envelope.to_string())).await {
        Ok(()) => true,
        Err(holdfast_bus::Error::TooLarge { size, limit }) => {
            warn!(
                event.id = id,
                size, limit, "events are too large for NATS and are left out there"
            );
            true
        }
        Err(error) => {
            debug!(
                event.id = id,
                error = &error as &dyn std::error::Error,
                "events were not published"
            );
            false
        }
    }
}
