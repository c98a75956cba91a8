//! Transcriptions in JSON, and what they cost.

use holdfast_types::Usage;
use serde_json::Value;

/// A transcription, with what the server has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    pub text: String,
    /// Tokens, where the server counts them.
    pub usage: Usage,
    /// Length of the recording in seconds, rounded up, where the server names it.
    pub seconds: u64,
}

impl Transcript {
    /// Format in which a model's server is asked for its answer, so that it names what it has counted;
    /// `None` is its default, JSON.
    #[must_use]
    pub fn format(model: &str) -> Option<&'static str> {
        // Newer models of OpenAI know only `json`, and Mistral does not know the field.
        model.contains("whisper").then_some("verbose_json")
    }

    /// Reads a transcription in the format `json` or `verbose_json`.
    ///
    /// | server | counts |
    /// |---|---|
    /// | OpenAI | `usage.type` `tokens`, or `duration` with `usage.seconds` |
    /// | Mistral | `usage.prompt_audio_seconds`, `usage.prompt_tokens` |
    /// | Groq, Whisper | `duration`, in `verbose_json` |
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let answer: Value = serde_json::from_slice(body).ok()?;
        let usage = &answer["usage"];
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let input =
            usage["input_tokens"].as_u64().unwrap_or_else(|| count(&usage["prompt_tokens"]));
        let output =
            usage["output_tokens"].as_u64().unwrap_or_else(|| count(&usage["completion_tokens"]));
        let audio_input = count(&usage["input_token_details"]["audio_tokens"]).min(input);
        let lengths = [&usage["seconds"], &usage["prompt_audio_seconds"], &answer["duration"]];
        Some(Self {
            text: answer["text"].as_str()?.trim().to_owned(),
            usage: Usage { input, output, audio_input, ..Usage::default() },
            seconds: lengths.into_iter().find_map(seconds).unwrap_or_default(),
        })
    }
}

/// A length in seconds, rounded up. OpenAI once wrote it as a text.
fn seconds(value: &Value) -> Option<u64> {
    let seconds = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let whole = seconds.clamp(0.0, 1e9).ceil() as u64;
    Some(whole)
}
