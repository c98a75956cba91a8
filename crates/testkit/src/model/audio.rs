//! Strict servers of sound: transcriptions and speech, as vendors with OpenAI's API have them.
//!
//! | rule | who has it | source |
//! |---|---|---|
//! | a file has at most 25 MiB, else 413 | OpenAI, Groq | <https://platform.openai.com/docs/guides/speech-to-text>, <https://console.groq.com/docs/speech-to-text> |
//! | the format is told by the file's ending, else 400 | all | as above |
//! | `gpt-4o-transcribe` and its like answer only in `json` | OpenAI | <https://platform.openai.com/docs/api-reference/audio/createTranscription> |
//! | no `srt` and `vtt` | Groq | <https://console.groq.com/docs/speech-to-text> |
//! | no `response_format` | Mistral | <https://docs.mistral.ai/api/endpoint/audio/transcriptions> |
//! | a field that is not known is refused | all here | a server may ignore it, or not |
//! | a text to speak has at most 4,096 characters | OpenAI | <https://platform.openai.com/docs/api-reference/audio/createSpeech> |

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::wire;
use crate::http::{LOCALHOST, Server};
use crate::scratch::lock;

/// What a spoken text becomes.
pub const SOUND: &[u8] = b"ID3 something that sounds";

const MAX_FILE_BYTES: usize = 25 * 1024 * 1024;
const MAX_TEXT_CHARS: usize = 4_096;
const ENDINGS: [&str; 9] = ["flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "ogg", "wav", "webm"];
const SPEECH_FIELDS: [&str; 6] =
    ["model", "input", "voice", "response_format", "speed", "instructions"];
/// Length of each recording, in seconds.
const SECONDS: f64 = 2.5;

/// Vendor whose rules hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AudioVendor {
    #[default]
    OpenAi,
    Groq,
    Mistral,
}

/// A request as the server got it.
#[derive(Debug, Clone)]
pub struct AudioRequest {
    /// What was sent as bearer token.
    pub key: Option<String>,
    /// Fields of the form or of the body, except the file.
    pub fields: Value,
    /// Name and content of the file.
    pub file: Option<(String, Bytes)>,
}

#[derive(Debug, Default)]
struct Shared {
    vendor: AudioVendor,
    text: Mutex<String>,
    /// Status of all answers from now on.
    failure: Mutex<Option<StatusCode>>,
    requests: Mutex<Vec<AudioRequest>>,
    /// Whether answers wait.
    is_held: watch::Sender<bool>,
}

/// A server of sound on a loopback port; it is gone when dropped.
#[derive(Debug)]
pub struct FakeAudio {
    server: Server,
    shared: Arc<Shared>,
}

impl FakeAudio {
    /// Hears this text in each recording.
    pub async fn start(vendor: AudioVendor, text: &str) -> anyhow::Result<Self> {
        let text = Mutex::new(text.to_owned());
        let shared = Arc::new(Shared { vendor, text, ..Shared::default() });
        let router = Router::new()
            .route("/v1/audio/transcriptions", post(transcribe))
            .route("/v1/audio/speech", post(speak))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        Ok(Self { server: Server::start_on(LOCALHOST, router).await?, shared })
    }

    /// The base URL, as one configures a provider: `http://127.0.0.1:…/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.server.addr())
    }

    /// Answers with this status from now on.
    pub fn fail(&self, status: u16) {
        *lock(&self.shared.failure) = StatusCode::from_u16(status).ok();
    }

    /// Lets answers wait, or go.
    pub fn hold(&self, is_held: bool) {
        self.shared.is_held.send_replace(is_held);
    }

    /// Requests that were answered, or refused by a rule.
    #[must_use]
    pub fn requests(&self) -> Vec<AudioRequest> {
        lock(&self.shared.requests).clone()
    }
}

/// Refusal in OpenAI's form.
fn refusal(status: StatusCode, message: &str) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (status, json, wire::error(status.as_u16(), message)).into_response()
}

fn invalid(message: &str) -> Response {
    refusal(StatusCode::BAD_REQUEST, message)
}

fn key_of(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::to_owned)
}

impl Shared {
    /// Keeps a request; returns why it is refused.
    async fn note(&self, request: AudioRequest) -> Option<Response> {
        let has_key = request.key.is_some();
        lock(&self.requests).push(request);
        self.is_held.subscribe().wait_for(|is_held| !is_held).await.ok();
        if !has_key {
            return Some(refusal(StatusCode::UNAUTHORIZED, "You didn't provide an API key."));
        }
        (*lock(&self.failure)).map(|status| refusal(status, "it does not work"))
    }
}

