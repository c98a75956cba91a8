//! Inbound updates: classified, and handed over to the gateway.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use holdfast_proto::gateway::v1::{AcceptRequest, AcceptResponse};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, info_span, warn};

use super::{
    CHANNEL, Telegram,
    client::{CallError, Outgoing},
    judge::{Verdict, judge},
    wire::{BotIdentity, Update},
};
use crate::{ingest::AcceptError, meter};

/// Minimum interval between two notices to the same rejected sender.
const REFUSAL_NOTICE_INTERVAL: Duration = Duration::from_secs(3600);

/// Maximum number of rejected senders that are remembered. Beyond it no notices are sent.
const MAX_REMEMBERED_SENDERS: usize = 10_000;

/// Result of handling an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateResult {
    /// The update is finished: the platform may forget it.
    Done,
    /// The update is not finished: the platform must send it again.
    SendAgain,
}

/// Retry behaviour towards the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryMode {
    /// One attempt: Telegram calls again by itself.
    Once,
    /// Retries: all later updates of the bot wait for this one.
    UntilDecided,
}

impl Telegram {
    /// Returns the identity of the bot. Asks Telegram until it has answered once, then uses the
    /// cached answer.
    ///
    /// # Errors
    ///
    /// If Telegram does not answer.
    pub(super) async fn me(&self) -> Result<&BotIdentity, CallError> {
        self.me.get_or_try_init(|| self.bot.get_me()).await
    }

    /// Whether a caller of the webhook is Telegram.
    #[must_use]
    pub fn is_called_by(&self, secret: &str) -> bool {
        let ours = self.webhook_secret.as_ref();
        ours.is_some_and(|ours| {
            bool::from(ours.expose_secret().as_bytes().ct_eq(secret.as_bytes()))
        })
    }

    /// Handles an update that Telegram posted.
    pub async fn handle_posted(&self, update: Value) -> UpdateResult {
        if self.me().await.is_err() {
            return UpdateResult::SendAgain;
        }
        self.handle(update, RetryMode::Once).await
    }

    /// Handles an update. [`me`](Self::me) must have succeeded before.
    pub(super) async fn handle(&self, update: Value, patience: RetryMode) -> UpdateResult {
        let id = update["update_id"].as_i64().unwrap_or_default();
        let span = info_span!(
            "update",
            channel = CHANNEL,
            tenant.id = %self.tenant,
            account.id = %self.id,
            update.id = id,
        );
        self.judge_and_handle(update, id, patience).instrument(span).await
    }

    async fn judge_and_handle(&self, update: Value, id: i64, patience: RetryMode) -> UpdateResult {
        let Some(me) = self.me.get() else { return UpdateResult::SendAgain };
        let update: Update = match serde_json::from_value::<Update>(update) {
            Ok(update) => update,
            Err(_) => {
                // A refusal would make Telegram send it forever. Its content must not be logged.
                warn!(update.id = id, "an update is not understood and is passed over");
                return done("malformed");
            }
        };
        let press = update.callback_query.as_ref().map(|press| press.id.clone());
        let verdict = judge(update, &self.settings, me);
        if let Some(press) = press {
            self.acknowledge(press, &verdict);
        }
        match verdict {
            Verdict::Ignore(why) => {
                debug!(why, "an update is nothing to us");
                done("ignored")
            }
            Verdict::Refuse { chat, sender } => {
                self.refuse(chat, &sender).await;
                done("not_allowed")
            }
            Verdict::Take(request) => {
                let mut request = AcceptRequest {
                    account_id: self.id.to_string(),
                    channel: CHANNEL.to_owned(),
                    account: self.name.clone(),
                    ..*request
                };
                self.fetch_files(&mut request).await;
                self.offer(request, patience).await
            }
        }
    }

