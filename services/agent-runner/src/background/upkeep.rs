//! Upkeep duty, as this process knows it: one runner at a time sweeps, measures and prunes.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::worker::Worker;

/// Sweeps that the owner of the duty may miss before another runner takes it.
const MISSED_SWEEPS: u32 = 3;

/// Minimum lease of the duty, for short sweep intervals.
const MIN_LEASE: Duration = Duration::from_millis(500);

/// When the duty must be renewed; `None` if another runner holds it.
#[derive(Debug, Default)]
pub(crate) struct UpkeepDuty(Mutex<Option<Instant>>);

impl UpkeepDuty {
    /// Whether this process holds the duty.
    pub(crate) fn is_held(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    fn until(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, until: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl Worker {
    /// Takes or renews the duty, and returns whether this process holds it.
    pub(crate) async fn hold_upkeep(&self) -> Result<bool, holdfast_session::Error> {
        let lease = (self.config.sweep * MISSED_SWEEPS).max(MIN_LEASE);
        let began = Instant::now();
        let is_held = self.sessions.hold_upkeep(self.id, lease).await?;
        // A renewal is only written in the second half of the lease.
        self.upkeep.set(is_held.then(|| began + lease / 2));
        Ok(is_held)
    }

    /// Gives the duty up, so that another runner need not wait for the end of the lease.
    pub(crate) async fn leave_upkeep(&self) -> Result<(), holdfast_session::Error> {
        if !self.upkeep.is_held() {
            return Ok(());
        }
        self.upkeep.set(None);
        self.sessions.leave_upkeep(self.id).await
    }
}
