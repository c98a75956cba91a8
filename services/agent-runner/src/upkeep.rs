//! Duty of upkeep, as this process knows it: one runner at a time sweeps, measures queues, prunes
//! and deletes tenants. With logins of pools, that is one runner of each pool.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use holdfast_session::{Error, Sessions};
use holdfast_types::RunnerId;

/// Sweeps that the owner of the duty may miss before another runner takes it.
const MISSED_SWEEPS: u32 = 3;

/// Minimum lease of the duty, for short sweep intervals.
const MIN_LEASE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct UpkeepDuty {
    sessions: Sessions,
    runner: RunnerId,
    lease: Duration,
    /// Until when this process surely holds the duty; `None` if another runner does.
    until: Mutex<Option<Instant>>,
}

impl UpkeepDuty {
    /// Duty of a runner that sweeps at this interval.
    pub(crate) fn new(sessions: Sessions, runner: RunnerId, sweep: Duration) -> Self {
        let lease = (sweep * MISSED_SWEEPS).max(MIN_LEASE);
        Self { sessions, runner, lease, until: Mutex::default() }
    }

    /// Whether this process holds the duty.
    pub(crate) fn is_held(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Takes or renews the duty, and returns whether this process holds it.
    pub(crate) async fn hold(&self) -> Result<bool, Error> {
        let began = Instant::now();
        let is_held = self.sessions.upkeep().hold(self.runner, self.lease).await?;
        // A renewal is only written in the second half of the lease.
        self.set(is_held.then(|| began + self.lease / 2));
        Ok(is_held)
    }

    /// Gives the duty up, so that another runner need not wait for the end of the lease.
    pub(crate) async fn leave(&self) -> Result<(), Error> {
        if !self.is_held() {
            return Ok(());
        }
        self.set(None);
        self.sessions.upkeep().leave(self.runner).await
    }

    fn set(&self, until: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}
