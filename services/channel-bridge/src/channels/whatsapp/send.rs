//! Sending: texts, files, reactions, buttons, and templates when the window is closed.

use holdfast_session::Delivery;
use holdfast_types::{ChannelAction, StoredFile};
use serde_json::{Value, json};

use super::{
    Whatsapp,
    client::{SendError, WINDOW_CLOSED},
};
use crate::{Outcome, buttons, call::CallError, split::utf16};

/// Maximum size of a picture, in bytes; a larger one is sent as a document
/// (<https://developers.facebook.com/docs/whatsapp/cloud-api/reference/media>).
const MAX_PICTURE_BYTES: usize = 5 * 1024 * 1024;

/// Maximum size of audio and video, in bytes.
const MAX_AUDIO_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of a document here, in bytes.
const MAX_FILE_BYTES: usize = 50 * 1024 * 1024;

/// Maximum length of a text with buttons, of a caption, and of a template's variable, in UTF-16
/// units.
const MAX_SHORT_UTF16_UNITS: usize = 1024;

impl Whatsapp {
    pub(super) async fn send_part(&self, part: &Delivery, file: Option<&[u8]>) -> Outcome {
        let sent = match &part.act {
            None => self.send_reply(part).await,
            Some(ChannelAction::Media { file: stored, voice }) => match file {
                Some(content) => self.send_file(part, (stored, content), *voice).await,
                None => Err(CallError::refused("its file is gone")),
            },
            Some(ChannelAction::React { message, emoji }) => {
                let content = json!({"message_id": message, "emoji": emoji});
                self.send(part, "reaction", content, None).await
            }
            // Buttons cannot be removed; a press of an old one is answered in words.
            Some(ChannelAction::Close { message, .. }) => Ok(message.clone().unwrap_or_default()),
            Some(_) => Err(CallError::refused("whatsapp has nothing like it")),
        };
        Outcome::from(sent)
    }

    async fn send_reply(&self, part: &Delivery) -> Result<String, CallError> {
        let reply_to = part.target.reply_to.as_deref().filter(|_| part.part == 0);
        let has_room = utf16(&part.text) <= MAX_SHORT_UTF16_UNITS;
        if let Some(approval) = part.approval.filter(|_| has_room) {
            let button = |(title, id): (String, String)| json!({"type": "reply", "reply": {"id": id, "title": title}});
            let buttons: Vec<Value> =
                buttons::approval_buttons(approval).into_iter().map(button).collect();
            let content = json!({
                "type": "button", "body": {"text": part.text}, "action": {"buttons": buttons},
            });
            return self.send(part, "interactive", content, reply_to).await;
        }
        let content = json!({"body": part.text, "preview_url": false});
        self.send(part, "text", content, reply_to).await
    }

    /// Sends a text that no delivery asks for.
    pub(super) async fn send_text(
        &self,
        to: &str,
        text: &str,
        reply_to: Option<&str>,
    ) -> Result<String, CallError> {
        let message = envelope(to, "text", json!({"body": text}), reply_to);
        match self.graph.send(&self.settings.phone_number_id, &message).await {
            Ok(id) => Ok(id),
            Err(SendError::Call(error)) => Err(error),
            Err(SendError::WindowClosed) => Err(CallError::refused("the window is closed")),
        }
    }

