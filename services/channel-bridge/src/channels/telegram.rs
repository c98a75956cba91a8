//! Telegram: one bot for each account.
//!
//! Telegram takes no idempotency key and cannot be asked which messages arrived. So a reply whose
//! outcome is not known is `unknown`, and is never retried automatically.
//!
//! | file | subject |
//! |---|---|
//! | `actions` | actions besides sending text |
//! | `albums` | several files in one message |
//! | `client` | methods of the Bot API |
//! | `edits` | messages that are edited while an answer is written |
//! | `judge` | classification of updates |
//! | `menu` | menu of commands |
//! | `files` | files that come with a message |
//! | `inbound` | hand-over of updates to the gateway |
//! | `poll` | polling, and the webhook's registration |
//! | `render` | Markdown as Telegram's HTML |

mod actions;
mod albums;
mod client;
mod edits;
mod files;
mod inbound;
mod judge;
mod menu;
mod poll;
mod render;
mod wire;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::response::Response;
use futures::future::BoxFuture;
use holdfast_directory::channel::{self, ReplyFormat, Streaming, TelegramSettings, UpdateMode};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{DeliveryClass, Sender};
use secrecy::SecretString;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use self::{
    client::{Bot, CallError, Outgoing},
    wire::BotIdentity,
};
use crate::{
    Outcome,
    account::ServedAccount,
    buttons,
    channel::{
        AccountContext, Channel, ChannelAccount, MessageEdits, Place, StoredSettings, Unusable,
    },
    connection::Disconnected,
    http::InboundRequest,
    split::utf16,
};

pub(super) static CHANNEL: Channel = Channel {
    name: channel::TELEGRAM,
    class: DeliveryClass::Plain,
    assurance: SenderAssurance::Verified,
    build: |account, stored, context| Ok(Arc::new(Telegram::new(account, stored, context)?)),
};

/// Why a token is refused.
const NO_TOKEN: &str = "`secrets.token` is none: copy it from @BotFather, `123456:ABC-DEF`";

/// Maximum length of a message, in UTF-16 units.
const MAX_MESSAGE_UTF16_UNITS: usize = 4096;

#[derive(Debug)]
pub struct Telegram {
    account: ServedAccount,
    settings: TelegramSettings,
    webhook_secret: Option<SecretString>,
    bot: Bot,
    me: OnceCell<BotIdentity>,
    /// Duration of a long poll.
    poll_timeout: Duration,
    /// Id after that of the last handled update.
    offset: Mutex<Option<i64>>,
    /// URL at which Telegram calls the bridge, if it is to be registered.
    webhook_url: Option<String>,
}

