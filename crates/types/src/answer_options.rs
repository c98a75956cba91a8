//! What the client of an API asks of the model for one message.

mod schema;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

pub use schema::{AnswerSchema, InvalidSchema};

use crate::{ClientTool, Thinking, ToolChoice};

/// Options of the model for the turn of one message. They are stored with the message, so any
/// runner continues with them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<Number>,
    /// Output limit of each answer of the model, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Level of thinking, as far as the model has levels; an effort is exact, and refused otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Whether the client wants to see the model's thinking, if it may.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shows_thinking: bool,
    /// Whether the request is housekeeping of a front end, such as a title for a chat: the model
    /// answers it without the agent's tools, prompt and memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_housekeeping: bool,
    /// `None` is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<AnswerFormat>,
    /// Key of the provider's prompt cache; `None` is the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<String>,
    /// Tools of the client, beside the agent's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// `Some(false)` hands over at most one call at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
}

impl AnswerOptions {
    /// Whether the model must call a tool of the client.
    #[must_use]
    pub fn is_call_forced(&self) -> bool {
        self.tool_choice.as_ref().is_some_and(ToolChoice::is_forced)
    }
}

/// How much the model thinks, in OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

impl Effort {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }

    /// The nearest level of thinking.
    #[must_use]
    pub const fn thinking(self) -> Thinking {
        match self {
            Self::None => Thinking::Off,
            Self::Minimal | Self::Low => Thinking::Low,
            Self::Medium => Thinking::Medium,
            Self::High | Self::Xhigh => Thinking::High,
        }
    }
}

/// Form that an answer must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnswerFormat {
    JsonObject,
    JsonSchema(NamedSchema),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSchema {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub schema: AnswerSchema,
    /// Whether the provider is to enforce the schema while it writes.
    #[serde(default)]
    pub strict: bool,
}

impl AnswerFormat {
    /// Checks an answer.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, for the model that wrote the answer.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(text.trim())
            .map_err(|error| format!("the answer is not JSON alone: {error}"))?;
        match self {
            Self::JsonObject if value.is_object() => Ok(()),
            Self::JsonObject => Err("the answer is JSON, but no object".to_owned()),
            Self::JsonSchema(named) => named.schema.check(&value),
        }
    }
}
