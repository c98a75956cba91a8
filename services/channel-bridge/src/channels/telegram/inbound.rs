//! Inbound updates: classified, and handed over to the gateway.

use std::sync::Arc;

use axum::{
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use tracing::{Instrument as _, debug, info_span, warn};

use super::{
    Telegram,
    client::{CallError, Outgoing},
    judge::judge,
    wire::{BotIdentity, Update},
};
use crate::{
    channel::{ChannelAccount, Place},
    http::{InboundRequest, error_response, unauthorized},
    inbound::{self, RetryMode, UpdateResult, Verdict},
};

/// Maximum size of an update's body, in bytes: a text of the gateway's limit, and its envelope.
const MAX_UPDATE_BYTES: usize = 512 * 1024;

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
    fn is_called_by(&self, secret: &str) -> bool {
        let ours = self.webhook_secret.as_ref();
        ours.is_some_and(|ours| {
            bool::from(ours.expose_secret().as_bytes().ct_eq(secret.as_bytes()))
        })
    }

    /// Handles an update that Telegram posted.
    pub(super) async fn receive_update(self: Arc<Self>, mut request: InboundRequest) -> Response {
        if !self.is_called_by(request.header("x-telegram-bot-api-secret-token")) {
            return unauthorized(self.account.channel);
        }
        let body = match request.read_body(MAX_UPDATE_BYTES).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        // Invalid JSON becomes `null`, which is dropped later: a refusal would make Telegram send it
        // forever.
        let update: Value = serde_json::from_slice(&body).unwrap_or_default();
        let handled = match self.me().await {
            Ok(_) => self.handle(update, RetryMode::Once).await,
            Err(_) => UpdateResult::SendAgain,
        };
        match handled {
            UpdateResult::Done => StatusCode::OK.into_response(),
            UpdateResult::SendAgain => error_response(StatusCode::SERVICE_UNAVAILABLE, "not now"),
        }
    }

    /// Handles an update. [`me`](Self::me) must have succeeded before.
    pub(super) async fn handle(self: &Arc<Self>, update: Value, mode: RetryMode) -> UpdateResult {
        let id = update["update_id"].as_i64().unwrap_or_default();
        let span = info_span!(
            "update",
            channel = self.account.channel,
            tenant.id = %self.account.tenant,
            account.id = %self.account.id,
            update.id = id,
        );
        self.judge_and_handle(update, id, mode).instrument(span).await
    }

    async fn judge_and_handle(
        self: &Arc<Self>,
        update: Value,
        id: i64,
        mode: RetryMode,
    ) -> UpdateResult {
        let Some(me) = self.me.get() else { return UpdateResult::SendAgain };
        let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(self);
        let update: Update = match serde_json::from_value::<Update>(update) {
            Ok(update) => update,
            Err(_) => {
                // A refusal would make Telegram send it forever. Its content must not be logged.
                warn!(update.id = id, "an update is not understood and is passed over");
                return inbound::finish(&account, "malformed");
            }
        };
        let press = update.callback_query.as_ref().map(|press| press.id.clone());
        let mut verdict = judge(update, &self.settings, me);
        if let Some(press) = press {
            self.acknowledge(press, &verdict);
        }
        if let Verdict::Take(request) = &mut verdict {
            self.fetch_files(request).await;
        }
        inbound::handle(&account, verdict, mode).await
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

    /// Shows the typing indicator.
    pub(super) async fn send_typing(&self, place: &Place) {
        let Ok(chat) = place.chat.parse() else { return };
        let thread = place.thread.as_deref().and_then(|thread| thread.parse().ok());
        if let Err(error) = self.bot.send_typing(chat, thread).await {
            debug!(%error, "typing was not shown");
        }
    }

    pub(super) async fn notify_sender(&self, place: &Place, text: &str) {
        let thread = place.thread.as_deref().and_then(|thread| thread.parse().ok());
        let chat = &place.chat;
        let message = Outgoing { chat, thread, reply_to: None, text, html: false, buttons: &[] };
        if let Err(error) = self.bot.send_message(message).await {
            debug!(%error, "a sender was not told");
        }
    }
}
