//! A call that a model wants, and what a request to it used.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's id for the call; unique within one reply.
    pub id: String,
    /// Name as the model wrote it; the tool may not exist.
    pub tool: String,
    /// Input as the model wrote it: should be JSON, but may be malformed.
    pub input: String,
}

/// Token counts as the provider reported them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub input: u64,
    /// Part of `input` that came from the provider's cache.
    pub cached: u64,
    pub output: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
    }
}
