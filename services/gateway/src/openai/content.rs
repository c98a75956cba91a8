//! Messages in the formats of clients, and their conversion.
//!
//! Unknown fields of a message are ignored: clients send back whole items of earlier answers, from
//! any provider. Known features that are not supported are refused, so that no client assumes that
//! they worked.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_types::{ClientResult, ToolCall, media_type};
use serde::Deserialize;
use serde_json::Value;

use crate::api_error::ApiError;

/// Role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    /// Instructions to the agent: `system` or `developer`.
    System,
    /// Results of the client's tools.
    Tool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationMessage {
    pub role: Role,
    pub text: String,
    /// Image files, decoded from base64.
    pub pictures: Vec<Vec<u8>>,
    /// Calls of the client's tools, in a message of the assistant.
    pub calls: Vec<ToolCall>,
    /// Set in a message of the role [`Role::Tool`].
    pub results: Vec<ClientResult>,
}

impl ConversationMessage {
    pub fn text_only(role: Role, text: String) -> Self {
        let (pictures, calls, results) = (Vec::new(), Vec::new(), Vec::new());
        Self { role, text, pictures, calls, results }
    }

    fn of_calls(text: String, calls: Vec<ToolCall>) -> Self {
        Self { calls, ..Self::text_only(Role::Assistant, text) }
    }

    fn of_result(call: String, output: String) -> Self {
        let results = vec![ClientResult { call, output }];
        Self { results, ..Self::text_only(Role::Tool, String::new()) }
    }
}

/// Message in a request: of Chat Completions, or an input item of Responses.
#[derive(Debug, Deserialize)]
pub struct Message {
    /// Kind of input item; only in Responses.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// Of an item of Responses.
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Vec<SentCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    function_call: Option<Value>,
    #[serde(default)]
    audio: Option<Value>,
    /// Of the items `function_call` and `function_call_output` in Responses.
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
    #[serde(default)]
    output: Option<Content>,
}

/// Call in a message of the assistant, in Chat Completions.
#[derive(Debug, Deserialize)]
struct SentCall {
    #[serde(default)]
    id: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    function: Option<SentFunction>,
}

#[derive(Debug, Deserialize)]
struct SentFunction {
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    /// In Chat Completions an object with a `url`, in Responses the URL itself.
    #[serde(default)]
    image_url: Option<Value>,
    #[serde(default)]
    prompt_cache_breakpoint: Option<Value>,
}

/// Maximum length of ids and names of calls.
const MAX_CALL_FIELD_BYTES: usize = 256;

/// Maximum number of pictures of a message.
const MAX_PICTURES: usize = 8;

impl Message {
    /// Id of the item for which this one stands, which has nothing else then.
    pub fn reference(&self) -> Option<&str> {
        let is_reference = match self.kind.as_deref() {
            Some(kind) => kind == "item_reference",
            None => self.role.is_none() && self.content.is_none(),
        };
        self.id.as_ref().filter(|_| is_reference)?.as_str()
    }

    /// Converts and checks the message; `param` is the request's field, for errors.
    pub fn convert(self, param: &'static str) -> Result<ConversationMessage, ApiError> {
        match self.kind.as_deref() {
            None | Some("message") => {}
            Some("function_call") => return self.convert_call(param),
            Some("function_call_output") => {
                let (call, output) = (required(self.call_id, "call_id", param)?, self.output);
                return Ok(ConversationMessage::of_result(call, output_text(output, param)?));
            }
            Some(kind) => {
                let kind: String = kind.chars().take(40).collect();
                let message = format!(
                    "an item of type `{kind}` is not supported yet: send messages, calls of \
                     functions and their outputs"
                );
                return Err(ApiError::unsupported(param, message));
            }
        }
        if self.audio.as_ref().is_some_and(is_given) {
            let message = "`audio` of a message is not supported: send its text";
            return Err(ApiError::unsupported(param, message));
        }
        if self.function_call.as_ref().is_some_and(is_given) {
            let message = "`function_call` is not supported: use `tool_calls`";
            return Err(ApiError::unsupported(param, message));
        }
        let role = match self.role.as_deref() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system" | "developer") => Role::System,
            Some("tool") => {
                let call = required(self.tool_call_id, "tool_call_id", param)?;
                let output = output_text(self.content, param)?;
                return Ok(ConversationMessage::of_result(call, output));
            }
            Some("function") => {
                let message = "the role `function` is not supported: use `tool`";
                return Err(ApiError::unsupported(param, message));
            }
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                let message =
                    format!("`{other}` is no role: use user, assistant, system, developer or tool");
                return Err(ApiError::invalid_field(param, message));
            }
            None => return Err(ApiError::invalid_field(param, "a message has no `role`: add one")),
        };
        let calls = self.tool_calls.unwrap_or_default();
        let (text, pictures) = match self.content {
            Some(Content::Text(text)) => (text, Vec::new()),
            Some(Content::Parts(parts)) => join_parts(parts, param)?,
            None if role == Role::Assistant && !calls.is_empty() => (String::new(), Vec::new()),
            None => {
                return Err(ApiError::invalid_field(param, "a message has no `content`: add some"));
            }
        };
        if !pictures.is_empty() && role != Role::User {
            return Err(ApiError::unsupported(param, "only a user's message may show pictures"));
        }
        if !calls.is_empty() && role != Role::Assistant {
            let message = "only a message of the assistant has `tool_calls`";
            return Err(ApiError::invalid_field(param, message));
        }
        let calls = calls.into_iter().map(|call| call.convert(param)).collect::<Result<_, _>>()?;
        Ok(ConversationMessage { pictures, calls, ..ConversationMessage::text_only(role, text) })
    }

    fn convert_call(self, param: &'static str) -> Result<ConversationMessage, ApiError> {
        let call = ToolCall {
            id: required(self.call_id, "call_id", param)?,
            tool: required(self.name, "name", param)?,
            input: self.arguments.unwrap_or_default(),
        };
        Ok(ConversationMessage::of_calls(String::new(), vec![call]))
    }
}

