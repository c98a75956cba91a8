//! That a message is a heartbeat's: what becomes of the answer.
//!
//! It is stored with the message as the agent's settings were when it was asked, so that whoever
//! takes it up goes by those.

use serde::{Deserialize, Serialize};

use crate::Target;

/// What becomes of the answer to a heartbeat. Stored as JSON: fields are only ever added, with a
/// default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// The model that is asked, instead of the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much may stand beside `HEARTBEAT_OK` and still be no news, in characters.
    pub ack_max_chars: usize,
    /// Whether what the model thought is sent with what it says.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_reasoning: bool,
    /// Where news goes; `None` where nobody was ever spoken to on a channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The key of the session that is told what was sent.
    pub told: String,
    /// Under which name what was said is remembered.
    pub recent: String,
}
