//! Sending, and actions besides (<https://discord.com/developers/docs/resources/message>).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use holdfast_session::Delivery;
use holdfast_types::{ApprovalId, ChannelAction};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{
    Method,
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use tracing::debug;

use super::{
    Discord,
    client::{CallError, Content, is_id},
};
use crate::{Outcome, buttons, channel::Place};

/// Maximum size of a file, in bytes: what every server allows.
const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

/// Duration of a poll, in hours.
const POLL_HOURS: u64 = 24;

/// Flag of a message without embeds. For these Discord fetches the addresses of a text, into which the agent
/// may have put what it knows.
pub(super) const SUPPRESS_EMBEDS: u64 = 1 << 2;

/// Type of a public thread.
const PUBLIC_THREAD: u64 = 11;

impl Discord {
    pub(super) async fn send_part(&self, part: &Delivery, file: Option<&[u8]>) -> Outcome {
        // A thread is a channel of its own.
        let channel = part.target.thread.as_deref().unwrap_or(&part.target.chat);
        if !is_id(channel) {
            return Outcome::refused("the chat is no id of discord");
        }
        let sent = match &part.act {
            None => {
                let mut message = message(part, &part.text);
                if let Some(approval) = part.approval {
                    message["components"] = approval_row(approval);
                }
                self.post_message(channel, message).await
            }
            Some(act) => match self.act(channel, part, act, file).await {
                Ok(sent) => sent,
                Err(refused) => return Outcome::refused(refused),
            },
        };
        match sent {
            Ok(platform_id) => Outcome::Sent { platform_id },
            Err(error) => error.into(),
        }
    }

    pub(super) async fn post_message(
        &self,
        channel: &str,
        message: Value,
    ) -> Result<String, CallError> {
        let path = format!("/channels/{channel}/messages");
        let sent = self.rest.call(Method::POST, &path, Content::Json(message)).await?;
        Ok(id_of(&sent))
    }

    async fn act(
        &self,
        channel: &str,
        part: &Delivery,
        act: &ChannelAction,
        file: Option<&[u8]>,
    ) -> Result<Result<String, CallError>, &'static str> {
        let message_path = |id: &str| match is_id(id) {
            true => Ok(format!("/channels/{channel}/messages/{id}")),
            false => Err("the message's id is no id of discord"),
        };
        Ok(match act {
            ChannelAction::Delete { message: None } => {
                return Err("there is no message from here that could be deleted");
            }
            ChannelAction::Delete { message: Some(id) } => {
                self.repeatable(Method::DELETE, &message_path(id)?, Content::None, id).await
            }
            ChannelAction::React { emoji, .. } if emoji.is_empty() => {
                return Err("discord removes a reaction only if it is told which: name the emoji");
            }
            ChannelAction::React { message, emoji } => {
                let emoji = utf8_percent_encode(emoji, NON_ALPHANUMERIC);
                let path = format!("{}/reactions/{emoji}/@me", message_path(message)?);
                self.repeatable(Method::PUT, &path, Content::None, message).await
            }
            ChannelAction::Pin { message } | ChannelAction::Unpin { message } => {
                message_path(message)?;
                let path = format!("/channels/{channel}/messages/pins/{message}");
                let is_pin = matches!(act, ChannelAction::Pin { .. });
                let method = if is_pin { Method::PUT } else { Method::DELETE };
                self.repeatable(method, &path, Content::None, message).await
            }
            ChannelAction::Poll { options } => {
                let mut message = message(part, "");
                let answers = options.iter().map(|option| json!({"poll_media": {"text": option}}));
                message["poll"] = json!({
                    "question": {"text": part.text},
                    "answers": answers.collect::<Vec<_>>(),
                    "duration": POLL_HOURS,
                });
                self.post_message(channel, message).await
            }
            ChannelAction::Thread { name } => {
                let body = json!({"name": name, "type": PUBLIC_THREAD});
                let path = format!("/channels/{channel}/threads");
                self.rest
                    .call(Method::POST, &path, Content::Json(body))
                    .await
                    .map(|thread| id_of(&thread))
            }
            ChannelAction::Media { file: stored, .. } => {
                let content = file.ok_or("its file is gone")?;
                if content.len() > MAX_FILE_BYTES {
                    return Err("the file has more than 10 MiB, which discord does not take");
                }
                let file = Part::bytes(content.to_vec())
                    .file_name(stored.name().to_owned())
                    .mime_str(&stored.media_type)
                    .map_err(|_| "the file's type is none")?;
                let form = Form::new()
                    .text("payload_json", message(part, &part.text).to_string())
                    .part("files[0]", file);
                let path = format!("/channels/{channel}/messages");
                self.rest
                    .call(Method::POST, &path, Content::Form(form))
                    .await
                    .map(|sent| id_of(&sent))
            }
            ChannelAction::Close { message: None, .. } => return Err("nothing was asked here"),
            ChannelAction::Close { message: Some(id), .. } => {
                let body = Content::Json(json!({"components": []}));
                self.repeatable(Method::PATCH, &message_path(id)?, body, id).await
            }
            ChannelAction::Event | ChannelAction::Embed { .. } | ChannelAction::Unknown => {
                return Err("discord is not sent anything like it");
            }
        })
    }

    /// Makes a call that has no further effect when it is repeated, or when its object is gone.
    pub(super) async fn repeatable(
        &self,
        method: Method,
        path: &str,
        content: Content,
        id: &str,
    ) -> Result<String, CallError> {
        let is_deletion = method == Method::DELETE;
        match self.rest.call(method, path, content).await {
            Ok(_) => Ok(id.to_owned()),
            Err(CallError::Unsure(_)) => Err(CallError::NotSent),
            Err(CallError::Refused { status: 404, .. }) if is_deletion => Ok(id.to_owned()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn send_typing(&self, place: &Place) {
        let channel = place.thread.as_deref().unwrap_or(&place.chat);
        if !is_id(channel) {
            return;
        }
        let path = format!("/channels/{channel}/typing");
        if let Err(error) = self.rest.call(Method::POST, &path, Content::None).await {
            debug!(%error, "typing was not shown");
        }
    }

    pub(super) async fn send_notice(&self, place: &Place, text: &str) {
        if !is_id(&place.chat) {
            return;
        }
        let message = json!({"content": text, "allowed_mentions": {"parse": []}});
        if let Err(error) = self.post_message(&place.chat, message).await {
            debug!(%error, "a sender was not told");
        }
    }
}

/// Returns a message with its nonce. Nobody is mentioned but people whom the text names.
fn message(part: &Delivery, text: &str) -> Value {
    let mut message = json!({
        "content": text,
        "nonce": nonce(part),
        "enforce_nonce": true,
        "flags": SUPPRESS_EMBEDS,
        "allowed_mentions": {"parse": ["users"], "replied_user": true},
    });
    // Only the first part is sent as a reply to the message.
    if let Some(id) = part.target.reply_to.as_deref().filter(|id| part.part == 0 && is_id(id)) {
        message["message_reference"] = json!({"message_id": id, "fail_if_not_exists": false});
    }
    message
}

/// Idempotency key of a part: a nonce has at most 25 characters.
fn nonce(part: &Delivery) -> String {
    URL_SAFE_NO_PAD.encode(part.id.as_uuid().as_bytes())
}

fn approval_row(approval: ApprovalId) -> Value {
    // Styles: green, gray, red.
    let styles = [3, 2, 4];
    let buttons = buttons::approval_buttons(approval).into_iter().zip(styles);
    let button = |((label, data), style): ((String, String), u64)| json!({"type": 2, "style": style, "label": label, "custom_id": data});
    json!([{"type": 1, "components": buttons.map(button).collect::<Vec<_>>()}])
}

fn id_of(object: &Value) -> String {
    object["id"].as_str().unwrap_or_default().to_owned()
}
