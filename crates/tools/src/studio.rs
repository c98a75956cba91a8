//! What the tools of pictures and speech ask of those who see, draw and speak.

use std::future::Future;

use holdfast_types::StoredFile;

use crate::{Call, ToolError};

/// Who sees, draws and speaks for a call's tenant; the runner's own, or a fake.
///
/// What the model can do something about (no provider is set up, a picture was refused) is
/// [`ToolError::Tell`].
pub trait Studio: Send + Sync + 'static {
    /// What a model says of a picture; `None` if the agent's own model sees pictures, and is better
    /// shown it.
    fn look(
        &self,
        call: &Call,
        question: &str,
        picture: (&StoredFile, Vec<u8>),
    ) -> impl Future<Output = Result<Option<String>, ToolError>> + Send;

    /// A picture of what is described, as large as `size` says: `1024x1024`.
    fn draw(
        &self,
        call: &Call,
        prompt: &str,
        size: &str,
    ) -> impl Future<Output = Result<Made, ToolError>> + Send;

    /// A text, spoken: an mp3. Where one provider fails the next is asked.
    fn speak(
        &self,
        call: &Call,
        speech: Speech,
    ) -> impl Future<Output = Result<Made, ToolError>> + Send;

    /// Who can speak, and with which voices; the first is asked first.
    fn speakers(&self, call: &Call)
    -> impl Future<Output = Result<Vec<Speaker>, ToolError>> + Send;
}

/// What is to be spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speech {
    /// The text.
    pub text: String,
    /// With which voice; `None` is the usual one.
    pub voice: Option<String>,
    /// By which provider; `None` is any, and the next if one fails.
    pub provider: Option<String>,
}

/// Who can speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// The provider's name.
    pub provider: String,
    /// Its voices.
    pub voices: Vec<String>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// By whom, as `provider:model`.
    pub by: String,
    /// The file.
    pub content: Vec<u8>,
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;

    /// One that answers at once.
    #[derive(Debug)]
    pub(crate) struct Fake {
        pub(crate) sees: bool,
        pub(crate) picture: Vec<u8>,
    }

    impl Studio for Fake {
        async fn look(
            &self,
            _: &Call,
            question: &str,
            _: (&StoredFile, Vec<u8>),
        ) -> Result<Option<String>, ToolError> {
            Ok((!self.sees).then(|| format!("someone, asked: {question}")))
        }

        async fn draw(&self, _: &Call, _: &str, _: &str) -> Result<Made, ToolError> {
            Ok(Made { by: "fake".into(), content: self.picture.clone() })
        }

        async fn speak(&self, _: &Call, speech: Speech) -> Result<Made, ToolError> {
            let by = speech.voice.unwrap_or_else(|| "alloy".into());
            Ok(Made { by, content: speech.text.into_bytes() })
        }

        async fn speakers(&self, _: &Call) -> Result<Vec<Speaker>, ToolError> {
            let voices = vec!["alloy".into(), "nova".into()];
            Ok(vec![Speaker { provider: "openai".into(), voices }])
        }
    }
}
