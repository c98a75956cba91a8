//! Sending, and actions besides (<https://docs.slack.dev/reference/methods>).

use holdfast_session::Delivery;
use holdfast_types::{ApprovalId, ChannelAction, DeliveryId, StoredFile};
use serde_json::{Value, json};
use tracing::debug;

use super::{
    Slack,
    client::{CallError, WebApi},
};
use crate::{Outcome, buttons, channel::Place};

/// Type of the metadata that a message carries.
pub(super) const METADATA_TYPE: &str = "holdfast_delivery";

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

/// Names of emoji that people use most, for the method `reactions.add`, which takes names only.
const EMOJI_NAMES: [(&str, &str); 20] = [
    ("👍", "thumbsup"),
    ("👎", "thumbsdown"),
    ("❤", "heart"),
    ("🎉", "tada"),
    ("👀", "eyes"),
    ("✅", "white_check_mark"),
    ("❌", "x"),
    ("🔥", "fire"),
    ("😂", "joy"),
    ("😀", "grinning"),
    ("😢", "cry"),
    ("🙏", "pray"),
    ("👏", "clap"),
    ("🤔", "thinking_face"),
    ("💯", "100"),
    ("🚀", "rocket"),
    ("⏳", "hourglass_flowing_sand"),
    ("⚠", "warning"),
    ("👌", "ok_hand"),
    ("🙌", "raised_hands"),
];

impl Slack {
    pub(super) async fn send_part(&self, part: &Delivery, file: Option<&[u8]>) -> Outcome {
        let sent = match &part.act {
            None => self.post_message(message(part)).await,
            Some(act) => match self.act(part, act, file).await {
                Ok(sent) => sent,
                Err(refused) => return Outcome::refused(refused),
            },
        };
        match sent {
            Ok(platform_id) => Outcome::Sent { platform_id },
            Err(error) => error.into(),
        }
    }

    pub(super) async fn post_message(&self, message: Value) -> Result<String, CallError> {
        let sent = self.api.call("chat.postMessage", &self.secrets.bot_token, &message).await?;
        Ok(sent["ts"].as_str().unwrap_or_default().to_owned())
    }

    async fn act(
        &self,
        part: &Delivery,
        act: &ChannelAction,
        file: Option<&[u8]>,
    ) -> Result<Result<String, CallError>, &'static str> {
        let channel = &part.target.chat;
        let at = |ts: &str| json!({"channel": channel, "timestamp": ts});
        Ok(match act {
            ChannelAction::Delete { message: None } => {
                return Err("there is no message from here that could be deleted");
            }
            ChannelAction::Delete { message: Some(ts) } => {
                let body = json!({"channel": channel, "ts": ts});
                self.repeatable("chat.delete", &body, ts, "message_not_found").await
            }
            ChannelAction::React { emoji, .. } if emoji.is_empty() => {
                return Err("slack removes a reaction only if it is told which: name the emoji");
            }
            ChannelAction::React { message, emoji } => {
                let mut body = at(message);
                body["name"] = emoji_name(emoji)
                    .ok_or("slack takes emoji by name: write one as `:tada:`, without a skin tone")?
                    .into();
                self.repeatable("reactions.add", &body, message, "already_reacted").await
            }
            ChannelAction::Pin { message } => {
                self.repeatable("pins.add", &at(message), message, "already_pinned").await
            }
            ChannelAction::Unpin { message } => {
                self.repeatable("pins.remove", &at(message), message, "no_pin").await
            }
            ChannelAction::Media { file: stored, .. } => {
                let content = file.ok_or("its file is gone")?;
                if content.len() > MAX_FILE_BYTES {
                    return Err("the file has more than 10 MiB");
                }
                self.send_file(part, stored, content).await
            }
            ChannelAction::Close { message: None, .. } => return Err("nothing was asked here"),
            ChannelAction::Close { message: Some(ts), .. } => {
                // An update without blocks removes the buttons, and keeps what was asked.
                let text = "The request was decided, or has expired.";
                let body = json!({"channel": channel, "ts": ts, "text": text, "blocks": []});
                self.repeatable("chat.update", &body, ts, "message_not_found").await
            }
            ChannelAction::Poll { .. }
            | ChannelAction::Thread { .. }
            | ChannelAction::Event
            | ChannelAction::Embed { .. }
            | ChannelAction::Unknown => return Err("slack is not sent anything like it"),
        })
    }

    /// Makes a call that has no further effect when it is repeated; `done` is the error that says so.
    pub(super) async fn repeatable(
        &self,
        method: &str,
        body: &Value,
        ts: &str,
        done: &str,
    ) -> Result<String, CallError> {
        match self.api.call(method, &self.secrets.bot_token, body).await {
            Ok(_) => Ok(ts.to_owned()),
            Err(CallError::Unsure(_)) => Err(CallError::NotSent),
            Err(error) if error.is(done) => Ok(ts.to_owned()),
            Err(error) => Err(error),
        }
    }

    /// Uploads a file and shows it (<https://docs.slack.dev/messaging/working-with-files>).
    async fn send_file(
        &self,
        part: &Delivery,
        stored: &StoredFile,
        content: &[u8],
    ) -> Result<String, CallError> {
        let token = &self.secrets.bot_token;
        let fields =
            [("filename", stored.name().to_owned()), ("length", content.len().to_string())];
        let prepared = self.api.call_form("files.getUploadURLExternal", token, &fields).await;
        let prepared = prepared.map_err(|error| match error {
            CallError::Unsure(_) => CallError::NotSent,
            error => error,
        })?;
        let url = prepared["upload_url"].as_str().unwrap_or_default();
        let called = self.clients.for_platform(&self.hosts, url);
        let (http, url) = called.map_err(|_| CallError::Refused {
            error: "it gave an address for the file that may not be called".to_owned(),
        })?;
        WebApi::upload(&http, url, content).await?;
        let mut body = json!({
            "files": [{"id": prepared["file_id"], "title": stored.name()}],
            "channel_id": part.target.chat,
        });
        if !part.text.is_empty() {
            body["initial_comment"] = part.text.as_str().into();
        }
        if let Some(thread) = thread_of(part) {
            body["thread_ts"] = thread.into();
        }
        self.api.call("files.completeUploadExternal", token, &body).await?;
        Ok(prepared["file_id"].as_str().unwrap_or_default().to_owned())
    }

    pub(super) async fn send_notice(&self, place: &Place, text: &str) {
        let mut message = json!({"channel": place.chat, "text": text});
        if let Some(thread) = &place.thread {
            message["thread_ts"] = thread.as_str().into();
        }
        if let Err(error) = self.post_message(message).await {
            debug!(%error, "a sender was not told");
        }
    }
}