impl Telegram {
    /// Builds the bot with these settings, without a call to Telegram.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used.
    pub fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        AccountContext { config, clients, .. }: &AccountContext,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = TelegramSettings::read(stored.settings, stored.secrets)?;
        let (http, base) = match &settings.api_base {
            None => (clients.platform.clone(), config.telegram.api_base.as_str()),
            Some(base) => {
                // The token is a part of each address.
                let called = clients.for_secret(base);
                let (http, _) = called.map_err(|error| Unusable::Address("api_base", error))?;
                (http, base.as_str())
            }
        };
        let bot = Bot::new(http, base, &secrets.token).map_err(|_| Unusable::Secret(NO_TOKEN))?;
        let public = config.public_url.as_deref();
        let webhook_url =
            public.map(|base| format!("{}/telegram/{}", base.trim_end_matches('/'), account.id));
        Ok(Self {
            account,
            settings,
            webhook_secret: secrets.webhook_secret,
            bot,
            me: OnceCell::new(),
            poll_timeout: config.telegram.poll_timeout,
            offset: Mutex::default(),
            webhook_url,
        })
    }

    async fn send_text(&self, part: &Delivery) -> Outcome {
        let Ok(thread) = part.target.thread.as_deref().map(str::parse).transpose() else {
            return Outcome::refused("the topic is no number");
        };
        let buttons = part.approval.map(buttons::approval_buttons);
        let message = Outgoing {
            buttons: buttons.as_ref().map_or(&[], |buttons| buttons.as_slice()),
            chat: &part.target.chat,
            thread,
            // Only the first part is sent as a reply to the message.
            reply_to: part
                .target
                .reply_to
                .as_deref()
                .filter(|_| part.part == 0)
                .and_then(|id| id.parse().ok()),
            text: &part.text,
            html: false,
        };
        let html = match self.settings.parse {
            ReplyFormat::Html => {
                render::html(&part.text).filter(|html| utf16(html) <= MAX_MESSAGE_UTF16_UNITS)
            }
            ReplyFormat::Plain => None,
        };
        let Some(html) = html else { return self.send_to(message).await };
        match self.bot.send_message(Outgoing { text: &html, html: true, ..message }).await {
            // Telegram refused the message, so it certainly was not sent: send it without
            // formatting.
            Err(CallError::Refused { status: 400, description, .. })
                if description.contains("parse entities") =>
            {
                tracing::warn!(delivery.id = %part.id, "telegram cannot parse what was rendered; sending plain text");
                self.send_to(message).await
            }
            Err(CallError::Refused { moved_to: Some(chat), .. }) => {
                let chat = chat.to_string();
                self.send_to(Outgoing { chat: &chat, text: &html, html: true, ..message }).await
            }
            sent => outcome(sent),
        }
    }

    /// Sends a message, and follows a group that has become a supergroup.
    async fn send_to(&self, message: Outgoing<'_>) -> Outcome {
        match self.bot.send_message(message).await {
            Err(CallError::Refused { moved_to: Some(chat), .. }) => {
                let chat = chat.to_string();
                outcome(self.bot.send_message(Outgoing { chat: &chat, ..message }).await)
            }
            sent => outcome(sent),
        }
    }
}

fn outcome(sent: Result<wire::MessageId, CallError>) -> Outcome {
    match sent {
        Ok(message) => Outcome::Sent { platform_id: message.message_id.to_string() },
        Err(CallError::RateLimited { after }) => Outcome::NotSent {
            reason: "telegram asks to wait (429)".to_owned(),
            after: Some(after),
        },
        Err(error @ CallError::NotSent(_)) => Outcome::not_sent(error.to_string()),
        Err(error @ CallError::Unsure(_)) => Outcome::unsure(error.to_string()),
        Err(error @ CallError::Refused { .. }) => Outcome::refused(error.to_string()),
    }
}

impl ChannelAccount for Telegram {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        self.settings.allow.allows(&sender.id, &sender.name)
    }

    /// Checks the text as it is, which is sent if Telegram rejects the HTML, and as rendered with
    /// its tags, which is longer than Telegram's own count.
    fn fits(&self, text: &str) -> bool {
        utf16(text) <= MAX_MESSAGE_UTF16_UNITS
            && match self.settings.parse {
                ReplyFormat::Html => {
                    render::html(text).is_none_or(|html| utf16(&html) <= MAX_MESSAGE_UTF16_UNITS)
                }
                ReplyFormat::Plain => true,
            }
    }

    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            match &part.act {
                Some(act) => self.act(part, act, file).await,
                None => self.send_text(part).await,
            }
        })
    }

    fn connect(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Disconnected>> {
        match self.settings.mode {
            UpdateMode::Poll => Some(Box::pin(async move {
                tokio::select! {
                    () = stop.cancelled() => Disconnected::Stopped,
                    ended = self.poll() => ended,
                }
            })),
            UpdateMode::Webhook if self.webhook_url.is_some() => {
                Some(Box::pin(self.register(stop)))
            }
            UpdateMode::Webhook => {
                tracing::warn!(
                    account.id = %self.account.id,
                    "an account wants to be called by telegram: set `bridge.public_url`, \
                     or register its webhook by hand"
                );
                None
            }
        }
    }

    fn receive(self: Arc<Self>, request: InboundRequest) -> BoxFuture<'static, Response> {
        Box::pin(self.receive_update(request))
    }

    fn show_typing<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        Box::pin(self.send_typing(place))
    }

    fn edits(&self) -> Option<&dyn MessageEdits> {
        match self.settings.streaming {
            Streaming::Edits => Some(self),
            Streaming::Off => None,
        }
    }

    fn notify<'a>(&'a self, place: &'a Place, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.notify_sender(place, text))
    }
}
