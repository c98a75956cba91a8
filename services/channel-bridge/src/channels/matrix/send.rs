//! Sending: texts, files and other actions as Matrix events.

use holdfast_directory::channel::ReplyFormat;
use holdfast_session::Delivery;
use holdfast_types::{ChannelAction, StoredFile};
use serde_json::{Value, json};

use super::Matrix;
use crate::{Outcome, call::CallError, html};

/// Maximum size of a message's text and HTML together, in bytes as JSON. An event has at most 64 KiB
/// (<https://spec.matrix.org/latest/client-server-api/#size-limits>).
const MAX_TEXT_BYTES: usize = 48 * 1024;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: usize = 50 * 1024 * 1024;

/// State of a room that lists its pinned messages.
const PINNED: &str = "m.room.pinned_events";

impl Matrix {
    pub(super) fn is_sendable(&self, text: &str) -> bool {
        let size = |text: &str| json!(text).to_string().len();
        size(text) + self.html(text).map_or(0, |html| size(&html)) <= MAX_TEXT_BYTES
    }

    fn html(&self, text: &str) -> Option<String> {
        match self.settings.parse {
            ReplyFormat::Html => html::render(text),
            ReplyFormat::Plain => None,
        }
    }

    pub(super) async fn send_part(&self, part: &Delivery, file: Option<&[u8]>) -> Outcome {
        let sent = match &part.act {
            Some(act) => self.act(part, act, file).await,
            None => self.send_message(part, self.text_content(&part.text)).await,
        };
        Outcome::from(sent)
    }

    /// Content of a message with this text.
    pub(super) fn text_content(&self, text: &str) -> Value {
        // An empty `m.mentions` says that nobody is mentioned: names in the text notify nobody.
        let mut content = json!({"msgtype": "m.text", "body": text, "m.mentions": {}});
        if let Some(html) = self.html(text) {
            content["format"] = "org.matrix.custom.html".into();
            content["formatted_body"] = html.into();
        }
        content
    }

    async fn send_message(&self, part: &Delivery, mut content: Value) -> Result<String, CallError> {
        if let Some(relation) = relation(part) {
            content["m.relates_to"] = relation;
        }
        self.server.send(&part.target.chat, "m.room.message", &txn(part), &content).await
    }

    async fn act(
        &self,
        part: &Delivery,
        act: &ChannelAction,
        file: Option<&[u8]>,
    ) -> Result<String, CallError> {
        let (room, txn) = (part.target.chat.as_str(), txn(part));
        match act {
            ChannelAction::Delete { message: None } => {
                Err(CallError::refused("there is no message from here that could be deleted"))
            }
            ChannelAction::Delete { message: Some(id) } => self.server.redact(room, id, &txn).await,
            ChannelAction::React { message, emoji } if emoji.is_empty() => {
                self.remove_reactions(room, message, &txn).await
            }
            ChannelAction::React { message, emoji } => {
                let relation =
                    json!({"rel_type": "m.annotation", "event_id": message, "key": emoji});
                let content = json!({"m.relates_to": relation});
                match self.server.send(room, "m.reaction", &txn, &content).await {
                    // The account has reacted so already.
                    Err(CallError::Refused { description, .. })
                        if description.starts_with("M_DUPLICATE_ANNOTATION") =>
                    {
                        Ok(message.clone())
                    }
                    done => done,
                }
            }
            ChannelAction::Pin { message } => self.set_pinned(room, message, true).await,
            ChannelAction::Unpin { message } => self.set_pinned(room, message, false).await,
            // Any message can become the root of a thread.
            ChannelAction::Thread { name } => {
                let content = self.text_content(name);
                self.server.send(room, "m.room.message", &txn, &content).await
            }
            ChannelAction::Media { file: stored, voice } => {
                let content = file.ok_or_else(|| CallError::refused("its file is gone"))?;
                self.send_file(part, (stored, content), *voice).await
            }
            // Requests for approval have no buttons here.
            ChannelAction::Close { message, .. } => Ok(message.clone().unwrap_or_default()),
            ChannelAction::Poll { .. }
            | ChannelAction::Event
            | ChannelAction::Embed { .. }
            | ChannelAction::Unknown => Err(CallError::refused("matrix has nothing like it")),
        }
    }

