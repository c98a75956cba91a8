//! Polling of bots: one poller for each bot, however many bridges run.
//!
//! A lease in Redis decides which bridge polls. The lease is an optimisation, not a lock: two
//! concurrent pollers do no harm, since the gateway accepts each message once. But Telegram ends
//! one poll with 409 when the other begins, so it would be slow and noisy.
//!
//! **What can go wrong.** Redis is unavailable: the last poller goes on; the others wait longer
//! than a lease lasts and then poll too, and 409 with growing delays leaves one of them. The
//! gateway is unavailable: updates wait at Telegram, which keeps them for a day; the offset moves
//! past an update only once the gateway has it, or it is dropped. The process dies between the two:
//! Telegram sends the update again, and the gateway recognises it.

use std::{sync::Arc, time::Duration};

use holdfast_kit::Backoff;
use holdfast_lock::{Lease, Locks};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Taken, Telegram, client::CallError, inbound::Patience};

/// Lifetime of the lease without renewal.
const LEASE: Duration = Duration::from_secs(15);

/// Interval at which a poller without a lease checks whether Redis is available again.
const LOOK: Duration = Duration::from_secs(3);

/// Delays after a failed call.
const FAILED: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// Delays after another poller's call has ended ours.
const CONFLICT: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));

/// Delay after Telegram has rejected the token: only its owner can help.
const REVOKED: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Poller {
    telegram: Arc<Telegram>,
    locks: Locks,
    wait: Duration,
    /// Id after that of the last handled update.
    offset: Option<i64>,
    /// Whether this poller polled last, as far as it knows.
    is_ours: bool,
}

/// Permission to poll.
enum Turn {
    Leased(Lease),
    /// Redis is unavailable: polling without a lease.
    Unguarded,
}

impl Poller {
    /// Builds a poller whose calls wait up to `wait` for an update.
    #[must_use]
    pub const fn new(telegram: Arc<Telegram>, locks: Locks, wait: Duration) -> Self {
        Self { telegram, locks, wait, offset: None, is_ours: false }
    }

    /// Polls whenever permitted, until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let name = format!("bot:{}:{}", self.telegram.tenant, self.telegram.id);
        loop {
            let turn = tokio::select! {
                () = stop.cancelled() => return,
                turn = self.turn(&name) => turn,
            };
            self.is_ours = true;
            match turn {
                Turn::Leased(lease) => {
                    debug!(account.id = %self.telegram.id, "polling");
                    let is_stopped = tokio::select! {
                        () = stop.cancelled() => true,
                        () = lease.lost() => false,
                        () = self.poll() => false,
                    };
                    if is_stopped {
                        // Release the lease, so that another bridge need not wait until it expires.
                        if let Err(error) = lease.release().await {
                            debug!(%error, "a poller's lease was not given back");
                        }
                        return;
                    }
                }
                Turn::Unguarded => {
                    let locks = self.locks.clone();
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = redis_is_back(&locks) => {}
                        () = self.poll() => {}
                    }
                }
            }
        }
    }

    /// Waits for the permission to poll.
    async fn turn(&mut self, name: &str) -> Turn {
        let mut alone_since = None;
        loop {
            match self.locks.try_acquire(name, LEASE).await {
                Ok(Some(lease)) => return Turn::Leased(lease),
                Ok(None) => {
                    self.is_ours = false;
                    alone_since = None;
                    sleep(LEASE / 3).await;
                }
                Err(error) => {
                    let since = *alone_since.get_or_insert_with(Instant::now);
                    // The last holder goes on at once; others wait until its lease would have
                    // expired.
                    let patience = if self.is_ours {
                        Duration::ZERO
                    } else {
                        LEASE + LEASE.mul_f64(rand::random())
                    };
                    if since.elapsed() >= patience {
                        debug!(%error, account.id = %self.telegram.id, "polling without a lease");
                        return Turn::Unguarded;
                    }
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Polls until dropped.
    async fn poll(&mut self) {
        let telegram = Arc::clone(&self.telegram);
        let mut failures = 0;
        loop {
            let polled = match telegram.me().await {
                Ok(_) => telegram.bot.get_updates(self.offset, self.wait).await,
                Err(error) => Err(error),
            };
            match polled {
                Ok(updates) => {
                    failures = 0;
                    for update in updates {
                        let Some(id) = update["update_id"].as_i64() else { continue };
                        // The offset moves only here, so an unfinished update is delivered again.
                        if telegram.take(update, Patience::Long).await == Taken::Done {
                            self.offset = Some(id + 1);
                        } else {
                            break;
                        }
                    }
                }
                Err(error) => {
                    self.after(&telegram, error, failures).await;
                    failures += 1;
                }
            }
        }
    }

    async fn after(&self, telegram: &Telegram, error: CallError, failures: u32) {
        let is_first = failures == 0;
        let pause = match &error {
            CallError::RateLimited { after } => *after,
            CallError::Refused { status: 409, description, .. }
                if description.contains("webhook") =>
            {
                info!(account.id = %telegram.id, "removing the bot's webhook: its account is polled");
                if let Err(error) = telegram.bot.delete_webhook().await {
                    debug!(%error, "the webhook was not removed");
                }
                FAILED.delay(failures)
            }
            CallError::Refused { status: 409, .. } => {
                if is_first {
                    info!(account.id = %telegram.id, "another polls the same bot; waiting");
                }
                CONFLICT.base + CONFLICT.delay(failures)
            }
            CallError::Refused { status: 401 | 403 | 404, .. } => {
                if is_first {
                    warn!(account.id = %telegram.id, "telegram does not know the bot: is its token right?");
                }
                REVOKED
            }
            CallError::NotSent(_) | CallError::Unsure(_) | CallError::Refused { .. } => {
                if is_first {
                    warn!(%error, account.id = %telegram.id, "cannot poll; trying again");
                }
                FAILED.base + FAILED.delay(failures)
            }
        };
        sleep(pause).await;
    }
}

async fn redis_is_back(locks: &Locks) {
    loop {
        sleep(LOOK).await;
        // Any answer shows that Redis is available, whether or not the lease was free.
        if locks.try_acquire("bridge:probe", Duration::from_secs(1)).await.is_ok() {
            return;
        }
    }
}

/// Registers the webhook at Telegram, with retries.
pub async fn register(telegram: Arc<Telegram>, url: String, stop: CancellationToken) {
    let Some(secret) = &telegram.webhook_secret else { return };
    for failures in 0_u32.. {
        let pause = match telegram.bot.set_webhook(&url, secret).await {
            Ok(()) => return info!(account.id = %telegram.id, "telegram will call the bridge"),
            Err(error) => {
                if failures == 0 {
                    warn!(%error, account.id = %telegram.id, "cannot register the webhook; trying again");
                }
                match error {
                    CallError::RateLimited { after } => after,
                    CallError::Refused { .. } => REVOKED,
                    CallError::NotSent(_) | CallError::Unsure(_) => {
                        FAILED.base + FAILED.delay(failures)
                    }
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}
