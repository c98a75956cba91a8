//! The bytes of the Chat Completions API: JSON, or server-sent events.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::{Dialect, Message as DialectMessage, signature};
use super::reply::{Reply, ReplyKind, ToolCall, Usage};
use crate::http::broken;

const MODEL: &str = "fake-model";
/// Default of the pieces that a text is streamed in at most, so that long answers stay cheap.
pub(super) const MAX_TEXT_CHUNKS: usize = 16;
/// A sent chunk needs a moment to leave before the connection is cut.
const FLUSH_DELAY: Duration = Duration::from_millis(20);

/// What must be known of a request to answer it.
#[derive(Debug, Deserialize)]
pub(super) struct Essentials<'a> {
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(default)]
    content: Value,
}

impl Essentials<'_> {
    /// Number of replies after the last message of the user.
    pub(super) fn replies(&self) -> usize {
        let newest = self.messages.iter().rev().take_while(|message| message.role != "user");
        newest.filter(|message| message.role == "assistant").count()
    }

    pub(super) fn last_user_text(&self) -> String {
        let last = self.messages.iter().rev().find(|message| message.role == "user");
        last.map(|message| text(&message.content)).unwrap_or_default()
    }

    fn wants_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }
}

/// The text of a message's content, which is a string or a list of parts.
pub(super) fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

/// A list of these models, or of the one that answers.
pub(super) fn models(listed: Option<Vec<Value>>) -> axum::Json<Value> {
    let data = listed.unwrap_or_else(|| vec![json!({"id": MODEL, "object": "model"})]);
    axum::Json(json!({"object": "list", "data": data}))
}

pub(super) fn error(code: u16, message: &str) -> String {
    let kind = match code {
        401 | 403 => "authentication_error",
        429 => "rate_limit_exceeded",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    json!({"error": {"message": message, "type": kind, "code": kind, "param": null}}).to_string()
}

/// What an answer depends on besides the reply.
pub(super) struct Asked<'a> {
    pub(super) number: u64,
    pub(super) dialect: Dialect,
    pub(super) request: &'a Essentials<'a>,
    /// Size of the request's body.
    pub(super) bytes: usize,
}

pub(super) async fn respond(reply: Reply, asked: &Asked<'_>, pace: Duration) -> Response {
    let &Asked { number, dialect, request, bytes: request_bytes } = asked;
    let usage = reply.usage;
    let (pieces, pace) = (reply.pieces, reply.pace.unwrap_or(pace));
    match reply.what {
        ReplyKind::Message { text, calls, reasoning } => {
            let usage = usage.unwrap_or_else(|| guess(request_bytes, &text, &calls));
            let message = DialectMessage {
                number,
                text: &text,
                calls: &calls,
                reasoning: &reasoning,
                finish: reply.finish.as_deref(),
                usage,
                pieces,
            };
            if let Some(events) = dialect.events(&message) {
                return stream(events, pace);
            }
            let finish = reply.finish.as_deref().unwrap_or(match calls.len() {
                0 => "stop",
                _ => "tool_calls",
            });
            if !request.stream {
                return json_body(whole(number, &text, &calls, finish, usage));
            }
            let mut events = deltas(number, &text, &calls, pieces);
            if dialect == Dialect::Azure {
                events.insert(0, prompt_filter_event());
            }
            if !reasoning.is_empty() {
                // Servers name it in one of these ways.
                let signed = signature(&reasoning);
                let detail = json!({
                    "type": "reasoning.text", "index": 0, "text": reasoning, "signature": signed,
                });
                let thought =
                    json!({ "reasoning_content": reasoning, "reasoning_details": [detail] });
                let beginning = usize::from(dialect == Dialect::Azure) + 1;
                events.insert(beginning, event(number, &thought.to_string(), None));
            }
            events.push(event(number, "{}", Some(finish)));
            if request.wants_usage() {
                events.push(usage_event(number, usage));
            }
            events.push(Bytes::from_static(b"data: [DONE]\n\n"));
            stream(events, pace)
        }
        ReplyKind::CutMidStream(text) if request.stream => {
            let (calls, reasoning, finish) = (&[][..], "", None);
            let usage = guess(request_bytes, &text, calls);
            let text = text.as_str();
            let message = DialectMessage { number, text, calls, reasoning, finish, usage, pieces };
            let mut events =
                dialect.events(&message).unwrap_or_else(|| deltas(number, text, &[], pieces));
            events.truncate(events.len() - dialect.closing_events());
            cut(events, pace)
        }
        ReplyKind::CutMidStream(text) => {
            let whole = whole(number, &text, &[], "stop", guess(request_bytes, &text, &[]));
            cut(vec![Bytes::from(whole).slice(..60)], pace)
        }
        ReplyKind::Malformed(raw) if request.stream => stream(vec![Bytes::from(raw)], pace),
        ReplyKind::Malformed(raw) => json_body(raw),
        ReplyKind::Status { code, headers, body } => refusal(code, headers, body, dialect),
        ReplyKind::Hang(time) => {
            tokio::time::sleep(time).await;
            refusal(504, Vec::new(), None, dialect)
        }
    }
}

