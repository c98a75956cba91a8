//! Heartbeat settings that a heartbeat's message carries.
//!
//! They are stored with the message as they were when it was sent, so that every runner uses the
//! same ones.

use serde::{Deserialize, Serialize};

use super::Target;

/// Treatment of the answer to a heartbeat. Stored as JSON: fields are only ever added, with a
/// default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// Model to use instead of the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Maximum length of the text beside `HEARTBEAT_OK` in an answer that reports nothing, in
    /// characters.
    pub ack_max_chars: usize,
    /// Whether the model's reasoning is sent with the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_reasoning: bool,
    /// Where an answer with news is sent; `None` if nobody has ever written on a channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Key of the session that is told what was sent.
    pub told: String,
    /// Name under which a sent answer is remembered.
    pub recent: String,
}
