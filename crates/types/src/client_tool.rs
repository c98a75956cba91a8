//! Tools of an API's client: their definitions, the client's calls and its results.
//!
//! A model may call them beside the agent's own. The mesh never runs them: the turn ends with the
//! calls, the session waits, and the message with the results begins the next turn.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A function of the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTool {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Whether arguments that break the schema are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

/// Which of the client's tools a model calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    Auto,
    None,
    /// At least one of them.
    Required,
    /// The one of this name.
    Function(String),
}

impl ToolChoice {
    /// Whether the model must call a tool of the client.
    #[must_use]
    pub const fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Function(_))
    }
}

/// A call that waits for the client's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCall {
    /// Id that the client is told; unique in the installation.
    pub id: String,
    /// The model's id of the call.
    pub call: String,
    pub name: String,
    /// Arguments as the model wrote them.
    pub arguments: String,
}

/// Result of a call that the client made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientResult {
    /// The model's id of the call.
    pub call: String,
    pub output: String,
}
