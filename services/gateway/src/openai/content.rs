//! Messages in the formats of clients, and their conversion.
//!
//! Unknown fields are ignored, as OpenAI does. Known features that are not supported are refused,
//! so that no client assumes that they worked.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_types::media_type;
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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationMessage {
    pub role: Role,
    pub text: String,
    /// Image files, decoded from base64.
    pub pictures: Vec<Vec<u8>>,
}

impl ConversationMessage {
    pub const fn text_only(role: Role, text: String) -> Self {
        Self { role, text, pictures: Vec::new() }
    }
}

/// Message in a request: of Chat Completions, or an input item of Responses.
#[derive(Debug, Deserialize)]
pub struct Message {
    /// Kind of input item; only in Responses.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Value>,
    #[serde(default)]
    function_call: Option<Value>,
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
}

/// Maximum number of pictures of a message.
const MAX_PICTURES: usize = 8;

/// Error message for client-side tools.
pub const NO_TOOLS: &str = "client-side tools are not supported yet: an agent uses the tools that \
                            its own settings give it; leave this out";

impl Message {
    /// Converts and checks the message; `param` is the request's field, for errors.
    pub fn convert(self, param: &'static str) -> Result<ConversationMessage, ApiError> {
        if let Some(kind) = self.kind.filter(|kind| kind != "message") {
            let kind: String = kind.chars().take(40).collect();
            let message = match kind.as_str() {
                "function_call" | "function_call_output" => NO_TOOLS.to_owned(),
                _ => format!("an item of type `{kind}` is not supported yet: send messages"),
            };
            return Err(ApiError::unsupported(param, message));
        }
        let calls = self.tool_calls.is_some_and(|calls| is_given(&calls));
        if calls || self.function_call.is_some_and(|call| is_given(&call)) {
            return Err(ApiError::unsupported(param, NO_TOOLS));
        }
        let role = match self.role.as_deref() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system" | "developer") => Role::System,
            Some("tool" | "function") => return Err(ApiError::unsupported(param, NO_TOOLS)),
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                let message =
                    format!("`{other}` is no role: use user, assistant, system or developer");
                return Err(ApiError::invalid_field(param, message));
            }
            None => return Err(ApiError::invalid_field(param, "a message has no `role`: add one")),
        };
        let (text, pictures) = match self.content {
            Some(Content::Text(text)) => (text, Vec::new()),
            Some(Content::Parts(parts)) => join_parts(parts, param)?,
            None => {
                return Err(ApiError::invalid_field(param, "a message has no `content`: add some"));
            }
        };
        if !pictures.is_empty() && role != Role::User {
            return Err(ApiError::unsupported(param, "only a user's message may show pictures"));
        }
        Ok(ConversationMessage { role, text, pictures })
    }
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
            (json!({"role": "tool", "content": "x"}), "client-side tools"),
            (json!({"role": "assistant", "tool_calls": [{}]}), "client-side tools"),
            (json!({"type": "function_call_output"}), "client-side tools"),
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
