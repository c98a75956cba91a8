//! What is said to a model, and what it says back, in no provider's words.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{ToolCall, Usage};

/// What the model is told of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name that the model calls it by.
    pub name: String,
    /// What it does, and when to use it.
    pub description: String,
    /// The JSON Schema of its input.
    pub input: serde_json::Value,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// Someone spoke to the agent.
    User {
        /// What they said.
        text: String,
        /// What they showed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// The model spoke.
    Assistant {
        /// What it said; may be empty if it only asked for tools.
        text: String,
        /// The tools that it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// What its provider wants back with the results; see [`Reply::carry`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carry: Option<serde_json::Value>,
    },
    /// A tool answered. It follows the reply that asked for it.
    Tool {
        /// The id of the call that it answers.
        call: String,
        /// The answer.
        output: String,
        /// Whether it failed.
        #[serde(default)]
        failed: bool,
    },
}

impl ChatMessage {
    /// Someone said this, and showed nothing.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), images: Vec::new() }
    }

    /// The model said this and asked for these tools; nothing of it is carried.
    #[must_use]
    pub fn assistant(text: impl Into<String>, calls: Vec<ToolCall>) -> Self {
        Self::Assistant { text: text.into(), calls, carry: None }
    }
}

/// A picture that is shown to a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its kind, as `image/png`.
    pub media_type: String,
    /// Where its bytes are.
    pub data: ImageData,
}

/// Where a picture's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageData {
    /// Here, in base64 with padding.
    Base64(String),
    /// At a URL that the provider can read. It is the provider that fetches it.
    Url(String),
}

/// How much a model is to think before it answers. Each provider has its own words for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// As little as the model lets us say.
    #[default]
    Off,
    /// A little.
    Low,
    /// As much as most tasks are worth.
    Medium,
    /// Much.
    High,
}

impl Thinking {
    /// The word for it.
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

/// A text that names no level of thinking.
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

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It had said all.
    #[default]
    End,
    /// It waits for the tools it asked for.
    ToolUse,
    /// It was cut short: it had written as much as it may, or can.
    MaxTokens,
    /// The provider's filter cut it short.
    Filtered,
    /// It would not answer, and may have said why.
    Refusal,
    /// The provider paused a long turn: asked again with this reply, it goes on.
    PauseTurn,
}

/// All that a model is given to answer.
///
/// Providers cache what comes first, so what seldom changes comes first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chat {
    /// The instructions: byte-identical from turn to turn while the agent's documents are.
    #[serde(with = "shared_text")]
    pub stable: Arc<str>,
    /// What changes from turn to turn: the clock, where the conversation is held.
    pub dynamic: String,
    /// The conversation. Each call in it has exactly one answer, and each answer a call.
    pub messages: Vec<ChatMessage>,
    /// The tools on offer.
    pub tools: Vec<ToolSpec>,
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// What it said.
    pub text: String,
    /// What it thought before, as far as it shows it; for people to see, and never part of a
    /// conversation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// The tools that it asks for; their ids are unique in this reply, and only in it.
    pub calls: Vec<ToolCall>,
    /// What it cost.
    pub usage: Usage,
    /// Which model, as `provider:id`.
    pub model: String,
    /// Why it stopped.
    #[serde(default)]
    pub stop: Stop,
    /// What its provider wants back, unread and unchanged, when this reply's tools have answered:
    /// its reasoning, signed or sealed. It says by whom it can be read; others pass it over. There
    /// is none without calls: a provider wants it within a turn only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<serde_json::Value>,
}

/// Which model: `provider:id`, as in `openai:gpt-5` and `demo:demo`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId {
    provider: String,
    id: String,
}

impl ModelId {
    /// The provider's name.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// What the provider calls the model.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// A text that names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a model's id: write `<provider>:<id>`, as in `openai:gpt-5`")]
pub struct InvalidModelId(String);

/// The longest part of a model's id, in bytes.
const LONGEST: usize = 128;

impl FromStr for ModelId {
    type Err = InvalidModelId;

    fn from_str(text: &str) -> Result<Self, InvalidModelId> {
        let wrong = || InvalidModelId(text.chars().take(80).collect());
        // Only the first colon counts: Ollama's ids have one of their own.
        let (provider, id) = text.trim().split_once(':').ok_or_else(wrong)?;
        let is_name = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-');
        let named = (1..=LONGEST).contains(&provider.len()) && provider.chars().all(is_name);
        let is_id = |c: char| !c.is_whitespace() && !c.is_control();
        if named && (1..=LONGEST).contains(&id.len()) && id.chars().all(is_id) {
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
        assert_eq!(serde_json::from_str::<Reply>(reply).unwrap().stop, Stop::End);
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

/// A shared text as any text: who reads it has a copy of his own.
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
