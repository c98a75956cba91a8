//! Transcription of recordings by the tenant's providers.
//!
//! | provider, in this order | asked |
//! |---|---|
//! | `whisper`, a server of the tenant's own | `POST …/audio/transcriptions` |
//! | `openai`, then others whose server transcribes or that the operator has listed | the same |
//! | of the kind `gemini` | its suggested model, which is shown the recording in a chat |
//!
//! If one fails, the next is asked. No request is repeated.

use std::time::Duration;

use holdfast_directory::ModelChoice;
use holdfast_llm::{
    audio::{
        AudioClient, AudioError, Recording, Transcriber, Transcript, read_transcription,
        transcribe_in_chat,
    },
    servers::WHISPER,
};
use holdfast_types::{AgentId, ModelId, TenantId, Transcription};
use tracing::info;

use super::MediaProviders;
use crate::tools::tool_usage::ToolUsage;

/// Time limit of a request.
const TRANSCRIPTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum length of a transcription, in characters: about an hour of speech has 50,000.
const MAX_TRANSCRIPTION_CHARS: usize = 30_000;

const NO_PROVIDER: &str = "no provider that is set up here transcribes recordings; whoever set up \
                           this assistant can add `openai`, `groq`, `mistral` or `gemini` with its \
                           key, or a server of their own as `whisper`";

impl MediaProviders {
    /// Transcribes a recording with the first provider that succeeds. The transcription says why
    /// none did.
    ///
    /// # Errors
    ///
    /// If the providers cannot be read now.
    pub(crate) async fn transcribe(
        &self,
        tenant: TenantId,
        agent: AgentId,
        recording: &Recording,
    ) -> Result<(Transcription, Option<ToolUsage>), holdfast_directory::Error> {
        let access = self.directory.models().providers(tenant, agent).await?;
        let mut failures = Vec::new();
        for (choice, transcriber) in self.transcribers(access.choices) {
            let heard = match transcriber {
                Transcriber::Form(model) => self.hear_form(&choice, &model, recording).await,
                Transcriber::Chat(model) => self.hear_chat(&choice, model, recording).await,
            };
            match heard {
                Ok((text, used)) => {
                    let (text, is_shortened) = bounded(&text);
                    let (model, failure) = (used.model.clone(), String::new());
                    let heard = Transcription { text, model, is_shortened, failure };
                    return Ok((heard, Some(used)));
                }
                Err(why) => {
                    let provider = choice.model.provider();
                    info!(provider, "a recording was not transcribed");
                    failures.push(format!("`{provider}`: {why}"));
                }
            }
        }
        let why = if failures.is_empty() { NO_PROVIDER.to_owned() } else { failures.join("; ") };
        Ok((Transcription::failed(why), None))
    }

    /// Providers that transcribe, in the order in which they are asked.
    fn transcribers(&self, choices: Vec<ModelChoice>) -> Vec<(ModelChoice, Transcriber)> {
        let with_transcriber = |choice: ModelChoice| {
            let name = choice.model.provider();
            let transcriber = self.audio.transcriber(name, &choice.provider())?;
            Some((choice, transcriber))
        };
        let mut found: Vec<_> = choices.into_iter().filter_map(with_transcriber).collect();
        found.sort_by_key(|(choice, transcriber)| transcriber.rank(choice.model.provider()));
        found
    }

    /// Sends a recording as a form. The error is a text for the agent's model.
    async fn hear_form(
        &self,
        choice: &ModelChoice,
        model: &str,
        recording: &Recording,
    ) -> Result<(String, ToolUsage), String> {
        let heard = async {
            let name = choice.model.provider();
            let client = AudioClient::new(name, &self.guard, &choice.provider())?;
            let Some(client) = client else { return Err(AudioError::Unreadable) };
            let fields: Vec<(&str, &str)> = Transcript::format(model)
                .map(|format| ("response_format", format))
                .into_iter()
                .collect();
            let answer =
                client.transcribe(model, recording, &fields, TRANSCRIPTION_TIMEOUT).await?;
            let body = read_transcription(answer).await?;
            Transcript::read(&body).ok_or(AudioError::Unreadable)
        };
        let Transcript { text, usage, mut seconds } =
            heard.await.map_err(|error: AudioError| error.to_string())?;
        let name = choice.model.provider();
        if name == WHISPER {
            // A model of the same name costs something elsewhere.
            seconds = 0;
        }
        Ok((text, ToolUsage::of_recording(format!("{name}:{model}"), usage, seconds)))
    }

    /// Shows a recording to a model that hears. The error is a text for the agent's model.
    async fn hear_chat(
        &self,
        choice: &ModelChoice,
        model: ModelId,
        recording: &Recording,
    ) -> Result<(String, ToolUsage), String> {
        let (guard, provider) = (&self.guard, choice.provider());
        let heard = transcribe_in_chat(guard, &provider, &model, recording, TRANSCRIPTION_TIMEOUT);
        let Transcript { text, usage, .. } = heard.await.map_err(|error| error.to_string())?;
        Ok((text, ToolUsage::of_answer(model.to_string(), usage)))
    }
}

/// Returns a transcription without hidden characters, and whether its end is left out.
fn bounded(text: &str) -> (String, bool) {
    let text = holdfast_tools::clean(text);
    match text.char_indices().nth(MAX_TRANSCRIPTION_CHARS) {
        Some((end, _)) => (text[..end].to_owned(), true),
        None => (text, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcription_is_bounded_and_hides_nothing() {
        assert_eq!(bounded("good\u{202e} day"), ("good day".to_owned(), false));
        let (text, is_shortened) = bounded(&"ä".repeat(MAX_TRANSCRIPTION_CHARS + 1));
        assert_eq!((text.chars().count(), is_shortened), (MAX_TRANSCRIPTION_CHARS, true));
    }
}
