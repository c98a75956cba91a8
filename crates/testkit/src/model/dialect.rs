//! The APIs that the fake model speaks besides Chat Completions.
//!
//! A request is read into the form of Chat Completions, so that scripts, checks and tests are the same
//! for all; a reply is written in the API's own form, always as a stream.

mod anthropic;
mod converse;
mod gemini;
mod ollama;
mod responses;

use std::collections::VecDeque;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::reply::{ToolCall, Usage};
pub(super) use gemini::call_signature;

/// API of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    ChatCompletions,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
    /// Chat Completions of Azure OpenAI.
    Azure,
    /// Responses of Azure OpenAI.
    AzureResponses,
    /// Gemini on Vertex AI.
    Vertex,
    /// Anthropic's models on Vertex AI.
    VertexClaude,
    /// Amazon Bedrock.
    Converse,
}

/// A reply to be written.
pub(super) struct Message<'a> {
    pub number: u64,
    pub text: &'a str,
    pub calls: &'a [ToolCall],
    pub reasoning: &'a str,
    /// The test's reason to stop, in the API's words.
    pub finish: Option<&'a str>,
    pub usage: Usage,
    pub pieces: usize,
}

impl Dialect {
    /// Whether requests have the form of Chat Completions.
    pub(super) const fn is_chat_completions(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Azure)
    }

    /// The request's messages and tools, as Chat Completions has them.
    pub(super) fn chat_form(self, body: &Value) -> Value {
        match self {
            Self::ChatCompletions | Self::Azure => body.clone(),
            Self::Responses | Self::AzureResponses => responses::chat_form(body),
            Self::Anthropic | Self::VertexClaude => anthropic::chat_form(body),
            Self::Gemini | Self::Vertex => gemini::chat_form(body),
            Self::Ollama => ollama::chat_form(body),
            Self::Converse => converse::chat_form(body),
        }
    }

    /// The model that a path names.
    pub(super) fn model_in_path(self, path: &str) -> Option<String> {
        let after = |segment: &str| {
            let mut segments = path.split('/').skip_while(|one| *one != segment);
            segments.nth(1)
        };
        let name = match self {
            Self::Gemini | Self::Vertex | Self::VertexClaude => {
                after("models")?.split(':').next()?
            }
            Self::Azure => after("deployments")?,
            Self::Converse => after("model")?,
            Self::ChatCompletions
            | Self::Responses
            | Self::Anthropic
            | Self::Ollama
            | Self::AzureResponses => return None,
        };
        Some(percent_decode_str(name).decode_utf8_lossy().into_owned())
    }

    /// The stream of a reply; `None` for Chat Completions.
    pub(super) fn events(self, message: &Message<'_>) -> Option<Vec<Bytes>> {
        Some(match self {
            Self::ChatCompletions | Self::Azure => return None,
            Self::Responses | Self::AzureResponses => responses::events(message),
            Self::Anthropic | Self::VertexClaude => anthropic::events(message),
            Self::Gemini => gemini::events(message, gemini::CallIds::Given),
            Self::Vertex => gemini::events(message, gemini::CallIds::None),
            Self::Ollama => ollama::events(message),
            Self::Converse => converse::events(message),
        })
    }

    /// Number of events at the end of a stream that say that the reply is whole.
    pub(super) const fn closing_events(self) -> usize {
        match self {
            Self::ChatCompletions | Self::Azure => 0,
            Self::Anthropic | Self::VertexClaude | Self::Converse => 2,
            Self::Responses | Self::AzureResponses | Self::Gemini | Self::Vertex | Self::Ollama => {
                1
            }
        }
    }

    /// The body of an error, in the API's form.
    pub(super) fn error(self, status: u16, code: &str, text: &str) -> String {
        let error = match self {
            Self::ChatCompletions | Self::Responses | Self::AzureResponses => json!({"error": {
                "message": text, "type": "invalid_request_error", "param": null, "code": code,
            }}),
            Self::Azure => {
                let mut error = json!({"message": text, "type": null, "param": null, "code": code});
                if code == "content_filter" {
                    error["status"] = status.into();
                    error["innererror"] = json!({
                        "code": "ResponsibleAIPolicyViolation",
                        "content_filter_result": {"hate": {"filtered": true, "severity": "high"}},
                    });
                }
                json!({ "error": error })
            }
            Self::Anthropic | Self::VertexClaude => {
                json!({"type": "error", "error": {"type": code, "message": text}})
            }
            Self::Gemini | Self::Vertex => {
                json!({"error": {"code": status, "message": text, "status": code}})
            }
            Self::Ollama => json!({ "error": text }),
            // Its code is in a header.
            Self::Converse => json!({ "message": text }),
        };
        error.to_string()
    }

    /// Headers of an error that name its kind.
    pub(super) fn error_headers(self, code: &str) -> Vec<(String, String)> {
        match self {
            Self::Converse => {
                let value = format!("{code}:http://internal.amazon.com/coral/com.amazon.bedrock/");
                vec![("x-amzn-errortype".to_owned(), value)]
            }
            Self::ChatCompletions
            | Self::Responses
            | Self::Anthropic
            | Self::Gemini
            | Self::Ollama
            | Self::Azure
            | Self::AzureResponses
            | Self::Vertex
            | Self::VertexClaude => Vec::new(),
        }
    }

    /// Names the kind of a stream: Ollama sends lines, Bedrock frames, the others events.
    pub(super) fn label(self, mut response: Response) -> Response {
        let kind = match self {
            Self::Ollama => "application/x-ndjson",
            Self::Converse => "application/vnd.amazon.eventstream",
            Self::ChatCompletions
            | Self::Responses
            | Self::Anthropic
            | Self::Gemini
            | Self::Azure
            | Self::AzureResponses
            | Self::Vertex
            | Self::VertexClaude => return response,
        };
        let is_stream = |value: &HeaderValue| value == "text/event-stream";
        if response.headers().get(header::CONTENT_TYPE).is_some_and(is_stream) {
            let kind = HeaderValue::from_static(kind);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    }
}

/// What a vendor signs, so that it recognises it when it comes back: any change makes another one.
pub(super) fn signature(signed: &str) -> String {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("signed-{:016x}", signed.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
}

/// An assistant's message in the form of Chat Completions.
fn assistant(text: &str, calls: Vec<Value>) -> Value {
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// A call in the form of Chat Completions.
fn call(id: &str, name: &Value, arguments: String) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// A tool in the form of Chat Completions.
fn tool(name: &Value, schema: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": schema}})
}

/// Ids for calls of an API that has none: a result belongs to the oldest open call of its name.
#[derive(Default)]
struct OpenCalls {
    count: usize,
    open: VecDeque<(String, String)>,
}

impl OpenCalls {
    fn begin(&mut self, name: &str, given: Option<&str>) -> String {
        self.count += 1;
        let id = given.map_or_else(|| format!("{name}-{}", self.count), str::to_owned);
        self.open.push_back((name.to_owned(), id.clone()));
        id
    }

    fn result_of(&mut self, name: &str, given: Option<&str>) -> String {
        let is_it = |(open, id): &(String, String)| given.map_or(open == name, |given| id == given);
        let found = self.open.iter().position(is_it).and_then(|at| self.open.remove(at));
        found.map_or_else(|| format!("no open call of {name}"), |(_, id)| id)
    }
}

/// An event with its type, as servers of Anthropic and of Responses send it.
fn typed_event(data: &Value) -> Bytes {
    let kind = data["type"].as_str().unwrap_or_default();
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}