    async fn send_file(
        &self,
        part: &Delivery,
        (stored, content): (&StoredFile, &[u8]),
        voice: bool,
    ) -> Result<String, CallError> {
        if content.len() > MAX_FILE_BYTES {
            return Err(CallError::refused(format!(
                "the file has {} bytes, and {MAX_FILE_BYTES} are the most",
                content.len()
            )));
        }
        // An uploaded file that no message names is shown nowhere, so uploading again is harmless.
        let uploaded = self.server.upload(stored.name(), &stored.media_type, content).await;
        let url = uploaded.map_err(CallError::of_harmless_call)?;
        let kind = match stored.media_type.split('/').next().unwrap_or_default() {
            "image" => "m.image",
            "audio" => "m.audio",
            "video" => "m.video",
            _ => "m.file",
        };
        let caption = if part.text.is_empty() { stored.name() } else { &part.text };
        let mut message = self.text_content(caption);
        message["msgtype"] = kind.into();
        message["filename"] = stored.name().into();
        message["url"] = url.into();
        message["info"] = json!({"mimetype": stored.media_type, "size": content.len()});
        if voice && kind == "m.audio" {
            message["org.matrix.msc3245.voice"] = json!({});
        }
        self.send_message(part, message).await
    }

    /// Removes the account's reactions to a message.
    async fn remove_reactions(
        &self,
        room: &str,
        message: &str,
        txn: &str,
    ) -> Result<String, CallError> {
        let me = self.me().await.map_err(CallError::of_harmless_call)?;
        let found = self.server.reactions(room, message).await;
        let found = found.map_err(CallError::of_harmless_call)?;
        for (n, reaction) in found.chunk.iter().filter(|event| event.sender == me.id).enumerate() {
            self.server.redact(room, &reaction.event_id, &format!("{txn}.{n}")).await?;
        }
        Ok(message.to_owned())
    }

    /// Adds a message to the pinned ones of a room, or removes it. A second time changes nothing.
    async fn set_pinned(
        &self,
        room: &str,
        message: &str,
        is_pinned: bool,
    ) -> Result<String, CallError> {
        let state = self.server.state(room, PINNED).await.map_err(CallError::of_harmless_call)?;
        let listed = state.as_ref().and_then(|state| state["pinned"].as_array());
        let mut pinned = listed.cloned().unwrap_or_default();
        if pinned.iter().any(|id| *id == message) != is_pinned {
            pinned.retain(|id| *id != message);
            if is_pinned {
                pinned.push(message.into());
            }
            let set = self.server.set_state(room, PINNED, &json!({"pinned": pinned})).await;
            set.map_err(CallError::of_harmless_call)?;
        }
        Ok(message.to_owned())
    }
}

/// Transaction of a delivery: the homeserver executes each once.
fn txn(part: &Delivery) -> String {
    part.id.to_string()
}

/// Relation of a message to the one that it answers, and to its thread.
fn relation(part: &Delivery) -> Option<Value> {
    // Only the first part is sent as a reply.
    let reply_to = part.target.reply_to.as_deref().filter(|_| part.part == 0);
    relation_of(part.target.thread.as_deref(), reply_to)
}

pub(super) fn relation_of(thread: Option<&str>, reply_to: Option<&str>) -> Option<Value> {
    match (thread, reply_to) {
        (None, None) => None,
        (None, Some(id)) => Some(json!({"m.in_reply_to": {"event_id": id}})),
        // Clients without threads show it as an answer to the root.
        (Some(root), reply_to) => Some(json!({
            "rel_type": "m.thread", "event_id": root,
            "is_falling_back": reply_to.is_none(),
            "m.in_reply_to": {"event_id": reply_to.unwrap_or(root)},
        })),
    }
}