impl SentCall {
    fn convert(self, param: &'static str) -> Result<ToolCall, ApiError> {
        let Some(SentFunction { name, arguments }) = self.function else {
            let kind: String = self.kind.unwrap_or_default().chars().take(40).collect();
            let message = format!("a call of type `{kind}` is not supported: send `function`");
            return Err(ApiError::unsupported(param, message));
        };
        Ok(ToolCall { id: required(self.id, "id", param)?, tool: name, input: arguments })
    }
}

/// A field that calls and results need.
fn required(
    value: Option<String>,
    field: &'static str,
    param: &'static str,
) -> Result<String, ApiError> {
    let is_right = |value: &String| (1..=MAX_CALL_FIELD_BYTES).contains(&value.len());
    value.filter(is_right).ok_or_else(|| {
        let message =
            format!("a call or its result needs a `{field}` of up to {MAX_CALL_FIELD_BYTES} bytes");
        ApiError::invalid_field(param, message)
    })
}

/// Text of a tool's result.
fn output_text(output: Option<Content>, param: &'static str) -> Result<String, ApiError> {
    match output {
        Some(Content::Text(text)) => Ok(text),
        Some(Content::Parts(parts)) => match join_parts(parts, param)? {
            (text, pictures) if pictures.is_empty() => Ok(text),
            _ => Err(ApiError::unsupported(param, "the result of a tool is text: send no picture")),
        },
        None => Err(ApiError::invalid_field(param, "the result of a tool is missing: add a text")),
    }
}

/// Joins what the conversation has as one message: a text of the assistant and the calls after it,
/// and results that follow each other.
pub fn join_calls(turns: Vec<ConversationMessage>) -> Vec<ConversationMessage> {
    let mut joined: Vec<ConversationMessage> = Vec::with_capacity(turns.len());
    for turn in turns {
        match joined.last_mut() {
            Some(last) if last.role == Role::Tool && turn.role == Role::Tool => {
                last.results.extend(turn.results);
            }
            Some(last)
                if last.role == Role::Assistant
                    && turn.role == Role::Assistant
                    && turn.text.is_empty()
                    && !turn.calls.is_empty() =>
            {
                last.calls.extend(turn.calls);
            }
            _ => joined.push(turn),
        }
    }
    joined
}

/// Whether a field has a value: null and an empty list have none.
pub fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => true,
    }
}

fn join_parts(parts: Vec<Part>, param: &'static str) -> Result<(String, Vec<Vec<u8>>), ApiError> {
    let (mut joined, mut pictures) = (String::new(), Vec::new());
    for part in parts {
        if part.prompt_cache_breakpoint.as_ref().is_some_and(is_given) {
            let message = "`prompt_cache_breakpoint` is not supported: the agent sets its own";
            return Err(ApiError::unsupported(param, message));
        }
        match part.kind.as_str() {
            "text" | "input_text" | "output_text" => {
                joined.push_str(part.text.as_deref().unwrap_or_default());
            }
            "refusal" => joined.push_str(part.refusal.as_deref().unwrap_or_default()),
            "image_url" | "input_image" => pictures.push(picture(part, param)?),
            other => {
                let other: String = other.chars().take(40).collect();
                let message =
                    format!("a content part of type `{other}` is not supported yet: send text");
                return Err(ApiError::unsupported(param, message));
            }
        }
    }
    if pictures.len() > MAX_PICTURES {
        let message =
            format!("a message shows {} pictures, and {MAX_PICTURES} are the most", pictures.len());
        return Err(ApiError::invalid_field(param, message));
    }
    Ok((joined, pictures))
}

