//! Sound, for servers with OpenAI's API: recordings that are transcribed, texts that are spoken.
//!
//! | path | body | answer |
//! |---|---|---|
//! | `/audio/transcriptions` | a form with the file (<https://platform.openai.com/docs/api-reference/audio/createTranscription>) | JSON, or text in other formats |
//! | `/audio/speech` | JSON (<https://platform.openai.com/docs/api-reference/audio/createSpeech>) | sound |
//!
//! One call is one attempt: each costs money. Models of Gemini hear recordings in a chat.

mod chat;
mod transcriber;
mod transcript;

use std::{fmt, time::Duration};

use bytes::Bytes;
use holdfast_egress::Guard;
use holdfast_types::{Chat, ModelId, extension};
use reqwest::{
    Body, Response, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
    multipart::{Form, Part},
};
use serde_json::Value;
use tokio::time::Instant;

use chat::hearing_model;
pub use chat::transcribe_in_chat;
pub use transcriber::{AudioConfig, Transcriber};
pub use transcript::Transcript;

use crate::{
    Error, Provider, ProviderKind, Request,
    http::{self, read},
    openai,
    provider_text::{clean, text_of_body},
    servers,
};

/// Maximum size of a recording, in bytes: the limit of OpenAI and Groq.
pub const MAX_RECORDING_BYTES: usize = 25 * 1024 * 1024;

/// Maximum size of a transcription in any format, in bytes.
const MAX_TRANSCRIPT_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of an error's body, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Endings by which OpenAI, Groq and Mistral tell formats of recordings.
const FORMATS: [&str; 7] = ["flac", "m4a", "mp3", "mp4", "ogg", "wav", "webm"];

/// A recording, with the type that its content has.
#[derive(Clone, PartialEq, Eq)]
pub struct Recording {
    pub media_type: String,
    pub content: Bytes,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("media_type", &self.media_type)
            .field("bytes", &self.content.len())
            .finish()
    }
}

/// Why a provider has not transcribed or spoken. The texts have no secrets.
#[derive(Debug, thiserror::Error)]
pub enum AudioError {
    #[error(transparent)]
    Setup(#[from] Error),
    #[error("it does not take recordings of the type `{0}`")]
    Format(String),
    #[error("the recording has {0} bytes, and {MAX_RECORDING_BYTES} are the most")]
    TooLarge(usize),
    #[error("it took too long")]
    Timeout,
    #[error("no connection could be made, or it broke")]
    Unreachable,
    #[error("it refused the key")]
    Key,
    #[error("it takes no more requests for now")]
    RateLimited,
    /// Any other status than one of success, with the provider's own words.
    #[error("it refused ({status}) {message}")]
    Refused { status: u16, message: String },
    #[error("its answer could not be read")]
    Unreadable,
}

/// Access to the sound models of one provider.
#[derive(Debug, Clone)]
pub struct AudioClient {
    name: String,
    guard: Guard,
    base: Url,
    key: Option<(HeaderName, HeaderValue)>,
    /// Headers of the provider's settings.
    headers: HeaderMap,
}

/// Returns the model with which a provider transcribes if none is chosen; `None` if its server is not
/// known to transcribe.
fn transcription_model(name: &str, provider: &Provider) -> Option<&'static str> {
    servers::features_of(name, &base_url(name, provider).ok()??).transcription
}

/// Returns the base URL of a provider with OpenAI's API; `None` if it has another.
fn base_url(name: &str, provider: &Provider) -> Result<Option<Url>, Error> {
    let given = provider.base_url.as_deref();
    // Without the known base URL, the key of such a server would be sent to OpenAI.
    let own = match provider.kind {
        ProviderKind::OpenAi => servers::by_name(name).map(|known| known.base_url),
        ProviderKind::Responses => None,
        ProviderKind::Anthropic
        | ProviderKind::Gemini
        | ProviderKind::Ollama
        | ProviderKind::Azure
        | ProviderKind::Vertex
        | ProviderKind::Bedrock
        | ProviderKind::Demo => return Ok(None),
    };
    http::base(given, own.unwrap_or(openai::DEFAULT_BASE_URL)).map(Some)
}

