//! Messages that are edited while an answer is written
//! (<https://discord.com/developers/docs/resources/message#edit-message>).

use std::time::Duration;

use futures::future::BoxFuture;
use holdfast_types::Target;
use reqwest::Method;
use serde_json::json;
use tracing::debug;

use super::{
    Discord,
    actions::SUPPRESS_EMBEDS,
    client::{Content, is_id},
};
use crate::{
    Outcome,
    channel::{Edit, MessageEdits},
};

/// Discord permits about five changes in five seconds in a channel.
const INTERVAL: Duration = Duration::from_millis(1500);

impl Discord {
    async fn post_text(&self, target: &Target, text: &str) -> Outcome {
        let channel = channel_of(target);
        if !is_id(channel) {
            return Outcome::refused("the chat is no id of discord");
        }
        let mut message = json!({
            "content": text,
            "flags": SUPPRESS_EMBEDS,
            "allowed_mentions": {"parse": []},
        });
        if let Some(id) = target.reply_to.as_deref().filter(|id| is_id(id)) {
            message["message_reference"] = json!({"message_id": id, "fail_if_not_exists": false});
        }
        match self.post_message(channel, message).await {
            Ok(platform_id) => Outcome::Sent { platform_id },
            Err(error) => error.into(),
        }
    }

    async fn edit_text(&self, Edit { target, id, text, .. }: Edit<'_>) -> Outcome {
        let channel = channel_of(target);
        if !is_id(channel) || !is_id(id) {
            return Outcome::refused("the message's id is no id of discord");
        }
        let path = format!("/channels/{channel}/messages/{id}");
        let body = json!({
            "content": text,
            "flags": SUPPRESS_EMBEDS,
            "allowed_mentions": {"parse": ["users"]},
        });
        match self.repeatable(Method::PATCH, &path, Content::Json(body), id).await {
            Ok(platform_id) => Outcome::Sent { platform_id },
            Err(error) => error.into(),
        }
    }

    async fn delete_text(&self, target: &Target, id: &str) {
        let channel = channel_of(target);
        if !is_id(channel) || !is_id(id) {
            return;
        }
        let path = format!("/channels/{channel}/messages/{id}");
        if let Err(error) = self.repeatable(Method::DELETE, &path, Content::None, id).await {
            debug!(%error, "a preview was not deleted");
        }
    }
}

/// A thread is a channel of its own.
fn channel_of(target: &Target) -> &str {
    target.thread.as_deref().unwrap_or(&target.chat)
}

impl MessageEdits for Discord {
    fn min_interval(&self, _: &Target) -> Duration {
        INTERVAL
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