/// Decodes a picture in a `data:` URL. Other URLs are not fetched: a client could make the gateway
/// reach hosts that only it can reach (SSRF).
fn picture(part: Part, param: &'static str) -> Result<Vec<u8>, ApiError> {
    let url = match part.image_url {
        Some(Value::String(url)) => Some(url),
        Some(Value::Object(mut image)) => match image.remove("url") {
            Some(Value::String(url)) => Some(url),
            _ => None,
        },
        _ => None,
    };
    let Some(url) = url else {
        let message = format!("a part of type `{}` has no URL: add one", part.kind);
        return Err(ApiError::invalid_field(param, message));
    };
    let Some((head, data)) = url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) else {
        let message = "a picture's address is not fetched: send the picture itself, as \
                       `data:image/png;base64,…`";
        return Err(ApiError::unsupported(param, message));
    };
    let content = Some(data).filter(|_| head.ends_with(";base64"));
    let content = content.and_then(|data| STANDARD.decode(data.trim()).ok());
    let content = content.filter(|content| media_type("", content).starts_with("image/"));
    content.ok_or_else(|| {
        let message = "a `data:` URL is no picture: send png, jpeg, webp or gif in base64";
        ApiError::invalid_field(param, message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(message: Value) -> Result<ConversationMessage, ApiError> {
        serde_json::from_value::<Message>(message).unwrap().convert("messages")
    }

    #[test]
    fn text_parts_are_joined_and_unknown_fields_passed_over() {
        let turn = read(json!({
            "role": "user",
            "name": "anna",
            "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}],
        }));

        assert_eq!(turn.unwrap(), ConversationMessage::text_only(Role::User, "ab".into()));
    }

    #[test]
    fn calls_and_their_results_are_read_alike_from_both_apis() {
        let chat = [
            json!({"role": "assistant", "content": "so", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "a", "content": "1"}),
            json!({"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]}),
        ];
        let responses = [
            json!({"role": "assistant", "content": [{"type": "output_text", "text": "so"}]}),
            json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}),
            json!({"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": "a", "output": "1"}),
            json!({"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]}),
        ];
        let read = |messages: &[Value]| {
            let turns = messages.iter().map(|message| read(message.clone()).unwrap()).collect();
            join_calls(turns)
        };

        let turns = read(&chat);
        assert_eq!(turns, read(&responses));
        assert_eq!((turns.len(), turns[0].calls.len(), turns[1].results.len()), (2, 2, 2));
    }

    #[test]
    fn a_picture_that_is_here_is_taken_and_one_that_is_elsewhere_is_not_fetched() {
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n a cat");
        let url = format!("data:image/png;base64,{png}");
        let text = json!({"type": "text", "text": "look"});
        for part in [
            json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}}),
            json!({"type": "input_image", "image_url": url}),
        ] {
            let turn = read(json!({"role": "user", "content": [text, part]})).unwrap();

            assert_eq!((turn.text.as_str(), turn.pictures.len()), ("look", 1));
        }
        for (url, told) in [
            ("https://example.com/a.png", "is not fetched"),
            ("data:image/png;base64,####", "is no picture"),
            ("data:image/png;base64,aGk=", "is no picture"),
            ("data:image/png,hi", "is no picture"),
        ] {
            let part = json!({"type": "image_url", "image_url": {"url": url}});
            let refusal = read(json!({"role": "user", "content": [part]})).unwrap_err();
            assert!(refusal.message().contains(told), "{url}: {}", refusal.message());
        }
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        assert!(read(json!({"role": "system", "content": [part]})).is_err());
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        for (message, told) in [
            (json!({"role": "user", "content": [{"type": "image_url"}]}), "`image_url`"),
            (json!({"role": "tool", "content": "x"}), "`tool_call_id`"),
            (json!({"role": "tool", "tool_call_id": "a"}), "result of a tool"),
            (json!({"role": "assistant", "tool_calls": [{"type": "custom"}]}), "`custom`"),
            (
                json!({"role": "user", "content": "x", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}),
                "`tool_calls`",
            ),
            (
                json!({"role": "assistant", "content": "x", "function_call": {"name": "f"}}),
                "`function_call`",
            ),
            (json!({"role": "assistant", "content": "x", "audio": {"id": "a"}}), "`audio`"),
            (
                json!({"role": "user", "content": [{"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}]}),
                "`prompt_cache_breakpoint`",
            ),
            (json!({"type": "function_call_output"}), "`call_id`"),
            (json!({"type": "function_call", "call_id": "a"}), "`name`"),
            (json!({"type": "item_reference", "id": "x"}), "`item_reference`"),
            (json!({"role": "robot", "content": "x"}), "`robot`"),
            (json!({"role": "user"}), "`content`"),
            (json!({"content": "x"}), "`role`"),
        ] {
            let refusal = read(message.clone()).unwrap_err();

            assert!(refusal.message().contains(told), "{message}: {}", refusal.message());
        }
    }
}
