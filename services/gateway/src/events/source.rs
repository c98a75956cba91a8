//! Wake-ups of this process's subscriptions: when events of a tenant are logged.
//!
//! A hint over NATS says of which tenants. Hints may be lost, so the ends of the logs of the
//! tenants with a subscription are read every second, in one query for all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_bus::{Bus, TenantWakes};
use holdfast_session::Sessions;
use holdfast_types::TenantId;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::recent_pages::RecentPages;

/// Interval of reading the ends of logs.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Where subscriptions come from. Clones share their state.
#[derive(Debug, Clone)]
pub struct EventSource {
    pub(super) sessions: Sessions,
    /// Cancelled when open streams are to end.
    pub(super) stop: CancellationToken,
    /// Logs of the tenants that have a subscription here.
    logs: Arc<Mutex<HashMap<TenantId, WatchedLog>>>,
}

/// What this process knows of a tenant's log.
#[derive(Debug, Default)]
struct WatchedLog {
    /// Position of the newest event.
    newest: watch::Sender<i64>,
    recent: Arc<RecentPages>,
}

impl EventSource {
    /// When `stop` is cancelled, subscribers get [`Error::Stopping`](crate::Error::Stopping).
    #[must_use]
    pub fn new(sessions: Sessions, stop: CancellationToken) -> Self {
        Self { sessions, stop, logs: Arc::default() }
    }

    /// Returns a receiver of the position of a tenant's newest event, as far as this process knows
    /// it, and the pages that the tenant's subscriptions share.
    pub(super) fn watched_log(&self, tenant: TenantId) -> (watch::Receiver<i64>, Arc<RecentPages>) {
        let mut logs = self.lock();
        let log = logs.entry(tenant).or_default();
        (log.newest.subscribe(), Arc::clone(&log.recent))
    }

    /// Wakes subscriptions until `stop`.
    ///
    /// # Errors
    ///
    /// None: failures of NATS or the database delay events.
    pub async fn watch(self, bus: Bus, stop: CancellationToken) -> anyhow::Result<()> {
        let mut wakes = bus.event_wakes().await.ok();
        // Other tenants' hints do not put it off.
        let mut poll = interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let told = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                _ = poll.tick() => None,
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
        let mut logs = self.lock();
        logs.retain(|_, log| log.newest.receiver_count() > 0);
        let is_told = |tenant: &&TenantId| told.is_none_or(|told| told.contains(tenant));
        logs.keys().filter(is_told).copied().collect()
    }

    fn announce(&self, found: &[(TenantId, i64)]) {
        let logs = self.lock();
        for (tenant, position) in found {
            if let Some(WatchedLog { newest, .. }) = logs.get(tenant) {
                newest.send_if_modified(|known| std::mem::replace(known, *position) != *position);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, WatchedLog>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
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