async fn transcribe(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let key = key_of(request.headers());
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Ok(boundary) = multer::parse_boundary(content_type) else {
        return invalid("Could not parse multipart form");
    };
    let mut form = multer::Multipart::new(request.into_body().into_data_stream(), boundary);
    let (mut fields, mut file) = (json!({}), None);
    loop {
        let field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(error) => return invalid(&format!("Could not parse multipart form: {error}")),
        };
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" {
            let file_name = field.file_name().unwrap_or_default().to_owned();
            match field.bytes().await {
                Ok(content) => file = Some((file_name, content)),
                Err(error) => return invalid(&error.to_string()),
            }
        } else {
            match field.text().await {
                Ok(text) => fields[name] = text.into(),
                Err(error) => return invalid(&error.to_string()),
            }
        }
    }
    let request = AudioRequest { key, fields: fields.clone(), file: file.clone() };
    if let Some(failure) = shared.note(request).await {
        return failure;
    }
    match check_form(shared.vendor, &fields, file.as_ref()) {
        Ok(()) => transcription(&shared, &fields),
        Err(refused) => refused,
    }
}

/// Checks a form by the rules of a vendor.
#[expect(clippy::result_large_err, reason = "the error is the response")]
fn check_form(
    vendor: AudioVendor,
    fields: &Value,
    file: Option<&(String, Bytes)>,
) -> Result<(), Response> {
    let Some((name, content)) = file else { return Err(invalid("file: field required")) };
    if content.len() > MAX_FILE_BYTES {
        let message = "Maximum content size limit (26214400) exceeded";
        return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    if !ENDINGS.contains(&ending) {
        let message = format!("Unrecognized file format. Supported formats: {ENDINGS:?}");
        return Err(invalid(&message));
    }
    let model = fields["model"].as_str().unwrap_or_default();
    let known = match vendor {
        AudioVendor::OpenAi => ["whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe"],
        AudioVendor::Groq => ["whisper-large-v3", "whisper-large-v3-turbo", ""],
        AudioVendor::Mistral => ["voxtral-mini-latest", "voxtral-mini-2507", ""],
    };
    if model.is_empty() || !known.contains(&model) {
        return Err(refusal(StatusCode::NOT_FOUND, "The model does not exist"));
    }
    let allowed: &[&str] = match vendor {
        AudioVendor::OpenAi | AudioVendor::Groq => &[
            "model",
            "language",
            "prompt",
            "response_format",
            "temperature",
            "timestamp_granularities[]",
        ],
        AudioVendor::Mistral => &["model", "language", "temperature", "timestamp_granularities[]"],
    };
    let names = fields.as_object().into_iter().flat_map(|fields| fields.keys());
    if let Some(unknown) = names.into_iter().find(|name| !allowed.contains(&name.as_str())) {
        return Err(invalid(&format!("Unknown field: {unknown}")));
    }
    let formats: &[&str] = match vendor {
        AudioVendor::OpenAi if model == "whisper-1" => {
            &["json", "text", "srt", "verbose_json", "vtt"]
        }
        AudioVendor::Groq => &["json", "text", "verbose_json"],
        AudioVendor::OpenAi | AudioVendor::Mistral => &["json"],
    };
    match fields["response_format"].as_str() {
        Some(format) if !formats.contains(&format) => {
            Err(invalid(&format!("response_format '{format}' is not compatible with '{model}'")))
        }
        Some(_) | None => Ok(()),
    }
}

/// The answer, with what each vendor counts.
fn transcription(shared: &Shared, fields: &Value) -> Response {
    let text = lock(&shared.text).clone();
    let verbose = fields["response_format"] == "verbose_json";
    let is_whisper = fields["model"] == "whisper-1";
    Json(match shared.vendor {
        AudioVendor::OpenAi | AudioVendor::Groq if verbose => json!({
            "task": "transcribe", "language": "english", "duration": SECONDS, "text": text,
            "segments": [{"id": 0, "start": 0.0, "end": SECONDS, "text": text}],
        }),
        AudioVendor::OpenAi if is_whisper => {
            json!({"text": text, "usage": {"type": "duration", "seconds": SECONDS.ceil()}})
        }
        AudioVendor::OpenAi => json!({"text": text, "usage": {
            "type": "tokens", "input_tokens": 1_000, "output_tokens": 20, "total_tokens": 1_020,
            "input_token_details": {"text_tokens": 0, "audio_tokens": 1_000},
        }}),
        AudioVendor::Groq => json!({"text": text, "x_groq": {"id": "req_1"}}),
        AudioVendor::Mistral => json!({
            "model": fields["model"], "text": text, "language": null, "segments": [],
            "usage": {"prompt_audio_seconds": 3, "prompt_tokens": 4, "completion_tokens": 5,
                "total_tokens": 9},
        }),
    })
    .into_response()
}

async fn speak(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let request = AudioRequest { key: key_of(&headers), fields: body.clone(), file: None };
    if let Some(failure) = shared.note(request).await {
        return failure;
    }
    let mut names = body.as_object().into_iter().flat_map(|fields| fields.keys());
    if let Some(unknown) = names.find(|name| !SPEECH_FIELDS.contains(&name.as_str())) {
        return invalid(&format!("Unknown field: {unknown}"));
    }
    let length = body["input"].as_str().map_or(0, |text| text.chars().count());
    if !(1..=MAX_TEXT_CHARS).contains(&length) {
        return invalid("input: String should have at most 4096 characters");
    }
    if body["model"].as_str().is_none() || body["voice"].as_str().is_none() {
        return invalid("model and voice: field required");
    }
    ([(header::CONTENT_TYPE, "audio/mpeg")], SOUND).into_response()
}