    /// Sends a message; when the window is closed, the template with its text.
    async fn send(
        &self,
        part: &Delivery,
        kind: &str,
        content: Value,
        reply_to: Option<&str>,
    ) -> Result<String, CallError> {
        let number = &self.settings.phone_number_id;
        let mut message = envelope(&part.target.chat, kind, content, reply_to);
        message["biz_opaque_callback_data"] = part.id.to_string().into();
        match self.graph.send(number, &message).await {
            Ok(id) => return Ok(id),
            Err(SendError::Call(error)) => return Err(error),
            Err(SendError::WindowClosed) => {}
        }
        let (Some(template), false) = (&self.settings.template, part.text.is_empty()) else {
            let error = WINDOW_CLOSED;
            return Err(CallError::refused(format!(
                "more than 24 hours have passed since the person wrote last ({error}): \
                 whatsapp takes only templates then; set `template` to the name of one"
            )));
        };
        let variable = json!({"type": "text", "text": one_line(&part.text)});
        let content = json!({
            "name": template,
            "language": {"code": self.settings.template_language},
            "components": [{"type": "body", "parameters": [variable]}],
        });
        let mut message = envelope(&part.target.chat, "template", content, None);
        message["biz_opaque_callback_data"] = part.id.to_string().into();
        match self.graph.send(number, &message).await {
            Ok(id) => Ok(id),
            Err(SendError::Call(error)) => Err(error),
            Err(SendError::WindowClosed) => Err(CallError::refused(
                "whatsapp takes no template for this person now: is `template` approved?",
            )),
        }
    }

    async fn send_file(
        &self,
        part: &Delivery,
        (stored, content): (&StoredFile, &[u8]),
        voice: bool,
    ) -> Result<String, CallError> {
        let size = content.len();
        if size > MAX_FILE_BYTES {
            return Err(CallError::refused(format!(
                "the file has {size} bytes, and {MAX_FILE_BYTES} are the most"
            )));
        }
        let number = &self.settings.phone_number_id;
        let described = (stored.name(), stored.media_type.as_str());
        // A file that no message names reaches nobody, so uploading again is harmless.
        let id = self.graph.upload(number, described, content).await;
        let id = id.map_err(CallError::of_harmless_call)?;
        // Audio has no caption.
        let kind = match kind(&stored.media_type, size) {
            "audio" if !part.text.is_empty() => "document",
            kind => kind,
        };
        let mut media = json!({"id": id});
        if kind == "document" {
            media["filename"] = stored.name().into();
        }
        if kind == "audio" && voice {
            media["voice"] = true.into();
        }
        if !part.text.is_empty() {
            media["caption"] = shortened(&part.text).into();
        }
        self.send(part, kind, media, part.target.reply_to.as_deref()).await
    }
}

fn envelope(to: &str, kind: &str, content: Value, reply_to: Option<&str>) -> Value {
    let mut message = json!({
        "messaging_product": "whatsapp", "recipient_type": "individual", "to": to, "type": kind,
    });
    message[kind] = content;
    if let Some(id) = reply_to {
        message["context"] = json!({"message_id": id});
    }
    message
}

/// Returns the type of message that shows a file best.
fn kind(media_type: &str, size: usize) -> &'static str {
    match media_type {
        "image/png" | "image/jpeg" if size <= MAX_PICTURE_BYTES => "image",
        "audio/ogg" | "audio/mpeg" | "audio/mp4" | "audio/aac" | "audio/amr"
            if size <= MAX_AUDIO_BYTES =>
        {
            "audio"
        }
        "video/mp4" | "video/3gpp" if size <= MAX_AUDIO_BYTES => "video",
        _ => "document",
    }
}

/// A template's variable has no line breaks and no four spaces in a row.
fn one_line(text: &str) -> String {
    shortened(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn shortened(text: &str) -> String {
    let mut short = String::new();
    let mut length = 0;
    for letter in text.chars() {
        length += letter.len_utf16();
        if length >= MAX_SHORT_UTF16_UNITS {
            short.push('…');
            break;
        }
        short.push(letter);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_as_what_it_is() {
        assert_eq!(kind("image/png", 1), "image");
        assert_eq!(kind("image/png", MAX_PICTURE_BYTES + 1), "document");
        assert_eq!(kind("audio/ogg", 1), "audio");
        assert_eq!(kind("text/csv", 1), "document");
    }

    #[test]
    fn a_variable_of_a_template_is_one_short_line() {
        assert_eq!(one_line("a\n\n  b\tc"), "a b c");
        let long = one_line(&"👍".repeat(2000));
        assert!(utf16(&long) <= MAX_SHORT_UTF16_UNITS && long.ends_with('…'));
    }
}
