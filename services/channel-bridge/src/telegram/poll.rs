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
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Telegram, UpdateResult, client::CallError, inbound::RetryMode};

/// Lifetime of the lease without renewal.
const LEASE_TTL: Duration = Duration::from_secs(15);

/// Interval at which a poller without a lease checks whether Redis is available again.
const REDIS_CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Minimum interval between two polls without progress: some servers answer at once, with nothing.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Delays after a failed call.
const FAILURE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// Delays after another poller's call has ended ours.
const CONFLICT_BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));

/// Delay after Telegram has rejected the token: only its owner can help.
const INVALID_TOKEN_DELAY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Poller {
    telegram: Arc<Telegram>,
    locks: Locks,
    wait: Duration,
    /// Id after that of the last handled update.
    offset: Option<i64>,
    /// Whether this poller polled last, as far as it knows.
    polled_last: bool,
}

/// Permission to poll.
enum PollPermit {
    Leased(Lease),
    /// Redis is unavailable: polling without a lease.
    Unguarded,
}

impl Poller {
    /// Builds a poller whose calls wait up to `wait` for an update.
    #[must_use]
    pub const fn new(telegram: Arc<Telegram>, locks: Locks, wait: Duration) -> Self {
        Self { telegram, locks, wait, offset: None, polled_last: false }
    }

    /// Polls whenever permitted, until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let name = format!("bot:{}:{}", self.telegram.tenant, self.telegram.id);
        loop {
            let turn = tokio::select! {
                () = stop.cancelled() => return,
                turn = self.wait_for_permit(&name) => turn,
            };
            self.polled_last = true;
            match turn {
                PollPermit::Leased(lease) => {
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
                PollPermit::Unguarded => {
                    let locks = self.locks.clone();
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = wait_for_redis(&locks) => {}
                        () = self.poll() => {}
                    }
                }
            }
        }
    }

    /// Waits for the permission to poll.
    async fn wait_for_permit(&mut self, name: &str) -> PollPermit {
        let mut alone_since = None;
        loop {
            match self.locks.try_acquire(name, LEASE_TTL).await {
                Ok(Some(lease)) => return PollPermit::Leased(lease),
                Ok(None) => {
                    self.polled_last = false;
                    alone_since = None;
                    sleep(LEASE_TTL / 3).await;
                }
                Err(error) => {
                    let since = *alone_since.get_or_insert_with(Instant::now);
                    // The last holder goes on at once; others wait until its lease would have
                    // expired.
                    let patience = if self.polled_last {
                        Duration::ZERO
                    } else {
                        LEASE_TTL + LEASE_TTL.mul_f64(rand::random())
                    };
                    if since.elapsed() >= patience {
                        debug!(%error, account.id = %self.telegram.id, "polling without a lease");
                        return PollPermit::Unguarded;
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
            let (began, before) = (Instant::now(), self.offset);
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
                        if telegram.handle(update, RetryMode::UntilDecided).await
                            == UpdateResult::Done
                        {
                            self.offset = Some(id + 1);
                        } else {
                            break;
                        }
                    }
                    if self.offset == before {
                        sleep_until(began + MIN_POLL_INTERVAL).await;
                    }
                }
                Err(error) => {
                    self.pause_after(&telegram, error, failures).await;
                    failures += 1;
                }
            }
        }
    }

    async fn pause_after(&self, telegram: &Telegram, error: CallError, failures: u32) {
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
                FAILURE_BACKOFF.delay(failures)
            }
            CallError::Refused { status: 409, .. } => {
                if is_first {
                    info!(account.id = %telegram.id, "another polls the same bot; waiting");
                }
                CONFLICT_BACKOFF.base + CONFLICT_BACKOFF.delay(failures)
            }
            CallError::Refused { status: 401 | 403 | 404, .. } => {
                if is_first {
                    warn!(account.id = %telegram.id, "telegram does not know the bot: is its token right?");
                }
                INVALID_TOKEN_DELAY
            }
            CallError::NotSent(_) | CallError::Unsure(_) | CallError::Refused { .. } => {
                if is_first {
                    warn!(%error, account.id = %telegram.id, "cannot poll; trying again");
                }
                FAILURE_BACKOFF.base + FAILURE_BACKOFF.delay(failures)
            }
        };
        sleep(pause).await;
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
                    CallError::Refused { .. } => INVALID_TOKEN_DELAY,
                    CallError::NotSent(_) | CallError::Unsure(_) => {
                        FAILURE_BACKOFF.base + FAILURE_BACKOFF.delay(failures)
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
