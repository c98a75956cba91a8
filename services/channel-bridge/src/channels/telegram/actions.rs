//! Actions besides sending text: methods of the Bot API (<https://core.telegram.org/bots/api>).

use std::time::Duration;

use holdfast_session::Delivery;
use holdfast_types::{ChannelAction, StoredFile};
use reqwest::multipart::{Form, Part};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Telegram,
    client::{Bot, CallError},
    outcome,
    wire::MessageId,
};
use crate::Outcome;

/// Timeout of an upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(40);

/// Maximum size of a picture sent as a photo, in bytes; a larger one is sent as a file.
const MAX_PHOTO_BYTES: u64 = 10 * 1024 * 1024;

#[derive(Debug, Clone, Copy, Deserialize)]
struct Topic {
    message_thread_id: i64,
}

/// Target of an action.
struct ActionTarget<'a> {
    chat: &'a str,
    thread: Option<i64>,
    reply_to: Option<i64>,
}

impl Telegram {
    /// Executes the delivery's action, and follows a group that has become a supergroup.
    pub(super) async fn act(
        &self,
        part: &Delivery,
        act: &ChannelAction,
        file: Option<&[u8]>,
    ) -> Outcome {
        let Ok(thread) = part.target.thread.as_deref().map(str::parse).transpose() else {
            return Outcome::refused("the topic is no number");
        };
        let reply_to = part.target.reply_to.as_deref().and_then(|id| id.parse().ok());
        let mut place = ActionTarget { chat: &part.target.chat, thread, reply_to };
        let moved;
        match self.act_at(&place, part, act, file).await {
            Err(ActionFailure::Call(CallError::Refused { moved_to: Some(chat), .. })) => {
                moved = chat.to_string();
                place.chat = &moved;
                action_outcome(self.act_at(&place, part, act, file).await)
            }
            done => action_outcome(done),
        }
    }

    async fn act_at(
        &self,
        place: &ActionTarget<'_>,
        part: &Delivery,
        act: &ChannelAction,
        file: Option<&[u8]>,
    ) -> Result<String, ActionFailure> {
        let message = |id: &str| {
            id.parse::<i64>().map_err(|_| ActionFailure::Refused("the message's id is no number"))
        };
        let on = |id: i64| {
            let mut params = place.params();
            params["message_id"] = id.into();
            params
        };
        match act {
            ChannelAction::Delete { message: None } => {
                Err(ActionFailure::Refused("there is no message from here that could be deleted"))
            }
            ChannelAction::Delete { message: Some(id) } => {
                self.call_idempotent("deleteMessage", on(message(id)?), id).await
            }
            ChannelAction::React { message: id, emoji } => {
                let mut params = on(message(id)?);
                params["reaction"] = match emoji.as_str() {
                    "" => json!([]),
                    emoji => json!([{"type": "emoji", "emoji": emoji}]),
                };
                self.call_idempotent("setMessageReaction", params, id).await
            }
            ChannelAction::Pin { message: id } => {
                let mut params = on(message(id)?);
                params["disable_notification"] = true.into();
                self.call_idempotent("pinChatMessage", params, id).await
            }
            ChannelAction::Unpin { message: id } => {
                self.call_idempotent("unpinChatMessage", on(message(id)?), id).await
            }
            ChannelAction::Poll { options } => {
                let mut params = place.message_params();
                params["question"] = part.text.as_str().into();
                let options = options.iter().map(|option| json!({"text": option}));
                params["options"] = Value::Array(options.collect());
                let sent: MessageId = self.bot.method("sendPoll", &params).await?;
                Ok(sent.message_id.to_string())
            }
            ChannelAction::Thread { name } => {
                let mut params = place.params();
                params["name"] = name.as_str().into();
                let topic: Topic = self.bot.method("createForumTopic", &params).await?;
                Ok(topic.message_thread_id.to_string())
            }
            ChannelAction::Media { file: stored, voice } => {
                let Some(content) = file else {
                    return Err(ActionFailure::Refused("its file is gone"));
                };
                self.media(place, &part.text, (stored, content), *voice).await
            }
            ChannelAction::Close { message: None, .. } => {
                Err(ActionFailure::Refused("nothing was asked here"))
            }
            // A call without a keyboard removes the message's keyboard
            // (<https://core.telegram.org/bots/api#editmessagereplymarkup>).
            ChannelAction::Close { message: Some(id), .. } => {
                match self.call_idempotent("editMessageReplyMarkup", on(message(id)?), id).await {
                    // The message has no keyboard already.
                    Err(ActionFailure::Call(CallError::Refused {
                        status: 400,
                        description,
                        ..
                    })) if description.contains("message is not modified") => Ok(id.clone()),
                    done => done,
                }
            }
            ChannelAction::Event | ChannelAction::Embed { .. } | ChannelAction::Unknown => {
                Err(ActionFailure::Refused("telegram has nothing like it"))
            }
        }
    }

    /// Calls an idempotent method: if the answer is lost, the call is repeated safely.
    async fn call_idempotent(
        &self,
        method: &str,
        params: Value,
        id: &str,
    ) -> Result<String, ActionFailure> {
        match self.bot.execute(method, &params).await {
            Ok(()) => Ok(id.to_owned()),
            Err(CallError::Unsure(why)) => Err(ActionFailure::Call(CallError::NotSent(why))),
            Err(error) => Err(error.into()),
        }
    }

