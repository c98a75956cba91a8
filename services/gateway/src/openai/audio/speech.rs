//! `POST /v1/audio/speech`.

use std::time::Duration;

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use holdfast_directory::{ELEVENLABS, ModelChoice, SEARCH_PROVIDERS};
use holdfast_grpc::Caller;
use holdfast_llm::{
    ProviderKind,
    audio::{AudioClient, AudioError},
    servers::WHISPER,
};
use holdfast_types::{FailureClass, Usage};
use http::{HeaderValue, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    providers::{AudioAccess, NamedModel, provider_error},
    run_to_record,
};
use crate::{
    api_error::ApiError,
    openai::{OpenAi, OtherFields, ignored_fields::refuse_others, read_json},
};

/// Time limit of a provider's whole answer.
const SPEECH_TIMEOUT: Duration = Duration::from_secs(180);

/// Maximum length of a text, in characters, as of OpenAI.
const MAX_TEXT_CHARS: usize = 4_096;

const MAX_INSTRUCTIONS_CHARS: usize = 4_096;
const MAX_VOICE_CHARS: usize = 200;

/// Formats with their content types.
const FORMATS: [(&str, &str); 6] = [
    ("mp3", "audio/mpeg"),
    ("opus", "audio/ogg"),
    ("aac", "audio/aac"),
    ("flac", "audio/flac"),
    ("wav", "audio/wav"),
    ("pcm", "audio/pcm"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SpeechRequest {
    model: String,
    input: String,
    voice: Option<String>,
    response_format: Option<String>,
    speed: Option<f64>,
    instructions: Option<String>,
    stream_format: Option<String>,
    #[serde(flatten)]
    others: OtherFields,
}

/// Checked request.
#[derive(Debug)]
struct Speech {
    model: NamedModel,
    /// Body for the provider, without the model.
    body: Value,
    characters: u64,
    content_type: &'static str,
}

/// Handler: a text, spoken.
pub async fn speak(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let speech = read_json::<SpeechRequest>(&api, request).await?.check()?;
    let access = api.audio_access(&caller).await?;
    let usual_type = speech.content_type;
    let sound = run_to_record(async move { ask(&access, speech).await }).await?;
    let content_type = sound.headers().get(CONTENT_TYPE);
    // Never a type that a browser would run.
    let content_type = content_type
        .filter(|value| value.as_bytes().starts_with(b"audio/"))
        .cloned()
        .unwrap_or(HeaderValue::from_static(usual_type));
    Ok(([(CONTENT_TYPE, content_type)], Body::from_stream(sound.bytes_stream())).into_response())
}

/// Asks the first provider that can, and records what it costs.
async fn ask(access: &AudioAccess, speech: Speech) -> Result<reqwest::Response, ApiError> {
    let Some((choice, ())) = access.choose(&speech.model, can_speak, rank) else {
        return Err(no_speaker(&speech.model));
    };
    let name = choice.model.provider();
    let model = match &speech.model {
        NamedModel::OfProvider { model, .. } | NamedModel::Plain(model) => model.as_str(),
        NamedModel::Usual => access.config.speech_model.as_str(),
    };
    let mut body = speech.body;
    body["model"] = model.into();
    let asked = async {
        let client = AudioClient::new(name, &access.guard, &choice.provider())?;
        let Some(client) = client else { return Err(AudioError::Unreadable) };
        client.speak(&body, SPEECH_TIMEOUT).await
    };
    let sound = Box::pin(asked).await.map_err(|error| provider_error(name, &error))?;
    // As the tool `tts`: each character is an input token.
    let usage = Usage { input: speech.characters, ..Usage::default() };
    access.record((choice, model), usage, 0).await?;
    Ok(sound)
}

/// Whether a provider has OpenAI's API and a key.
fn can_speak(choice: &ModelChoice) -> Option<()> {
    let (name, provider) = (choice.model.provider(), choice.provider());
    let has_api = matches!(provider.kind, ProviderKind::OpenAi | ProviderKind::Responses);
    let is_other = [ELEVENLABS, WHISPER].contains(&name) || SEARCH_PROVIDERS.contains(&name);
    (has_api && provider.api_key.is_some() && !is_other).then_some(())
}

fn rank(choice: &ModelChoice, (): &()) -> usize {
    usize::from(choice.model.provider() != "openai")
}

impl SpeechRequest {
    fn check(self) -> Result<Speech, ApiError> {
        refuse_others(&self.others)?;
        let model = NamedModel::parse(&self.model)?;
        let characters = self.input.chars().count();
        if !(1..=MAX_TEXT_CHARS).contains(&characters) || self.input.trim().is_empty() {
            let message =
                format!("`input` has {characters} characters: send 1 to {MAX_TEXT_CHARS}");
            return Err(ApiError::invalid_field("input", message));
        }
        let voice = self.voice.unwrap_or_default();
        if !(1..=MAX_VOICE_CHARS).contains(&voice.chars().count()) {
            let message = "`voice` is missing or too long: write one of the provider's, as `alloy`";
            return Err(ApiError::invalid_field("voice", message));
        }
        let format = self.response_format.as_deref().unwrap_or("mp3");
        let Some((format, content_type)) = FORMATS.into_iter().find(|(name, _)| *name == format)
        else {
            let message = "`response_format` must be `mp3`, `opus`, `aac`, `flac`, `wav` or `pcm`";
            return Err(ApiError::invalid_field("response_format", message));
        };
        if self.stream_format.is_some_and(|format| format != "audio") {
            let message = "the answer is the sound itself: leave `stream_format` out";
            return Err(ApiError::unsupported("stream_format", message));
        }
        let mut body = json!({ "input": self.input, "voice": voice, "response_format": format });
        if let Some(speed) = self.speed {
            if !(0.25..=4.0).contains(&speed) {
                let message = "`speed` must be between 0.25 and 4";
                return Err(ApiError::invalid_field("speed", message));
            }
            body["speed"] = speed.into();
        }
        if let Some(instructions) = self.instructions.filter(|text| !text.is_empty()) {
            if instructions.chars().count() > MAX_INSTRUCTIONS_CHARS {
                let message =
                    format!("`instructions` has more than {MAX_INSTRUCTIONS_CHARS} characters");
                return Err(ApiError::invalid_field("instructions", message));
            }
            body["instructions"] = instructions.into();
        }
        let characters = u64::try_from(characters).unwrap_or(u64::MAX);
        Ok(Speech { model, body, characters, content_type })
    }
}

fn no_speaker(named: &NamedModel) -> ApiError {
    let message = match named {
        NamedModel::OfProvider { provider, .. } => {
            let provider: String = provider.chars().take(80).collect();
            format!("there is no provider `{provider}` that speaks: write `holdfast`")
        }
        NamedModel::Usual | NamedModel::Plain(_) => {
            "no provider of the tenant speaks: an owner can add `openai` with its key (`holdfast \
             providers put`)"
                .to_owned()
        }
    };
    ApiError::of_class(FailureClass::NoProvider, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extra: Value) -> Result<Speech, ApiError> {
        let mut request = json!({"model": "tts-1", "input": "grüße", "voice": "alloy"});
        for (key, value) in extra.as_object().unwrap() {
            request[key] = value.clone();
        }
        serde_json::from_value::<SpeechRequest>(request).unwrap().check()
    }

    #[test]
    fn what_openai_takes_is_passed_on_and_the_rest_is_refused_by_name() {
        let speech = check(json!({"speed": 1.5, "response_format": "opus"})).unwrap();
        assert_eq!(
            speech.body,
            json!({"input": "grüße", "voice": "alloy", "response_format": "opus", "speed": 1.5})
        );
        assert_eq!((speech.characters, speech.content_type), (5, "audio/ogg"));
        for extra in [
            json!({"model": ""}),
            json!({"input": " "}),
            json!({"input": "x".repeat(MAX_TEXT_CHARS + 1)}),
            json!({"voice": null}),
            json!({"response_format": "exe"}),
            json!({"stream_format": "sse"}),
            json!({"speed": 9}),
            json!({"of_tomorrow": 1}),
        ] {
            let shown: String = extra.to_string().chars().take(60).collect();
            assert!(check(extra).is_err(), "{shown}");
        }
    }
}
