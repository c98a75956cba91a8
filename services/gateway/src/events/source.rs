//! Wake-ups of this process's subscriptions: when events of a tenant are logged.
//!
//! A hint over NATS says of which tenants. Hints may be lost, so the ends of the logs of the
//! tenants with a subscription are read every second, in one query for all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_bus::{Bus, TenantWakes};
use holdfast_session::Sessions;
use holdfast_types::TenantId;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Interval of reading the ends of logs.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Where subscriptions come from. Clones share their state.
#[derive(Debug, Clone)]
pub struct EventSource {
    pub(super) sessions: Sessions,
    /// Cancelled when open streams are to end.
    pub(super) stop: CancellationToken,
    /// Position of the newest event of each tenant that has a subscription here.
    newest: Arc<Mutex<HashMap<TenantId, watch::Sender<i64>>>>,
}

impl EventSource {
    /// When `stop` is cancelled, subscribers get [`Error::Stopping`](crate::Error::Stopping).
    #[must_use]
    pub fn new(sessions: Sessions, stop: CancellationToken) -> Self {
        Self { sessions, stop, newest: Arc::default() }
    }

    /// Returns a receiver of the position of a tenant's newest event, as far as this process knows
    /// it.
    pub(super) fn newest_of(&self, tenant: TenantId) -> watch::Receiver<i64> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.entry(tenant).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// Wakes subscriptions until `stop`.
    ///
    /// # Errors
    ///
    /// None: failures of NATS or the database delay events.
    pub async fn watch(self, bus: Bus, stop: CancellationToken) -> anyhow::Result<()> {
        let mut wakes = bus.event_wakes().await.ok();
        loop {
            let told = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep(POLL_INTERVAL) => None,
                Some(tenants) = next_wake(&mut wakes) => Some(tenants),
            };
            let watched = self.watched(told.as_deref());
            if watched.is_empty() {
                continue;
            }
            match self.sessions.event_log().newest(&watched).await {
                Ok(found) => self.announce(&found),
                Err(error) => {
                    debug!(error = &error as &dyn std::error::Error, "ends of logs are not read");
                }
            }
        }
    }

    /// Returns the tenants with a subscription, of those that were named. Forgets tenants without
    /// one.
    fn watched(&self, told: Option<&[TenantId]>) -> Vec<TenantId> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.retain(|_, sender| sender.receiver_count() > 0);
        let is_told = |tenant: &&TenantId| told.is_none_or(|told| told.contains(tenant));
        newest.keys().filter(is_told).copied().collect()
    }

    fn announce(&self, found: &[(TenantId, i64)]) {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        for (tenant, position) in found {
            if let Some(sender) = newest.get(tenant) {
                sender.send_if_modified(|known| std::mem::replace(known, *position) != *position);
            }
        }
    }
}

/// Returns the tenants of the next wake-up; never without a connection.
async fn next_wake(wakes: &mut Option<TenantWakes>) -> Option<Vec<TenantId>> {
    match wakes {
        Some(open) => match open.next().await {
            Some(tenants) => Some(tenants),
            None => {
                *wakes = None;
                None
            }
        },
        None => std::future::pending().await,
    }
}
