//! The response object of the Responses API.

use holdfast_types::{MessageId, Usage};
use serde::Serialize;

use super::super::sse::created_at;
use crate::api_error::ApiError;

/// Fields that stay the same in all events of a response.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    pub message: MessageId,
    pub model: String,
    pub instructions: Option<String>,
    /// Id of the response that it continues from.
    pub previous: Option<String>,
    pub user: Option<String>,
}

impl ResponseHead {
    /// Id of the output item for a part.
    pub fn item_id(&self, part: usize) -> String {
        format!("msg_{}_{part}", self.message.as_uuid().simple())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    InProgress,
    Completed,
    Failed,
}

#[derive(Debug, Serialize)]
pub struct ResponseObject<'a> {
    id: String,
    object: &'static str,
    created_at: u64,
    status: ResponseStatus,
    error: Option<ErrorObject<'a>>,
    incomplete_details: Option<()>,
    instructions: Option<&'a str>,
    max_output_tokens: Option<u64>,
    model: &'a str,
    output: Vec<OutputMessage<'a>>,
    parallel_tool_calls: bool,
    previous_response_id: Option<&'a str>,
    reasoning: ReasoningOptions,
    store: bool,
    temperature: Option<f64>,
    text: TextOptions,
    tool_choice: &'static str,
    tools: [(); 0],
    top_p: Option<f64>,
    truncation: &'static str,
    usage: Option<TokenUsage>,
    user: Option<&'a str>,
    metadata: Metadata,
}

#[derive(Debug, Serialize)]
struct ErrorObject<'a> {
    code: &'static str,
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct ReasoningOptions {
    effort: Option<()>,
    summary: Option<()>,
}

#[derive(Debug, Serialize)]
struct TextOptions {
    format: TextFormat,
}

#[derive(Debug, Serialize)]
struct TextFormat {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Debug, Serialize)]
struct Metadata {}

#[derive(Debug, Serialize)]
pub struct OutputMessage<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    status: ResponseStatus,
    role: &'static str,
    content: Vec<OutputText<'a>>,
}

#[derive(Debug, Serialize)]
pub struct OutputText<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
    annotations: [(); 0],
}

#[derive(Debug, Serialize)]
struct TokenUsage {
    input_tokens: u64,
    input_tokens_details: InputTokenDetails,
    output_tokens: u64,
    output_tokens_details: OutputTokenDetails,
    total_tokens: u64,
}

#[derive(Debug, Serialize)]
struct InputTokenDetails {
    cached_tokens: u64,
}

#[derive(Debug, Serialize)]
struct OutputTokenDetails {
    reasoning_tokens: u64,
}

impl<'a> ResponseObject<'a> {
    /// Response whose output has one message for each text.
    pub fn new(frame: &'a ResponseHead, status: ResponseStatus, texts: &[&'a str]) -> Self {
        let id = frame.message.as_uuid();
        let items = texts.iter().enumerate();
        let output = items.map(|(part, text)| {
            OutputMessage::new(frame, part, ResponseStatus::Completed, Some(text))
        });
        Self {
            id: format!("resp_{}", id.simple()),
            object: "response",
            created_at: created_at(id),
            status,
            error: None,
            incomplete_details: None,
            instructions: frame.instructions.as_deref(),
            max_output_tokens: None,
            model: &frame.model,
            output: output.collect(),
            parallel_tool_calls: true,
            previous_response_id: frame.previous.as_deref(),
            reasoning: ReasoningOptions { effort: None, summary: None },
            store: true,
            temperature: None,
            text: TextOptions { format: TextFormat { kind: "text" } },
            tool_choice: "auto",
            tools: [],
            top_p: None,
            truncation: "disabled",
            usage: None,
            user: frame.user.as_deref(),
            metadata: Metadata {},
        }
    }

    pub fn with_usage(self, usage: Usage) -> Self {
        let usage = TokenUsage {
            input_tokens: usage.input,
            input_tokens_details: InputTokenDetails { cached_tokens: usage.cached },
            output_tokens: usage.output,
            output_tokens_details: OutputTokenDetails { reasoning_tokens: 0 },
            total_tokens: usage.input.saturating_add(usage.output),
        };
        Self { usage: Some(usage), ..self }
    }

    pub fn with_error(self, refusal: &'a ApiError) -> Self {
        let error = ErrorObject { code: refusal.code_or_type(), message: refusal.message() };
        Self { error: Some(error), ..self }
    }
}

impl<'a> OutputMessage<'a> {
    /// Output message for a part; without a text it has no content yet.
    pub fn new(
        frame: &ResponseHead,
        part: usize,
        status: ResponseStatus,
        text: Option<&'a str>,
    ) -> Self {
        Self {
            id: frame.item_id(part),
            kind: "message",
            status,
            role: "assistant",
            content: text.map(OutputText::new).into_iter().collect(),
        }
    }
}

impl<'a> OutputText<'a> {
    pub const fn new(text: &'a str) -> Self {
        Self { kind: "output_text", text, annotations: [] }
    }
}
