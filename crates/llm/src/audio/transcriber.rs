//! Models for sound: the table `[audio]`, and the choice of the providers that transcribe recordings.

use std::collections::BTreeMap;

use holdfast_types::ModelId;
use serde::{Deserialize, Serialize};

use super::{hearing_model, transcription_model};
use crate::{Provider, servers::WHISPER};

/// The table `[audio]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AudioConfig {
    /// Model that speaks, of providers with OpenAI's API.
    pub speech_model: String,
    /// Models that transcribe recordings, by the name of their provider. Providers that are not
    /// listed transcribe if their server is known to.
    pub transcription_models: BTreeMap<String, String>,
}

impl Default for AudioConfig {
    fn default() -> Self {
        Self { speech_model: "tts-1".to_owned(), transcription_models: BTreeMap::new() }
    }
}

/// Way in which a provider transcribes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transcriber {
    /// A form with the file, for this model.
    Form(String),
    /// A chat with a model that hears.
    Chat(ModelId),
}

impl AudioConfig {
    /// Returns how a provider transcribes if no model is chosen; `None` if it does not, or has no key and
    /// is no server of the tenant's own.
    #[must_use]
    pub fn transcriber(&self, name: &str, provider: &Provider) -> Option<Transcriber> {
        let listed = self.transcription_models.get(name).cloned();
        // Servers of the tenant's own need no key.
        if provider.api_key.is_none() && listed.is_none() && name != WHISPER {
            return None;
        }
        if let Some(model) = hearing_model(name, provider.kind) {
            let listed = listed.and_then(|id| format!("{name}:{id}").parse().ok());
            return Some(Transcriber::Chat(listed.unwrap_or(model)));
        }
        let known = || transcription_model(name, provider).map(str::to_owned);
        listed.or_else(known).map(Transcriber::Form)
    }
}

impl Transcriber {
    /// Place of a provider among those that transcribe: the lowest is asked first.
    #[must_use]
    pub fn rank(&self, name: &str) -> usize {
        match (self, name) {
            (_, WHISPER) => 0,
            (_, "openai") => 1,
            (Self::Form(_), _) => 2,
            (Self::Chat(_), _) => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProviderKind, RequestExtras};

    fn provider(kind: ProviderKind, has_key: bool) -> Provider {
        Provider {
            kind,
            base_url: None,
            api_key: has_key.then(|| "sk".into()),
            is_oauth: false,
            extras: RequestExtras::default(),
            identity: None,
        }
    }

    #[test]
    fn a_listed_model_is_taken_of_any_provider() {
        let listed =
            [("litellm", "whisper-1"), ("openai", "gpt-4o-transcribe"), ("gemini", "gemini-x")];
        let listed = listed.map(|(name, model)| (name.to_owned(), model.to_owned()));
        let config = AudioConfig { transcription_models: listed.into(), ..AudioConfig::default() };
        let form = |model: &str| Some(Transcriber::Form(model.to_owned()));
        let (openai, gemini) = (ProviderKind::OpenAi, ProviderKind::Gemini);

        for (name, kind, has_key, expected) in [
            ("litellm", openai, true, form("whisper-1")),
            ("litellm", openai, false, form("whisper-1")),
            ("openai", openai, true, form("gpt-4o-transcribe")),
            ("groq", openai, true, form("whisper-large-v3-turbo")),
            ("groq", openai, false, None),
            ("whisper", openai, false, form("whisper-1")),
            ("unknown", ProviderKind::Anthropic, true, None),
            ("gemini", gemini, true, Some(Transcriber::Chat("gemini:gemini-x".parse().unwrap()))),
        ] {
            let found = config.transcriber(name, &provider(kind, has_key));
            assert_eq!(found, expected, "{name} {has_key}");
        }
    }

    #[test]
    fn a_server_of_the_tenants_own_is_asked_first_and_a_chat_last() {
        let form = Transcriber::Form("m".to_owned());
        let chat = Transcriber::Chat("gemini:m".parse().unwrap());

        let ranks =
            [form.rank("whisper"), form.rank("openai"), form.rank("groq"), chat.rank("gemini")];

        assert!(ranks.is_sorted_by(|one, next| one < next), "{ranks:?}");
    }
}
