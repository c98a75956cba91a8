//! The response object of the Responses API.

use holdfast_session::TurnOutcome;
use holdfast_types::{AnswerFormat, AnswerOptions, ClientCall, Effort, MessageId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use super::super::{
    sse::created_at,
    tools::{shown_choice, shown_tools},
};
use crate::{
    api_error::ApiError,
    follow::{EarlyEnd, TurnResult},
};

/// What a request says and its response repeats. Stored with the message.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseFields {
    pub model: String,
    pub instructions: Option<String>,
    /// Id of the response that it continues from.
    pub previous: Option<String>,
    pub user: Option<String>,
    pub metadata: Map<String, Value>,
    /// Whether the response may be read again.
    pub store: bool,
    pub background: bool,
    /// Id of its conversation.
    pub conversation: Option<String>,
    pub truncation: Option<String>,
}

/// Fields that stay the same in all events of a response.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    pub message: MessageId,
    pub options: Box<AnswerOptions>,
    pub fields: ResponseFields,
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
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

impl ResponseStatus {
    /// Status of a turn that ended.
    pub fn of_outcome(finished: &TurnResult) -> Self {
        match finished.outcome {
            TurnOutcome::Completed => Self::of(finished),
            TurnOutcome::Cancelled => Self::Cancelled,
            TurnOutcome::Interrupted | TurnOutcome::Failed | TurnOutcome::Dead => Self::Failed,
        }
    }

    /// Status of a turn with an answer.
    pub fn of(finished: &TurnResult) -> Self {
        if finished.early_end().is_some() { Self::Incomplete } else { Self::Completed }
    }
}

#[derive(Debug, Serialize)]
pub struct ResponseObject<'a> {
    id: String,
    object: &'static str,
    created_at: u64,
    status: ResponseStatus,
    background: bool,
    conversation: Option<ConversationRef<'a>>,
    error: Option<ErrorObject<'a>>,
    incomplete_details: Option<IncompleteDetails>,
    instructions: Option<&'a str>,
    max_output_tokens: Option<u32>,
    model: &'a str,
    output: Vec<OutputItem<'a>>,
    parallel_tool_calls: bool,
    previous_response_id: Option<&'a str>,
    reasoning: ReasoningOptions,
    store: bool,
    temperature: Option<&'a Number>,
    text: TextOptions,
    tool_choice: Value,
    tools: Vec<Value>,
    top_p: Option<&'a Number>,
    truncation: &'a str,
    usage: Option<TokenUsage>,
    user: Option<&'a str>,
    metadata: &'a Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct IncompleteDetails {
    reason: &'static str,
}

#[derive(Debug, Serialize)]
struct ErrorObject<'a> {
    code: &'static str,
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct ReasoningOptions {
    effort: Option<Effort>,
    summary: Option<()>,
}

#[derive(Debug, Serialize)]
struct TextOptions {
    format: Value,
}

