//! Polling of a bot, and the registration of its webhook.
//!
//! **What can go wrong.** The gateway is unavailable: updates wait at Telegram, which keeps them for
//! a day; the offset moves past an update only once the gateway has it, or it is dropped. The
//! process dies between the two: Telegram sends the update again, and the gateway recognises it. Two
//! bridges poll at once: Telegram ends one poll with 409.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{Telegram, albums, client::CallError, wire::BotIdentity};
use crate::{
    connection::{Disconnected, MIN_POLL_INTERVAL},
    inbound::{RetryMode, UpdateResult},
};

/// Time in which the files of an album arrive.
const ALBUM_DELAY: Duration = Duration::from_millis(500);

impl Telegram {
    /// Polls until a call fails.
    pub(super) async fn poll(self: &Arc<Self>) -> Disconnected {
        let me = match self.me().await {
            Ok(me) => me,
            Err(error) => return disconnected(&error),
        };
        self.register_menu();
        // The first poll does not wait, so that it is soon known whether this bot may be polled.
        let (mut wait, mut had_webhook) = (Duration::ZERO, false);
        loop {
            let (began, before) = (Instant::now(), self.offset());
            match self.next_updates(before, wait).await {
                Ok(updates) => {
                    if wait.is_zero() {
                        self.report_identity(me);
                        wait = self.poll_timeout;
                    }
                    for update in albums::merge(updates) {
                        let Some(id) = update["update_id"].as_i64() else { continue };
                        // The offset moves only here, so an unfinished update is delivered again.
                        match self.handle(update, RetryMode::UntilDecided).await {
                            UpdateResult::Done => self.set_offset(id + 1),
                            UpdateResult::SendAgain => break,
                        }
                    }
                    if self.offset() == before {
                        sleep_until(began + MIN_POLL_INTERVAL).await;
                    }
                }
                Err(CallError::Refused { status: 409, description, .. })
                    if description.contains("webhook") && !had_webhook =>
                {
                    had_webhook = true;
                    info!(account.id = %self.account.id, "removing the bot's webhook: its account is polled");
                    if let Err(error) = self.bot.delete_webhook().await {
                        debug!(%error, "the webhook was not removed");
                    }
                }
                Err(error) => return disconnected(&error),
            }
        }
    }

    /// Polls once; if an album may not be complete, once more a moment later.
    async fn next_updates(
        &self,
        offset: Option<i64>,
        wait: Duration,
    ) -> Result<Vec<Value>, CallError> {
        let updates = self.bot.get_updates(offset, wait).await?;
        if !albums::is_open(&updates) {
            return Ok(updates);
        }
        sleep(ALBUM_DELAY).await;
        // The same offset confirms nothing, so the updates come again, with those that follow.
        let more = self.bot.get_updates(offset, Duration::ZERO).await?;
        Ok(if more.len() > updates.len() { more } else { updates })
    }

    /// Registers the webhook at Telegram, and waits until `stop` is cancelled.
    pub(super) async fn register(self: Arc<Self>, stop: CancellationToken) -> Disconnected {
        let (Some(url), Some(secret)) = (&self.webhook_url, &self.webhook_secret) else {
            return Disconnected::rejected("mode `webhook` needs `secrets.webhook_secret`");
        };
        let me = match self.me().await {
            Ok(me) => me,
            Err(error) => return disconnected(&error),
        };
        if let Err(error) = self.bot.set_webhook(url, secret).await {
            return disconnected(&error);
        }
        info!(account.id = %self.account.id, "telegram will call the bridge");
        self.report_identity(me);
        self.register_menu();
        stop.cancelled().await;
        Disconnected::Stopped
    }

    fn report_identity(&self, me: &BotIdentity) {
        self.account.report_working(format!("signed in as @{}", me.username));
    }

    fn offset(&self) -> Option<i64> {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_offset(&self, offset: i64) {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = Some(offset);
    }
}

fn disconnected(error: &CallError) -> Disconnected {
    match error {
        CallError::RateLimited { after } => Disconnected::RetryAfter { after: *after },
        CallError::Refused { status: 409, .. } => Disconnected::Conflict {
            reason: "another program polls the same bot: stop it, or use another token".to_owned(),
        },
        CallError::Refused { status: 401 | 403 | 404, .. } => Disconnected::rejected(
            "telegram does not know the bot: its token was revoked, or is wrong",
        ),
        CallError::NotSent(_) | CallError::Unsure(_) | CallError::Refused { .. } => {
            Disconnected::lost(error.to_string())
        }
    }
}