fn guess(request_bytes: usize, text: &str, calls: &[ToolCall]) -> Usage {
    let written = text.len() + calls.iter().map(|call| call.arguments.len()).sum::<usize>();
    Usage { prompt: request_bytes as u64 / 4, cached: 0, completion: written as u64 / 4 + 1 }
}

fn refusal(
    code: u16,
    headers: Vec<(String, String)>,
    body: Option<String>,
    dialect: Dialect,
) -> Response {
    let body = body.unwrap_or_else(|| match dialect {
        Dialect::ChatCompletions
        | Dialect::Responses
        | Dialect::Azure
        | Dialect::AzureResponses => error(code, "as the test wanted"),
        dialect => dialect.error(code, "error", "as the test wanted"),
    });
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn json_body(body: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn stream(events: Vec<Bytes>, pace: Duration) -> Response {
    let events = futures::stream::iter(events).map(Ok::<_, std::io::Error>);
    event_stream(if pace.is_zero() { Body::from_stream(events) } else { paced(events, pace) })
}

/// The events, and then a connection that ends without saying so.
fn cut(events: Vec<Bytes>, pace: Duration) -> Response {
    let events = futures::stream::iter(events).map(Ok::<_, std::io::Error>);
    let end = futures::stream::once(async {
        tokio::time::sleep(FLUSH_DELAY).await;
        Err(broken())
    });
    event_stream(paced(events.chain(end), pace))
}

fn paced<S>(events: S, pace: Duration) -> Body
where
    S: futures::Stream<Item = std::io::Result<Bytes>> + Send + 'static,
{
    Body::from_stream(events.enumerate().then(move |(n, event)| async move {
        if n > 0 && !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
        event
    }))
}

fn event_stream(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn whole(number: u64, text: &str, calls: &[ToolCall], finish: &str, usage: Usage) -> String {
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { json!(text) };
    let mut message = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        let calls: Vec<Value> = calls
            .iter()
            .map(|call| {
                json!({"id": call.id, "type": "function",
                       "function": {"name": call.name, "arguments": call.arguments}})
            })
            .collect();
        message["tool_calls"] = Value::Array(calls);
    }
    json!({
        "id": format!("chatcmpl-{number}"), "object": "chat.completion", "created": 0,
        "model": MODEL, "usage": usage_json(usage),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    })
    .to_string()
}

fn deltas(number: u64, text: &str, calls: &[ToolCall], most: usize) -> Vec<Bytes> {
    let mut events = vec![event(number, r#"{"role":"assistant","content":""}"#, None)];
    for piece in pieces(text, most) {
        events.push(event(number, &format!(r#"{{"content":{}}}"#, json!(piece)), None));
    }
    for (index, call) in calls.iter().enumerate() {
        let begin = json!({"tool_calls": [{"index": index, "id": call.id, "type": "function",
                           "function": {"name": call.name, "arguments": ""}}]});
        events.push(event(number, &begin.to_string(), None));
        for piece in pieces(&call.arguments, MAX_TEXT_CHUNKS) {
            let more = json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]});
            events.push(event(number, &more.to_string(), None));
        }
    }
    events
}

fn event(number: u64, delta: &str, finish: Option<&str>) -> Bytes {
    let finish = json!(finish);
    Bytes::from(format!(
        "data: {{\"id\":\"chatcmpl-{number}\",\"object\":\"chat.completion.chunk\",\"created\":0,\
         \"model\":\"{MODEL}\",\"choices\":[{{\"index\":0,\"delta\":{delta},\
         \"finish_reason\":{finish}}}]}}\n\n"
    ))
}

/// The first event of Azure's streams: what its filter says of the prompt, and no choice
/// (<https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-streaming>).
fn prompt_filter_event() -> Bytes {
    let results = json!([{"prompt_index": 0, "content_filter_results": {
        "hate": {"filtered": false, "severity": "safe"},
        "jailbreak": {"filtered": false, "detected": false},
    }}]);
    let event = json!({
        "id": "", "object": "", "created": 0, "model": "", "choices": [],
        "prompt_filter_results": results,
    });
    Bytes::from(format!("data: {event}\n\n"))
}

fn usage_event(number: u64, usage: Usage) -> Bytes {
    let usage = usage_json(usage);
    Bytes::from(format!(
        "data: {{\"id\":\"chatcmpl-{number}\",\"object\":\"chat.completion.chunk\",\"created\":0,\
         \"model\":\"{MODEL}\",\"choices\":[],\"usage\":{usage}}}\n\n"
    ))
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt, "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    })
}

/// Cuts a text into a few pieces, never within a character.
pub(super) fn pieces(text: &str, most: usize) -> Vec<&str> {
    let size = (text.len() / most.max(1)).max(8);
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let mut end = size.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, more) = rest.split_at(end);
        pieces.push(piece);
        rest = more;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_text_and_are_few() {
        for text in ["", "short", "zwölf Boxkämpfer jagen Viktor", &"long ✂ ".repeat(500)] {
            let pieces = pieces(text, MAX_TEXT_CHUNKS);
            assert_eq!(pieces.concat(), text);
            assert!(pieces.len() <= MAX_TEXT_CHUNKS + 1);
        }
    }
}
