//! Messages that are edited while an answer is written.

use std::time::Duration;

use futures::future::BoxFuture;
use holdfast_directory::channel::ReplyFormat;
use holdfast_types::Target;
use serde_json::{Value, json};
use tracing::debug;

use super::{
    MAX_MESSAGE_UTF16_UNITS, Telegram,
    client::{CallError, Outgoing, no_link_preview},
    outcome, render,
};
use crate::{
    Outcome,
    channel::{Edit, MessageEdits},
    split::utf16,
};

/// A bot may change about one message a second in a chat, and 20 a minute in a group
/// (<https://core.telegram.org/bots/faq#broadcasting-to-users>).
const DIRECT_INTERVAL: Duration = Duration::from_millis(1500);
const GROUP_INTERVAL: Duration = Duration::from_secs(4);

impl Telegram {
    fn rendered(&self, text: &str) -> Option<String> {
        match self.settings.parse {
            ReplyFormat::Html => {
                render::html(text).filter(|html| utf16(html) <= MAX_MESSAGE_UTF16_UNITS)
            }
            ReplyFormat::Plain => None,
        }
    }

    async fn post_text(&self, target: &Target, text: &str) -> Outcome {
        let html = self.rendered(text);
        let message = Outgoing {
            chat: &target.chat,
            thread: target.thread.as_deref().and_then(|id| id.parse().ok()),
            reply_to: target.reply_to.as_deref().and_then(|id| id.parse().ok()),
            text: html.as_deref().unwrap_or(text),
            html: html.is_some(),
            buttons: &[],
        };
        outcome(self.bot.send_message(message).await)
    }

    async fn edit_text(&self, Edit { target, id, text, .. }: Edit<'_>) -> Outcome {
        let Ok(message_id) = id.parse::<i64>() else {
            return Outcome::refused("the message's id is no number");
        };
        let params = |text: &str| {
            json!({
                "chat_id": chat_id(&target.chat),
                "message_id": message_id,
                "text": text,
                "link_preview_options": no_link_preview(),
            })
        };
        let edited = match self.rendered(text) {
            None => self.bot.execute("editMessageText", &params(text)).await,
            Some(html) => {
                let mut formatted = params(&html);
                formatted["parse_mode"] = "HTML".into();
                match self.bot.execute("editMessageText", &formatted).await {
                    Err(CallError::Refused { status: 400, description, .. })
                        if description.contains("parse entities") =>
                    {
                        self.bot.execute("editMessageText", &params(text)).await
                    }
                    edited => edited,
                }
            }
        };
        match edited {
            Err(CallError::Refused { description, .. })
                if description.contains("message is not modified") =>
            {
                Outcome::Sent { platform_id: id.to_owned() }
            }
            Err(CallError::Unsure(why)) => Outcome::not_sent(why),
            edited => match outcome(edited.map(|()| super::wire::MessageId { message_id })) {
                Outcome::Sent { .. } => Outcome::Sent { platform_id: id.to_owned() },
                failed => failed,
            },
        }
    }

    async fn delete_text(&self, target: &Target, id: &str) {
        let Ok(id) = id.parse::<i64>() else { return };
        let params = json!({"chat_id": chat_id(&target.chat), "message_id": id});
        if let Err(error) = self.bot.execute("deleteMessage", &params).await {
            debug!(%error, "a preview was not deleted");
        }
    }
}

/// A chat is a number, or `@name`.
fn chat_id(chat: &str) -> Value {
    chat.parse::<i64>().map_or_else(|_| chat.into(), Value::from)
}

impl MessageEdits for Telegram {
    fn min_interval(&self, target: &Target) -> Duration {
        if target.chat.starts_with('-') { GROUP_INTERVAL } else { DIRECT_INTERVAL }
    }

    fn post<'a>(&'a self, target: &'a Target, text: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.post_text(target, text))
    }

    fn edit<'a>(&'a self, edit: Edit<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.edit_text(edit))
    }

    fn remove<'a>(&'a self, target: &'a Target, id: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.delete_text(target, id))
    }
}
