//! One poller for each bot, whatever number of bridges there is.
//!
//! A lease in Redis says which bridge polls. It is no lock: two that poll at the
//! same time do no harm, since what both take in is one message to the gateway.
//! But Telegram ends one's call with 409 when the other's begins, so it would be
//! slow and noisy.
//!
//! **What can go wrong.** Redis is gone: who polled goes on, who did not waits
//! longer than a lease lasts and then polls too, and 409 with growing pauses
//! settles who is first. The gateway is away: updates wait at Telegram, which
//! keeps them for a day; the offset moves past an update only once it is the
//! gateway's, or nobody's. The process dies between the two: Telegram sends the
//! update again, and the gateway knows it.

use std::{sync::Arc, time::Duration};

use holdfast_kit::Backoff;
use holdfast_lock::{Lease, Locks};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Taken, Telegram, client::CallError, inbound::Patience};

/// How long a lease outlives its holder.
const LEASE: Duration = Duration::from_secs(15);

/// How often one that polls without Redis looks whether it is back.
const LOOK: Duration = Duration::from_secs(3);

/// After a call that came to nothing.
const FAILED: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// After another's call has ended ours.
const CONFLICT: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));

/// After Telegram has said that the token is nobody's: only its owner can help.
const REVOKED: Duration = Duration::from_secs(60);

/// The poller of one bot.
#[derive(Debug)]
pub struct Poller {
    telegram: Arc<Telegram>,
    locks: Locks,
    wait: Duration,
    /// The next update that was not dealt with.
    offset: Option<i64>,
    /// It polled last, as far as it knows.
    is_ours: bool,
}

/// By what right it polls.
enum Turn {
    Leased(Lease),
    /// Redis cannot be asked.
    Unguarded,
}

impl Poller {
    /// A poller whose calls wait up to `wait` for an update.
    #[must_use]
    pub const fn new(telegram: Arc<Telegram>, locks: Locks, wait: Duration) -> Self {
        Self { telegram, locks, wait, offset: None, is_ours: false }
    }

    /// Polls whenever it is its turn, until it is told to stop.
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
                        // Another need not wait for it to lapse.
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

    /// Waits for its turn.
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
                    // Who held it may hold on; others wait until they would have seen it lapse.
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
                        // Nothing else moves the offset: what is not dealt with comes again.
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
        // A lease of its own, for its own sake: whether it is had says nothing.
        if locks.try_acquire("bridge:probe", Duration::from_secs(1)).await.is_ok() {
            return;
        }
    }
}

/// Has Telegram call us, and tries again until it says that it will.
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