/// Returns the thread of a part. A reply to a message goes to the message's thread.
fn thread_of(part: &Delivery) -> Option<&str> {
    part.target.thread.as_deref().or(part.target.reply_to.as_deref())
}

fn message(part: &Delivery) -> Value {
    let mut message = json!({
        "channel": part.target.chat,
        // Shown where blocks are not: in notifications.
        "text": part.text,
        "blocks": [{"type": "markdown", "text": part.text}],
        // For a preview Slack would fetch addresses into which the agent may have put what it knows.
        "unfurl_links": false,
        "unfurl_media": false,
        "metadata": metadata(part.id),
    });
    if let Some(approval) = part.approval
        && let Some(blocks) = message["blocks"].as_array_mut()
    {
        blocks.push(approval_row(approval));
    }
    if let Some(thread) = thread_of(part) {
        message["thread_ts"] = thread.into();
    }
    message
}

/// Metadata by which a delivery's message is found again.
pub(super) fn metadata(delivery: DeliveryId) -> Value {
    json!({
        "event_type": METADATA_TYPE,
        "event_payload": {"delivery_id": delivery.to_string()},
    })
}

fn approval_row(approval: ApprovalId) -> Value {
    let button = |(at, (label, data)): (usize, (String, String))| {
        json!({
            "type": "button",
            "text": {"type": "plain_text", "text": label},
            "value": data,
            "action_id": format!("approval_{at}"),
        })
    };
    let buttons = buttons::approval_buttons(approval).into_iter().enumerate().map(button);
    json!({"type": "actions", "elements": buttons.collect::<Vec<_>>()})
}

/// Returns the name of an emoji, which may be given as `:name:`.
fn emoji_name(emoji: &str) -> Option<&str> {
    let named = emoji.strip_prefix(':').and_then(|rest| rest.strip_suffix(':'));
    let plain = emoji.trim_end_matches('\u{fe0f}');
    named.or_else(|| EMOJI_NAMES.iter().find(|(sign, _)| *sign == plain).map(|(_, name)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emoji_has_a_name() {
        assert_eq!(emoji_name("👍"), Some("thumbsup"));
        assert_eq!(emoji_name("❤️"), Some("heart"));
        assert_eq!(emoji_name(":partyparrot:"), Some("partyparrot"));
        assert_eq!(emoji_name("🦩"), None);
    }
}
