//! Telegram: one bot for each account.
//!
//! Telegram takes no idempotency key and cannot be asked which messages arrived. So a reply whose
//! outcome is not known is `unknown`, and is never retried automatically.
//!
//! | file | subject |
//! |---|---|
//! | `acts` | actions besides sending text |
//! | `buttons` | labels of buttons, and their commands |
//! | `client` | methods of the Bot API |
//! | `judge` | classification of updates |
//! | `files` | files that come with a message |
//! | `inbound` | hand-over of updates to the gateway |
//! | `poll` | one poller for each bot |
//! | `render` | Markdown as Telegram's HTML |

mod actions;
mod buttons;
mod client;
mod files;
mod inbound;
mod judge;
mod poll;
mod render;
mod wire;

use futures::future::BoxFuture;
use holdfast_directory::channel::{self, ReplyFormat, TelegramSettings, UpdateMode};
use holdfast_session::Delivery;
use holdfast_types::{AccountId, Sender, TenantId};
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::OnceCell;

use self::{
    client::{Bot, CallError, Outgoing},
    inbound::RefusalNotices,
    wire::BotIdentity,
};
use crate::{
    Outcome, account::Unusable, adapter::ChannelAdapter, guard::Clients, ingest::Ingest,
    split::utf16,
};

pub use inbound::UpdateResult;
pub use poll::{Poller, register};

pub const CHANNEL: &str = channel::TELEGRAM;

/// Maximum length of a message, in UTF-16 units.
const MAX_MESSAGE_UTF16_UNITS: usize = 4096;

#[derive(Debug)]
pub struct Telegram {
    tenant: TenantId,
    id: AccountId,
    name: String,
    settings: TelegramSettings,
    webhook_secret: Option<SecretString>,
    bot: Bot,
    me: OnceCell<BotIdentity>,
    refusals: RefusalNotices,
    ingest: Ingest,
}

impl Telegram {
    /// Builds the bot with these settings, without a call to Telegram.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used.
    pub fn new(
        (tenant, id, name): (TenantId, AccountId, String),
        (settings, secrets): (&Value, &Value),
        (clients, api_base, ingest): (&Clients, &str, &Ingest),
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = TelegramSettings::read(settings, secrets)?;
        let (http, base) = match &settings.api_base {
            None => (clients.platform.clone(), api_base),
            Some(base) => {
                let called = clients.for_tenant(base);
                let (http, _) = called.map_err(|error| Unusable::Address("api_base", error))?;
                (http, base.as_str())
            }
        };
        let bot = Bot::new(http, base, &secrets.token).map_err(|_| Unusable::Token)?;
        Ok(Self {
            tenant,
            id,
            name,
            settings,
            webhook_secret: secrets.webhook_secret,
            bot,
            me: OnceCell::new(),
            refusals: RefusalNotices::default(),
            ingest: ingest.clone(),
        })
    }

    #[must_use]
    pub const fn id(&self) -> AccountId {
        self.id
    }

    /// Way in which its updates arrive.
    #[must_use]
    pub const fn mode(&self) -> UpdateMode {
        self.settings.mode
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

impl ChannelAdapter for Telegram {
    fn channel(&self) -> &'static str {
        CHANNEL
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
}
