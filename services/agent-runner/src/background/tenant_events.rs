//! Publication of tenants' events, by the runner with the duty of upkeep.
//!
//! An event is marked as published after JetStream has stored it. After a crash in between it is
//! published again, under the same id.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use holdfast_bus::{Bus, Subject};
use holdfast_directory::TenantEvent;
use holdfast_pg::FailureLog;
use holdfast_types::TenantId;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{jitter::jittered, worker::Worker};

/// Events per read.
const EVENT_BATCH_SIZE: i64 = 64;

/// Publishes events, until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("events of tenants are not published");
    while stop.run_until_cancelled(sleep(jittered(worker.config.relay))).await.is_some() {
        // Without NATS the events stay stored.
        while worker.upkeep.is_held() && worker.bus.is_connected() {
            let bus = worker.bus.clone();
            let publish = publisher(move |events| publish_all(bus, events).boxed());
            match worker.directory.tenant_events().relay(EVENT_BATCH_SIZE, publish).await {
                Ok(count) => {
                    trouble.on_success();
                    if count < EVENT_BATCH_SIZE.unsigned_abs() {
                        break;
                    }
                }
                Err(error) => {
                    trouble.on_failure(&error);
                    break;
                }
            }
        }
    }
}

/// Gives the closure its type: the compiler cannot yet see that an `async` one is `Send`.
const fn publisher<F>(publish: F) -> F
where
    F: for<'e> FnOnce(&'e [TenantEvent]) -> BoxFuture<'e, usize>,
{
    publish
}

/// Returns how many events, counted from the first, the bus has.
async fn publish_all(bus: Bus, events: &[TenantEvent]) -> usize {
    let done = join_all(events.iter().map(|event| publish(&bus, event))).await;
    let count = done.into_iter().take_while(|done| *done).count();
    let published = events.iter().take(count);
    let revoked: BTreeSet<TenantId> =
        published.filter(|event| event.may_revoke_access()).map(|event| event.tenant).collect();
    if !revoked.is_empty() {
        bus.wake_access(&Vec::from_iter(revoked));
    }
    count
}

async fn publish(bus: &Bus, event: &TenantEvent) -> bool {
    let envelope = json!({
        "id": event.id,
        "tenant": event.tenant,
        "tenant_name": event.name,
        "kind": event.kind,
        "at": event.created_at.to_string(),
        "detail": event.detail,
    });
    let subject = Subject::tenant_event(event.tenant, &event.kind);
    let id = format!("tenant-event-{}", event.id);
    match bus.publish_event(&subject, &id, Bytes::from(envelope.to_string())).await {
        Ok(()) => true,
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            debug!(event.id, error, "an event of a tenant was not published");
            false
        }
    }
}
