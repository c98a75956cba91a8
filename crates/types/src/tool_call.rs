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

/// Token counts as the provider reported them. `input` and `output` are sums; the other counts
/// are the parts of them that have a price of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub input: u64,
    /// Part of `input` that came from the provider's cache.
    pub cached: u64,
    pub output: u64,
    /// Part of `input` that was written to the provider's cache for its usual lifetime.
    #[serde(skip_serializing_if = "is_zero")]
    pub written: u64,
    /// Part of `input` that was written to the provider's cache for its longer lifetime:
    /// Anthropic's one hour.
    #[serde(skip_serializing_if = "is_zero")]
    pub written_long: u64,
    /// Part of `input` that was sound and did not come from the cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub audio_input: u64,
    /// Part of `input` that was images and did not come from the cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_input: u64,
    /// Part of `output` that was reasoning.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning: u64,
    /// Part of `output` that was sound.
    #[serde(skip_serializing_if = "is_zero")]
    pub audio_output: u64,
    /// Part of `output` that was images.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_output: u64,
    /// Searches that the provider made itself and charges one by one. Not tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub searches: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let Self {
            input,
            cached,
            output,
            written,
            written_long,
            audio_input,
            image_input,
            reasoning,
            audio_output,
            image_output,
            searches,
        } = other;
        self.input += input;
        self.cached += cached;
        self.output += output;
        self.written += written;
        self.written_long += written_long;
        self.audio_input += audio_input;
        self.image_input += image_input;
        self.reasoning += reasoning;
        self.audio_output += audio_output;
        self.image_output += image_output;
        self.searches += searches;
    }
}