impl AudioClient {
    /// Prepares requests to a provider; `None` if it has another API than OpenAI's.
    ///
    /// # Errors
    ///
    /// If the provider's settings are invalid.
    pub fn new(name: &str, guard: &Guard, provider: &Provider) -> Result<Option<Self>, Error> {
        let Some(base) = base_url(name, provider)? else { return Ok(None) };
        let key = http::key(AUTHORIZATION, "Bearer ", provider.api_key.as_ref())?;
        let headers = provider.extras.header_map()?;
        Ok(Some(Self { name: name.to_owned(), guard: guard.clone(), base, key, headers }))
    }

    /// Asks for a transcription. `fields` are the other fields of the form. The file's name is not
    /// sent: servers need only its ending.
    ///
    /// # Errors
    ///
    /// If the recording is too large or of a kind that the server does not take, or the provider
    /// does not answer with a transcription.
    pub async fn transcribe(
        &self,
        model: &str,
        recording: &Recording,
        fields: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<Response, AudioError> {
        let Recording { media_type, content } = recording;
        if content.len() > MAX_RECORDING_BYTES {
            return Err(AudioError::TooLarge(content.len()));
        }
        let ending = extension(media_type);
        // Servers of Whisper convert whatever their tools can read.
        let takes_all = self.name == servers::WHISPER && ending != "bin";
        if !takes_all && !FORMATS.contains(&ending) {
            return Err(AudioError::Format(media_type.clone()));
        }
        let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let part = Part::stream_with_length(Body::from(content.clone()), length)
            .file_name(format!("recording.{ending}"))
            .mime_str(media_type)
            .map_err(|_| AudioError::Format(media_type.clone()))?;
        let mut form = Form::new().text("model", model.to_owned());
        for (name, value) in fields {
            form = form.text((*name).to_owned(), (*value).to_owned());
        }
        let url = http::below(&self.base, &["audio", "transcriptions"]);
        let request = self.guard.client_for_secret(&url).map_err(Error::from)?.post(url);
        self.send(request.multipart(form.part("file", part)), model, timeout).await
    }

    /// Asks for speech, with a body as OpenAI documents it. The timeout covers the whole sound.
    ///
    /// # Errors
    ///
    /// If the provider does not answer with sound.
    pub async fn speak(&self, body: &Value, timeout: Duration) -> Result<Response, AudioError> {
        let url = http::below(&self.base, &["audio", "speech"]);
        let request = self.guard.client_for_secret(&url).map_err(Error::from)?.post(url);
        self.send(request.json(body), body["model"].as_str().unwrap_or_default(), timeout).await
    }

    async fn send(
        &self,
        mut request: reqwest::RequestBuilder,
        model: &str,
        timeout: Duration,
    ) -> Result<Response, AudioError> {
        request = request.headers(self.headers.clone()).timeout(timeout);
        if let Some((name, key)) = &self.key {
            request = request.header(name, key.clone());
        }
        let response = request.send().await.map_err(broken)?;
        match response.status().as_u16() {
            200..=299 => Ok(response),
            401 | 403 => Err(AudioError::Key),
            429 => Err(AudioError::RateLimited),
            status => {
                let body = read(response, MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
                Err(AudioError::Refused { status, message: self.clean(&body, model) })
            }
        }
    }

    /// Words of a provider without secrets.
    fn clean(&self, body: &[u8], model: &str) -> String {
        let Ok(model) = format!("{}:{model}", self.name).parse::<ModelId>() else {
            return String::new();
        };
        let key = self.key.as_ref().and_then(|(_, value)| value.to_str().ok());
        let key = key.map(|value| value.trim_start_matches("Bearer "));
        let request = Request::new(model, Chat::default(), Instant::now());
        clean(&text_of_body(body), key, &request)
    }
}

/// Reads a transcription in any format.
///
/// # Errors
///
/// If it breaks off or is too large.
pub async fn read_transcription(response: Response) -> Result<Vec<u8>, AudioError> {
    read(response, MAX_TRANSCRIPT_BYTES).await.map_err(|_| AudioError::Unreadable)
}

fn broken(error: reqwest::Error) -> AudioError {
    if error.is_timeout() {
        return AudioError::Timeout;
    }
    match http::unreachable(error) {
        Error::Unavailable { .. } => AudioError::Unreachable,
        setup => AudioError::Setup(setup),
    }
}

#[cfg(test)]
mod tests;