#[derive(Debug, Serialize)]
struct ConversationRef<'a> {
    id: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum OutputItem<'a> {
    Message(OutputMessage<'a>),
    Call(OutputCall<'a>),
}

/// Call of a client's tool.
#[derive(Debug, Serialize)]
pub struct OutputCall<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    status: ResponseStatus,
    call_id: &'a str,
    name: &'a str,
    arguments: &'a str,
}

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
        let (id, options, fields) = (frame.message.as_uuid(), &frame.options, &frame.fields);
        let items = texts.iter().enumerate();
        let output = items.map(|(part, text)| {
            OutputItem::Message(OutputMessage::new(
                frame,
                part,
                ResponseStatus::Completed,
                Some(text),
            ))
        });
        Self {
            id: format!("resp_{}", id.simple()),
            object: "response",
            created_at: created_at(id),
            status,
            background: fields.background,
            conversation: fields.conversation.as_deref().map(|id| ConversationRef { id }),
            error: None,
            incomplete_details: None,
            instructions: fields.instructions.as_deref(),
            max_output_tokens: options.max_output,
            model: &fields.model,
            output: output.collect(),
            parallel_tool_calls: options.parallel_tool_calls.unwrap_or(true),
            previous_response_id: fields.previous.as_deref(),
            reasoning: ReasoningOptions { effort: options.effort, summary: None },
            store: fields.store,
            temperature: options.temperature.as_ref(),
            text: TextOptions { format: text_format(options.format.as_ref()) },
            tool_choice: shown_choice(options.tool_choice.as_ref()),
            tools: shown_tools(&options.tools),
            top_p: options.top_p.as_ref(),
            truncation: fields.truncation.as_deref().unwrap_or("disabled"),
            usage: None,
            user: fields.user.as_deref(),
            metadata: &fields.metadata,
        }
    }

    /// Response of a turn with an answer.
    pub fn of_result(frame: &'a ResponseHead, finished: &'a TurnResult) -> Self {
        let texts = [finished.text.as_str()];
        let has_no_text = finished.text.is_empty() && !finished.calls.is_empty();
        let texts = if has_no_text { &[][..] } else { &texts };
        Self::new(frame, ResponseStatus::of(finished), texts).with_end(finished)
    }

    /// Adds the calls of the client's tools, the usage, and why the answer ended early if it did.
    pub fn with_end(self, finished: &'a TurnResult) -> Self {
        let incomplete_details = finished.early_end().map(|end| IncompleteDetails {
            reason: match end {
                EarlyEnd::Length => "max_output_tokens",
                EarlyEnd::ContentFilter => "content_filter",
            },
        });
        let ended = Self { incomplete_details, ..self };
        ended.with_calls(&finished.calls).with_usage(finished.usage)
    }

    /// Adds the calls of the client's tools to the output.
    fn with_calls(mut self, calls: &'a [ClientCall]) -> Self {
        let items = calls
            .iter()
            .map(|call| OutputItem::Call(OutputCall::new(call, ResponseStatus::Completed)));
        self.output.extend(items);
        self
    }

    fn with_usage(self, usage: Usage) -> Self {
        let usage = TokenUsage {
            input_tokens: usage.input,
            input_tokens_details: InputTokenDetails { cached_tokens: usage.cached },
            output_tokens: usage.output,
            output_tokens_details: OutputTokenDetails { reasoning_tokens: usage.reasoning },
            total_tokens: usage.input.saturating_add(usage.output),
        };
        Self { usage: Some(usage), ..self }
    }

    pub fn with_error(self, refusal: &'a ApiError) -> Self {
        let error = ErrorObject { code: refusal.code_or_type(), message: refusal.message() };
        Self { error: Some(error), ..self }
    }
}

fn text_format(format: Option<&AnswerFormat>) -> Value {
    match format {
        Some(AnswerFormat::JsonObject) => json!({ "type": "json_object" }),
        Some(AnswerFormat::JsonSchema(named)) => {
            let mut format = json!(named);
            format["type"] = "json_schema".into();
            format
        }
        None => json!({ "type": "text" }),
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

impl<'a> OutputCall<'a> {
    /// Output item for a call; one in progress has no arguments yet.
    pub fn new(call: &'a ClientCall, status: ResponseStatus) -> Self {
        let arguments = match status {
            ResponseStatus::Queued | ResponseStatus::InProgress => "",
            ResponseStatus::Completed
            | ResponseStatus::Incomplete
            | ResponseStatus::Failed
            | ResponseStatus::Cancelled => &call.arguments,
        };
        Self {
            id: call_item_id(call),
            kind: "function_call",
            status,
            call_id: &call.id,
            name: &call.name,
            arguments,
        }
    }
}

/// Id of the output item for a call.
pub fn call_item_id(call: &ClientCall) -> String {
    format!("fc_{}", call.id.strip_prefix("call_").unwrap_or(&call.id))
}

impl<'a> OutputText<'a> {
    pub const fn new(text: &'a str) -> Self {
        Self { kind: "output_text", text, annotations: [] }
    }
}
