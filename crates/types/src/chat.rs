//! Chat with a model: requests and replies in a form that belongs to no provider.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{ModelRecord, ToolCall, Usage};

/// Tool as it is described to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    /// Purpose of the tool, and when to use it.
    pub description: String,
    /// JSON Schema of the input.
    pub input: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// A message to the agent.
    User {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// A reply of the model.
    Assistant {
        /// Empty if the model only called tools.
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// State that the provider wants back with the tool results; see [`Reply::carry`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carry: Option<serde_json::Value>,
    },
    /// Result of a tool call. Follows the reply that has the call.
    Tool {
        call: String,
        output: String,
        #[serde(default)]
        failed: bool,
    },
}

impl ChatMessage {
    /// Returns a user message without images.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), images: Vec::new() }
    }

    /// Returns a reply of the model without carried state.
    #[must_use]
    pub fn assistant(text: impl Into<String>, calls: Vec<ToolCall>) -> Self {
        Self::Assistant { text: text.into(), calls, carry: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// As in `image/png`.
    pub media_type: String,
    pub data: ImageData,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageData {
    /// Base64 with padding.
    Base64(String),
    /// The provider fetches the URL, not this process.
    Url(String),
}

/// Reasoning effort of a model. Each provider has its own levels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// The least that the model permits; some models always think.
    #[default]
    Off,
    Low,
    Medium,
    High,
}

impl Thinking {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// A text that is not a level of thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no level of thinking: use off, low, medium or high")]
pub struct InvalidThinking;

impl FromStr for Thinking {
    type Err = InvalidThinking;

    fn from_str(text: &str) -> Result<Self, InvalidThinking> {
        [Self::Off, Self::Low, Self::Medium, Self::High]
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or(InvalidThinking)
    }
}

/// Reason why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The reply is complete.
    #[default]
    End,
    /// The model waits for the results of its tool calls.
    ToolUse,
    /// The output limit was reached; the reply is cut off.
    MaxTokens,
    /// The context window of the model is full; the reply is cut off.
    ContextWindow,
    /// The provider's content filter cut the reply off.
    Filtered,
    /// The model refused to answer; the text may say why.
    Refusal,
    /// The provider paused a long turn: it continues when asked again with this reply.
    PauseTurn,
}

impl StopReason {
    pub const ALL: [Self; 7] = [
        Self::End,
        Self::ToolUse,
        Self::MaxTokens,
        Self::ContextWindow,
        Self::Filtered,
        Self::Refusal,
        Self::PauseTurn,
    ];

    /// Reason that a completed turn is stored with if its answer ended early; `None` for an answer that
    /// is whole.
    #[must_use]
    pub const fn early_end(self) -> Option<&'static str> {
        match self {
            Self::End | Self::ToolUse => None,
            Self::MaxTokens => Some("output limit reached"),
            Self::ContextWindow => Some("context window full"),
            Self::Filtered => Some("cut off by the content filter"),
            Self::Refusal => Some("refused by the model"),
            Self::PauseTurn => Some("paused by the provider"),
        }
    }

    /// The early end that a reason of a turn names; `None` for other reasons.
    #[must_use]
    pub fn of_early_end(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stop| stop.early_end() == Some(reason))
    }

    /// Name in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::ToolUse => "tool_use",
            Self::MaxTokens => "max_tokens",
            Self::ContextWindow => "context_window",
            Self::Filtered => "filtered",
            Self::Refusal => "refusal",
            Self::PauseTurn => "pause_turn",
        }
    }
}

/// Request to a model.
///
/// Providers cache a request's beginning, so the parts that seldom change come first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chat {
    /// Instructions: byte-identical from turn to turn while the agent's files are.
    #[serde(with = "shared_text")]
    pub stable: Arc<str>,
    /// Instructions that change from turn to turn, such as the time.
    pub dynamic: String,
    /// The conversation. Each tool call in it has exactly one result, and each result a call.
    pub messages: Vec<ChatMessage>,
    pub tools: Vec<ToolSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub text: String,
    /// Reasoning, as far as the model shows it; for people to read, and never part of a
    /// conversation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// Tool calls; the ids are unique within this reply only.
    pub calls: Vec<ToolCall>,
    pub usage: Usage,
    pub model: String,
    #[serde(default)]
    pub stop: StopReason,
    /// Opaque provider state, such as signed reasoning, to be returned unchanged with the tool
    /// results. It names the model that can read it; other models ignore it. `None` without calls:
    /// a provider wants it within a turn only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<serde_json::Value>,
    /// Facts about the call, as far as they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Box<ModelRecord>>,
}