    async fn media(
        &self,
        place: &ActionTarget<'_>,
        caption: &str,
        (file, content): (&StoredFile, &[u8]),
        voice: bool,
    ) -> Result<String, ActionFailure> {
        let (method, field) = method(file, voice);
        let sent = self.bot.upload(method, place.form(caption), field, (file, content)).await;
        match sent {
            // Telegram does not accept it as a picture (too wide, for example), or the recipient
            // forbids voice messages. It was refused, so it certainly was not sent: send it as a
            // file.
            Err(CallError::Refused { status: 400, moved_to: None, .. })
                if method != "sendDocument" =>
            {
                let form = place.form(caption);
                let sent = self.bot.upload("sendDocument", form, "document", (file, content));
                Ok(sent.await?.message_id.to_string())
            }
            sent => Ok(sent?.message_id.to_string()),
        }
    }
}

/// Returns the method that shows a file best, and the name of its form field.
fn method(file: &StoredFile, voice: bool) -> (&'static str, &'static str) {
    if is_sticker(file) {
        return ("sendSticker", "sticker");
    }
    match file.media_type.as_str() {
        "image/png" | "image/jpeg" | "image/webp" if file.size <= MAX_PHOTO_BYTES => {
            ("sendPhoto", "photo")
        }
        "image/gif" => ("sendAnimation", "animation"),
        "audio/ogg" | "audio/mpeg" | "audio/mp4" if voice => ("sendVoice", "voice"),
        "audio/mpeg" | "audio/mp4" => ("sendAudio", "audio"),
        "video/mp4" => ("sendVideo", "video"),
        _ => ("sendDocument", "document"),
    }
}

/// Whether a file is for `sendSticker`: an animated one, or a picture whose name says so.
fn is_sticker(file: &StoredFile) -> bool {
    let name = file.name().to_ascii_lowercase();
    name.ends_with(".tgs") || name.ends_with(".sticker.webp") || name.ends_with(".sticker.webm")
}

impl ActionTarget<'_> {
    fn params(&self) -> Value {
        match self.chat.parse::<i64>() {
            Ok(chat) => json!({"chat_id": chat}),
            Err(_) => json!({"chat_id": self.chat}),
        }
    }

    /// Parameters of a method that sends a message.
    fn message_params(&self) -> Value {
        let mut params = self.params();
        if let Some(thread) = self.thread {
            params["message_thread_id"] = thread.into();
        }
        if let Some(id) = self.reply_to {
            params["reply_parameters"] = reply_parameters(id);
        }
        params
    }

    fn form(&self, caption: &str) -> Form {
        let mut form = Form::new().text("chat_id", self.chat.to_owned());
        if let Some(thread) = self.thread {
            form = form.text("message_thread_id", thread.to_string());
        }
        if let Some(id) = self.reply_to {
            form = form.text("reply_parameters", reply_parameters(id).to_string());
        }
        match caption {
            "" => form,
            caption => form.text("caption", caption.to_owned()),
        }
    }
}

fn reply_parameters(id: i64) -> Value {
    json!({"message_id": id, "allow_sending_without_reply": true})
}

impl Bot {
    async fn upload(
        &self,
        method: &str,
        form: Form,
        field: &'static str,
        (file, content): (&StoredFile, &[u8]),
    ) -> Result<MessageId, CallError> {
        let part = Part::bytes(content.to_vec())
            .file_name(file.name().to_owned())
            .mime_str(&file.media_type)
            .map_err(|_| CallError::Refused {
                status: 0,
                description: "the file's type is none".to_owned(),
                moved_to: None,
            })?;
        self.post_form(method, form.part(field, part), UPLOAD_TIMEOUT).await
    }
}

/// Reason why an action failed.
enum ActionFailure {
    Call(CallError),
    Refused(&'static str),
}

impl From<CallError> for ActionFailure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

fn action_outcome(done: Result<String, ActionFailure>) -> Outcome {
    match done {
        Ok(platform_id) => Outcome::Sent { platform_id },
        Err(ActionFailure::Refused(why)) => Outcome::refused(why),
        Err(ActionFailure::Call(error)) => outcome(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_as_what_it_is() {
        let method = |media_type: &str, size, voice| {
            let file = StoredFile {
                path: "a".into(),
                media_type: media_type.into(),
                size,
                hash: String::new(),
            };
            super::method(&file, voice).0
        };

        let sticker = StoredFile {
            path: "media/cat.sticker.webp".into(),
            media_type: "image/webp".into(),
            size: 1,
            hash: String::new(),
        };
        assert_eq!(super::method(&sticker, false), ("sendSticker", "sticker"));
        assert_eq!(method("image/png", 1, false), "sendPhoto");
        assert_eq!(method("image/png", MAX_PHOTO_BYTES + 1, false), "sendDocument");
        assert_eq!(method("image/svg+xml", 1, false), "sendDocument");
        assert_eq!(method("audio/ogg", 1, true), "sendVoice");
        assert_eq!(method("audio/mpeg", 1, false), "sendAudio");
        assert_eq!(method("application/pdf", 1, true), "sendDocument");
    }
}
