//! Access of the tools to providers of pictures and speech.

use std::future::Future;

use holdfast_types::StoredFile;

use crate::{Call, ToolError};

/// Providers of pictures and speech for a call's tenant; implemented by agent-runner and by a fake.
///
/// Failures that the model can react to (no provider is set up, a picture was refused) are
/// [`ToolError::Tell`].
pub trait MediaBackend: Send + Sync + 'static {
    /// Describes a picture by a model; `None` if the agent's own model sees pictures, so that it
    /// should be shown the picture instead.
    fn look(
        &self,
        call: &Call,
        question: &str,
        picture: (&StoredFile, Vec<u8>),
    ) -> impl Future<Output = Result<Option<String>, ToolError>> + Send;

    /// Draws a picture. `size` is its size in pixels: `1024x1024`.
    fn draw(
        &self,
        call: &Call,
        prompt: &str,
        size: &str,
    ) -> impl Future<Output = Result<MediaFile, ToolError>> + Send;

    /// Converts a text to speech, as mp3. If one provider fails, the next is used.
    fn speak(
        &self,
        call: &Call,
        speech: Speech,
    ) -> impl Future<Output = Result<MediaFile, ToolError>> + Send;

    /// Lists providers of speech with their voices, in order of use.
    fn speakers(&self, call: &Call)
    -> impl Future<Output = Result<Vec<Speaker>, ToolError>> + Send;
}

/// Text to convert to speech.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speech {
    pub text: String,
    /// Voice; `None` means the default one.
    pub voice: Option<String>,
    /// Provider; `None` means any, in order.
    pub provider: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    pub provider: String,
    pub voices: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaFile {
    /// Model that produced it, as `provider:model`.
    pub by: String,
    pub content: Vec<u8>,
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;

    /// Fake that answers at once.
    #[derive(Debug)]
    pub(crate) struct Fake {
        pub(crate) sees: bool,
        pub(crate) picture: Vec<u8>,
    }

    impl MediaBackend for Fake {
        async fn look(
            &self,
            _: &Call,
            question: &str,
            _: (&StoredFile, Vec<u8>),
        ) -> Result<Option<String>, ToolError> {
            Ok((!self.sees).then(|| format!("someone, asked: {question}")))
        }

        async fn draw(&self, _: &Call, _: &str, _: &str) -> Result<MediaFile, ToolError> {
            Ok(MediaFile { by: "fake".into(), content: self.picture.clone() })
        }

        async fn speak(&self, _: &Call, speech: Speech) -> Result<MediaFile, ToolError> {
            let by = speech.voice.unwrap_or_else(|| "alloy".into());
            Ok(MediaFile { by, content: speech.text.into_bytes() })
        }

        async fn speakers(&self, _: &Call) -> Result<Vec<Speaker>, ToolError> {
            let voices = vec!["alloy".into(), "nova".into()];
            Ok(vec![Speaker { provider: "openai".into(), voices }])
        }
    }
}
