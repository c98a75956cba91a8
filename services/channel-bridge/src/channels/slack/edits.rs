//! Messages that are edited while an answer is written
//! (<https://docs.slack.dev/reference/methods/chat.update>).

use std::time::Duration;

use futures::future::BoxFuture;
use holdfast_types::Target;
use serde_json::json;
use tracing::debug;

use super::{Slack, actions::metadata};
use crate::{
    Outcome,
    channel::{Edit, MessageEdits},
};

/// Slack permits about 50 edits a minute in a workspace.
const INTERVAL: Duration = Duration::from_secs(3);

impl Slack {
    async fn post_text(&self, target: &Target, text: &str) -> Outcome {
        let mut message = json!({
            "channel": target.chat,
            "text": text,
            "blocks": [{"type": "markdown", "text": text}],
            "unfurl_links": false,
            "unfurl_media": false,
        });
        if let Some(thread) = target.thread.as_deref().or(target.reply_to.as_deref()) {
            message["thread_ts"] = thread.into();
        }
        match self.post_message(message).await {
            Ok(platform_id) => Outcome::Sent { platform_id },
            Err(error) => error.into(),
        }
    }

    async fn edit_text(&self, Edit { target, id, text, delivery }: Edit<'_>) -> Outcome {
        let mut body = json!({
            "channel": target.chat,
            "ts": id,
            "text": text,
            "blocks": [{"type": "markdown", "text": text}],
        });
        if let Some(delivery) = delivery {
            body["metadata"] = metadata(delivery);
        }
        match self.repeatable("chat.update", &body, id, "").await {
            Ok(platform_id) => Outcome::Sent { platform_id },
            Err(error) => error.into(),
        }
    }

    async fn delete_text(&self, target: &Target, id: &str) {
        let body = json!({"channel": target.chat, "ts": id});
        let deleted = self.repeatable("chat.delete", &body, id, "message_not_found").await;
        if let Err(error) = deleted {
            debug!(%error, "a preview was not deleted");
        }
    }
}

impl MessageEdits for Slack {
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
