//! Connections of accounts to their platforms: one for each account, however many bridges run.
//!
//! A lease in Redis decides which bridge connects. The lease is an optimisation, not a lock: two
//! connections do no harm, since the gateway accepts each message once, but many platforms end one
//! when the other begins.
//!
//! **What can go wrong.** Redis is unavailable: the last holder goes on; the others wait longer than
//! a lease lasts and then connect too, and growing delays after conflicts leave one of them. The
//! process dies: another bridge takes over when the lease has expired.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_kit::Backoff;
use holdfast_lock::{Lease, Locks};
use holdfast_types::AccountId;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{channel::ChannelAccount, connection::Disconnected};

/// Lifetime of the lease without renewal.
const LEASE_TTL: Duration = Duration::from_secs(15);

/// Interval at which a holder without a lease checks whether Redis is available again.
const REDIS_CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Delays after a connection has ended or could not be made.
const LOST_BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));

/// Delays after another connection of the same account has ended ours.
const CONFLICT_BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));

/// Delay after the platform has refused the credentials: only their owner can help.
const REJECTED_DELAY: Duration = Duration::from_secs(60);

/// Duration after which a connection counts as stable: the delays begin anew.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Time that a connection has to say goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Accounts whose connection this bridge holds.
#[derive(Debug, Default)]
pub struct Holders(Mutex<HashSet<AccountId>>);

impl Holders {
    /// Notes that the connection is held here, until the result is dropped.
    pub(crate) fn hold(self: &Arc<Self>, id: AccountId) -> HeldConnection {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        HeldConnection { holders: Arc::clone(self), id }
    }

    pub(crate) fn is_held(&self, id: AccountId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }
}

#[derive(Debug)]
pub(crate) struct HeldConnection {
    holders: Arc<Holders>,
    id: AccountId,
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        self.holders.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// Keeps the connection of one account.
#[derive(Debug)]
pub struct ConnectionKeeper {
    account: Arc<dyn ChannelAccount>,
    locks: Locks,
    holders: Arc<Holders>,
    /// Whether this bridge had the permit when it was last asked for.
    held_last: bool,
}

enum Permit {
    Leased(Lease),
    /// Redis is unavailable.
    Unguarded,
}

impl ConnectionKeeper {
    pub fn new(account: Arc<dyn ChannelAccount>, locks: Locks, holders: Arc<Holders>) -> Self {
        Self { account, locks, holders, held_last: false }
    }

    /// Connects whenever permitted, until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let served = self.account.account();
        let (id, name) = (served.id, format!("bot:{}:{}", served.tenant, served.id));
        loop {
            let permit = tokio::select! {
                () = stop.cancelled() => return,
                permit = self.wait_for_permit(&name) => permit,
            };
            self.held_last = true;
            let held = self.holders.hold(id);
            match permit {
                Permit::Leased(lease) => {
                    debug!(account.id = %id, "connecting");
                    let is_stopped = tokio::select! {
                        () = lease.lost() => false,
                        () = self.reconnect(&stop) => true,
                    };
                    drop(held);
                    if is_stopped {
                        // Release the lease, so that another bridge need not wait until it expires.
                        if let Err(error) = lease.release().await {
                            debug!(%error, "the lease of a connection was not given back");
                        }
                        return;
                    }
                }
                Permit::Unguarded => {
                    let locks = self.locks.clone();
                    tokio::select! {
                        () = wait_for_redis(&locks) => {}
                        () = self.reconnect(&stop) => return,
                    }
                }
            }
        }
    }

    /// Waits for the permission to connect.
    async fn wait_for_permit(&mut self, name: &str) -> Permit {
        let mut alone_since = None;
        loop {
            match self.locks.try_acquire(name, LEASE_TTL).await {
                Ok(Some(lease)) => return Permit::Leased(lease),
                Ok(None) => {
                    self.held_last = false;
                    alone_since = None;
                    self.account.account().leave_status_to_others();
                    sleep(LEASE_TTL / 3).await;
                }
                Err(error) => {
                    let since = *alone_since.get_or_insert_with(Instant::now);
                    // The last holder goes on at once; others wait until its lease would have
                    // expired.
                    let patience = if self.held_last {
                        Duration::ZERO
                    } else {
                        LEASE_TTL + LEASE_TTL.mul_f64(rand::random())
                    };
                    if since.elapsed() >= patience {
                        debug!(%error, account.id = %self.account.account().id, "connecting without a lease");
                        return Permit::Unguarded;
                    }
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Connects again and again, with growing delays, until `stop` is cancelled.
    async fn reconnect(&self, stop: &CancellationToken) {
        let served = self.account.account();
        served.report_connecting();
        let mut failures = 0_u32;
        while !stop.is_cancelled() {
            let began = Instant::now();
            let Some(mut connection) = Arc::clone(&self.account).connect(stop.clone()) else {
                return stop.cancelled().await;
            };
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = stop.cancelled() => {
                    let _ = timeout(GOODBYE_TIMEOUT, connection).await;
                    return;
                }
            };
            if began.elapsed() >= STABLE_AFTER {
                failures = 0;
            }
            let pause = pause_after(&ended, failures);
            let is_first = failures == 0;
            failures = failures.saturating_add(1);
            match ended {
                Disconnected::Stopped => return,
                Disconnected::Lost { reason } => {
                    if is_first {
                        warn!(account.id = %served.id, channel = served.channel, "a connection to a platform is lost; trying again");
                    }
                    served.report_failing(reason);
                }
                Disconnected::Rejected { reason } => {
                    if is_first {
                        warn!(account.id = %served.id, channel = served.channel, "a platform refuses an account; its status says why");
                    }
                    served.report_failing(reason);
                }
                Disconnected::Conflict { reason } => {
                    if is_first {
                        info!(account.id = %served.id, channel = served.channel, "another program uses the same account; waiting");
                    }
                    served.report_failing(reason);
                }
                Disconnected::RetryAfter { .. } => {
                    served.report_failing("the platform asks to wait before the next attempt");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }
}

fn pause_after(ended: &Disconnected, failures: u32) -> Duration {
    match ended {
        Disconnected::Stopped => Duration::ZERO,
        Disconnected::Lost { .. } => LOST_BACKOFF.base + LOST_BACKOFF.delay(failures),
        Disconnected::Conflict { .. } => CONFLICT_BACKOFF.base + CONFLICT_BACKOFF.delay(failures),
        Disconnected::Rejected { .. } => REJECTED_DELAY,
        Disconnected::RetryAfter { after } => LOST_BACKOFF.base + *after,
    }
}

async fn wait_for_redis(locks: &Locks) {
    loop {
        sleep(REDIS_CHECK_INTERVAL).await;
        // Any answer shows that Redis is available, whether or not the lease was free.
        if locks.try_acquire("bridge:probe", Duration::from_secs(1)).await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_pause_and_it_is_never_long_for_a_lost_connection() {
        for failures in [0, 1, 5, 1000] {
            let pause = pause_after(&Disconnected::lost("x"), failures);
            assert!(pause >= LOST_BACKOFF.base && pause <= Duration::from_secs(61), "{pause:?}");
        }
        let after = Duration::from_secs(90);
        assert!(pause_after(&Disconnected::RetryAfter { after }, 0) > after);
        assert_eq!(pause_after(&Disconnected::rejected("x"), 0), REJECTED_DELAY);
    }
}
