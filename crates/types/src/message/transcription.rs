//! Transcriptions of recordings that came with a message.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Attachment, Body, StoredFile};

/// Text that a model made of a recording, or the reason why there is none.
///
/// Stored with the heard message, so that a recording is transcribed once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transcription {
    /// Empty if nobody speaks in the recording, or there is no transcription.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Model that made the text, as `provider:id`; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Whether the end of the text is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_shortened: bool,
    /// Why there is no text, for a model to read; empty if there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

impl Transcription {
    /// Returns a transcription that could not be made.
    #[must_use]
    pub fn failed(why: impl Into<String>) -> Self {
        Self { failure: why.into(), ..Self::default() }
    }
}

impl Attachment {
    /// The stored recording, if the attachment is one: by its content, or by the platform's kind
    /// where the container may also hold a video.
    #[must_use]
    pub fn recording(&self) -> Option<&StoredFile> {
        let file = self.file.as_ref()?;
        let is_sound = matches!(self.kind.as_str(), "voice" | "audio");
        let is_recording = match file.media_type.split_once('/') {
            Some(("audio", _)) => true,
            Some(("video", "mp4" | "webm")) => is_sound,
            Some(_) | None => false,
        };
        is_recording.then_some(file)
    }
}

impl Body {
    /// The text and what was heard in recordings, marked as such, as people read a history.
    #[must_use]
    pub fn text_and_recordings(&self) -> Cow<'_, str> {
        let mut text = Cow::Borrowed(self.text.as_str());
        for attachment in &self.attachments {
            let Some(heard) = attachment.transcription.as_deref() else { continue };
            let text = text.to_mut();
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(match (heard.failure.is_empty(), heard.text.is_empty()) {
                (false, _) => "[recording, not transcribed]",
                (true, true) => "[recording without words]",
                (true, false) => "[recording, transcribed by a machine] ",
            });
            text.push_str(&heard.text);
        }
        text
    }

    /// The text and what its sender has said in voice messages: for searches, memories and
    /// languages. The model that answers is also shown which of it a machine has heard.
    ///
    /// Other recordings are left out, since anyone may have made them.
    #[must_use]
    pub fn text_and_speech(&self) -> Cow<'_, str> {
        let own = self.attachments.iter().filter(|attachment| attachment.kind == "voice");
        let said = own.filter_map(|attachment| {
            let text = attachment.transcription.as_ref()?.text.trim();
            (!text.is_empty()).then_some(text)
        });
        let said: Vec<&str> = said.collect();
        if said.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        let written = Some(self.text.trim()).filter(|text| !text.is_empty());
        Cow::Owned(written.into_iter().chain(said).collect::<Vec<&str>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(kind: &str, media_type: &str) -> Attachment {
        let file = StoredFile {
            path: "media/a".into(),
            media_type: media_type.into(),
            size: 1,
            hash: "0".repeat(64),
        };
        Attachment {
            kind: kind.into(),
            reference: String::new(),
            name: String::new(),
            file: Some(file),
            transcription: None,
        }
    }

    #[test]
    fn a_recording_is_known_by_its_content_and_a_video_is_none() {
        for (kind, media_type, is_recording) in [
            ("voice", "audio/ogg", true),
            ("file", "audio/mpeg", true),
            ("voice", "video/mp4", true),
            ("video", "video/mp4", false),
            ("voice", "application/octet-stream", false),
        ] {
            let found = attachment(kind, media_type).recording().is_some();
            assert_eq!(found, is_recording, "{kind} {media_type}");
        }
        assert!(
            Attachment { file: None, ..attachment("voice", "audio/ogg") }.recording().is_none()
        );
    }

    #[test]
    fn what_is_said_follows_the_text() {
        let said = |text: &str| Attachment {
            transcription: Some(Box::new(Transcription {
                text: text.into(),
                ..Transcription::default()
            })),
            ..attachment("voice", "audio/ogg")
        };
        let body = |text: &str, attachments| Body { attachments, ..Body::text(text) };

        assert_eq!(body("hi ", vec![]).text_and_speech(), "hi ");
        assert_eq!(body("", vec![said("good day")]).text_and_speech(), "good day");
        assert_eq!(body("hi", vec![said(""), said("a"), said("b")]).text_and_speech(), "hi\na\nb");
        let song = Attachment { kind: "file".into(), ..said("la") };
        assert_eq!(body("hi", vec![song]).text_and_speech(), "hi");
    }

    #[test]
    fn people_see_what_a_machine_has_written() {
        let heard = |transcription| Attachment {
            transcription: Some(Box::new(transcription)),
            ..attachment("file", "audio/ogg")
        };
        let song = Transcription { text: "la".into(), ..Transcription::default() };
        let body = Body {
            attachments: vec![heard(song), heard(Transcription::failed("x"))],
            ..Body::text("hi")
        };

        let shown = body.text_and_recordings();

        assert_eq!(
            shown,
            "hi\n[recording, transcribed by a machine] la\n[recording, not transcribed]"
        );
    }

    #[test]
    fn a_transcription_of_a_newer_version_can_be_read() {
        let newer = r#"{"text":"hi","confidence":0.9}"#;

        let read: Transcription = serde_json::from_str(newer).unwrap();

        assert_eq!(read, Transcription { text: "hi".into(), ..Transcription::default() });
        assert_eq!(serde_json::to_string(&Transcription::default()).unwrap(), "{}");
    }
}
