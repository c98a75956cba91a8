//! What is said to a model, and what it says back, in no provider's words.

use std::{fmt, str::FromStr};

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
    },
    /// The model spoke.
    Assistant {
        /// What it said; may be empty if it only asked for tools.
        text: String,
        /// The tools that it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
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

/// All that a model is given to answer.
///
/// Providers cache what comes first, so what seldom changes comes first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chat {
    /// The instructions: byte-identical from turn to turn while the agent's documents are.
    pub stable: String,
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
    /// The tools that it asks for; their ids are unique in this reply, and only in it.
    pub calls: Vec<ToolCall>,
    /// What it cost.
    pub usage: Usage,
    /// Which model, as `provider:id`.
    pub model: String,
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
        let message = ChatMessage::Assistant { text: String::new(), calls: vec![call] };

        let stored = serde_json::to_string(&message).unwrap();

        assert_eq!(serde_json::from_str::<ChatMessage>(&stored).unwrap(), message);
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