/// Id of a model: `provider:id`, as in `openai:gpt-5` and `demo:demo`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId {
    provider: String,
    id: String,
}

impl ModelId {
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The provider's name for the model.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// A text that is not a model id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a model's id: write `<provider>:<id>`, as in `openai:gpt-5`")]
pub struct InvalidModelId(String);

/// Maximum length of each part of a model id, in bytes.
const MAX_MODEL_ID_PART_BYTES: usize = 128;

impl FromStr for ModelId {
    type Err = InvalidModelId;

    fn from_str(text: &str) -> Result<Self, InvalidModelId> {
        let wrong = || InvalidModelId(text.chars().take(80).collect());
        // Split at the first colon only: Ollama's model ids contain colons.
        let (provider, id) = text.trim().split_once(':').ok_or_else(wrong)?;
        let is_name = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-');
        let named = (1..=MAX_MODEL_ID_PART_BYTES).contains(&provider.len())
            && provider.chars().all(is_name);
        let is_id = |c: char| !c.is_whitespace() && !c.is_control();
        if named && (1..=MAX_MODEL_ID_PART_BYTES).contains(&id.len()) && id.chars().all(is_id) {
            Ok(Self { provider: provider.to_owned(), id: id.to_owned() })
        } else {
            Err(wrong())
        }
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.id)
    }
}

impl Serialize for ModelId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_first_colon_of_a_model_id_counts() {
        let model: ModelId = "ollama:qwen3:4b".parse().unwrap();

        assert_eq!((model.provider(), model.id()), ("ollama", "qwen3:4b"));
        assert_eq!(model.to_string(), "ollama:qwen3:4b");
        assert_eq!("openai:org/model".parse::<ModelId>().unwrap().id(), "org/model");
    }

    #[test]
    fn what_names_no_model_is_refused_with_what_to_write() {
        for text in ["", "gpt-5", ":gpt-5", "openai:", "Open AI:gpt-5", "openai:a b"] {
            let error = text.parse::<ModelId>().unwrap_err().to_string();

            assert!(error.ends_with("write `<provider>:<id>`, as in `openai:gpt-5`"), "{error}");
        }
    }

    #[test]
    fn a_message_survives_being_stored() {
        let call = ToolCall { id: "1".into(), tool: "t".into(), input: "{}".into() };
        let image = Image {
            media_type: "image/png".into(),
            data: ImageData::Url("https://example.com/a.png".into()),
        };
        for message in [
            ChatMessage::assistant("", vec![call.clone()]),
            ChatMessage::Assistant {
                text: String::new(),
                calls: vec![call],
                carry: Some(serde_json::json!({ "api": "x" })),
            },
            ChatMessage::User { text: "look".into(), images: vec![image] },
        ] {
            let stored = serde_json::to_string(&message).unwrap();

            assert_eq!(serde_json::from_str::<ChatMessage>(&stored).unwrap(), message);
        }
    }

    #[test]
    fn what_an_older_version_stored_is_read() {
        let user = r#"{"role":"user","text":"hi"}"#;
        let assistant = r#"{"role":"assistant","text":"ho"}"#;
        let reply = r#"{"text":"","calls":[],"usage":{},"model":"a:b"}"#;

        assert_eq!(serde_json::from_str::<ChatMessage>(user).unwrap(), ChatMessage::user("hi"));
        let read: ChatMessage = serde_json::from_str(assistant).unwrap();
        assert_eq!(read, ChatMessage::assistant("ho", vec![]));
        assert_eq!(serde_json::to_string(&ChatMessage::user("hi")).unwrap(), user);
        assert_eq!(serde_json::from_str::<Reply>(reply).unwrap().stop, StopReason::End);
    }

    #[test]
    fn a_level_of_thinking_is_named_by_one_word() {
        for level in [Thinking::Off, Thinking::Low, Thinking::Medium, Thinking::High] {
            assert_eq!(level.as_str().parse(), Ok(level));
            assert_eq!(serde_json::to_value(level).unwrap(), level.as_str());
        }
        assert!("max".parse::<Thinking>().is_err());
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in ".{0,300}") {
            if let Ok(model) = text.parse::<ModelId>() {
                prop_assert_eq!(model.to_string().parse::<ModelId>().unwrap(), model);
            }
        }
    }
}

/// Serde format of a shared text: a plain string, which becomes a new copy when it is read.
mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        text.as_ref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Arc::from)
    }
}