    async fn offer(&self, request: AcceptRequest, patience: RetryMode) -> UpdateResult {
        let (chat, thread) = (request.reply_chat.parse().ok(), request.reply_thread.parse().ok());
        let silent = request.silent;
        let offered = match patience {
            RetryMode::Once => self.ingest.accept(self.tenant, request).await,
            RetryMode::UntilDecided => self.ingest.accept_until_decided(self.tenant, request).await,
        };
        match offered {
            Ok(AcceptResponse { duplicate: true, .. }) | Err(AcceptError::KeyReused(_)) => {
                done("duplicate")
            }
            Ok(_) => {
                if let Some(chat) = chat.filter(|_| !silent) {
                    self.show_typing(chat, thread);
                }
                done(if silent { "silent" } else { "accepted" })
            }
            Err(refusal @ (AcceptError::Unavailable(_) | AcceptError::Forbidden(_))) => {
                debug!(%refusal, "an update waits at telegram");
                meter::update(CHANNEL, "unavailable");
                UpdateResult::SendAgain
            }
            Err(AcceptError::Full { .. } | AcceptError::GatewayFailed(_))
                if patience == RetryMode::Once =>
            {
                meter::update(CHANNEL, "unavailable");
                UpdateResult::SendAgain
            }
            Err(refusal) => {
                warn!(%refusal, "an update cannot be taken, and its sender is told");
                if let Some(chat) = chat.filter(|_| !silent) {
                    self.notify_sender(
                        chat,
                        thread,
                        "This message could not be taken in. Please try again later.",
                    )
                    .await;
                }
                done("rejected")
            }
        }
    }

    /// Confirms a button press to Telegram, in the background.
    fn acknowledge(&self, press: String, verdict: &Verdict) {
        let text = match verdict {
            Verdict::Take(_) => "",
            Verdict::Refuse { .. } => "You may not.",
            Verdict::Ignore(_) => "This button does nothing any more.",
        };
        let bot = self.bot.clone();
        tokio::spawn(async move {
            if let Err(error) = bot.answer_callback_query(&press, text).await {
                debug!(%error, "a button was not answered");
            }
        });
    }

    /// Shows the typing indicator, in the background.
    fn show_typing(&self, chat: i64, thread: Option<i64>) {
        let bot = self.bot.clone();
        tokio::spawn(async move {
            if let Err(error) = bot.send_typing(chat, thread).await {
                debug!(%error, "typing was not shown");
            }
        });
    }

    /// Tells rejected senders their id, so that the owner can allow them; rarely, and without
    /// retries.
    async fn refuse(&self, chat: i64, sender: &str) {
        if self.refusals.is_due(sender) {
            let text = format!(
                "You are not allowed to write to this assistant. \
                 Its owner can allow you by your id: {sender}"
            );
            self.notify_sender(chat, None, &text).await;
        }
    }

    async fn notify_sender(&self, chat: i64, thread: Option<i64>, text: &str) {
        let chat = chat.to_string();
        let message =
            Outgoing { chat: &chat, thread, reply_to: None, text, html: false, buttons: &[] };
        if let Err(error) = self.bot.send_message(message).await {
            debug!(%error, "a sender was not told");
        }
    }
}

fn done(outcome: &'static str) -> UpdateResult {
    meter::update(CHANNEL, outcome);
    UpdateResult::Done
}

/// Rejected senders that got a notice, and when.
#[derive(Debug, Default)]
pub(super) struct RefusalNotices(Mutex<HashMap<String, Instant>>);

impl RefusalNotices {
    fn is_due(&self, sender: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(sender).is_some_and(|at| at.elapsed() < REFUSAL_NOTICE_INTERVAL) {
            return false;
        }
        if told.len() >= MAX_REMEMBERED_SENDERS {
            told.retain(|_, at| at.elapsed() < REFUSAL_NOTICE_INTERVAL);
        }
        if told.len() >= MAX_REMEMBERED_SENDERS {
            return false;
        }
        told.insert(sender.to_owned(), Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_told_once_an_hour() {
        let refusals = RefusalNotices::default();

        assert!(refusals.is_due("7"));
        assert!(!refusals.is_due("7"));
        assert!(refusals.is_due("8"));
        tokio::time::advance(REFUSAL_NOTICE_INTERVAL).await;
        assert!(refusals.is_due("7"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_strangers_is_not_remembered_for_ever() {
        let refusals = RefusalNotices::default();
        for n in 0..MAX_REMEMBERED_SENDERS {
            assert!(refusals.is_due(&n.to_string()));
        }

        assert!(!refusals.is_due("one more"));
        tokio::time::advance(REFUSAL_NOTICE_INTERVAL).await;
        assert!(refusals.is_due("one more"));
        assert_eq!(refusals.0.lock().unwrap().len(), 1);
    }
}
