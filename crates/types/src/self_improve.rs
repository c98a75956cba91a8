//! Settings of an agent that looks after itself while nobody needs it.

use serde::{Deserialize, Serialize};

const MAX_IDLE_S: u32 = 30 * 24 * 3_600;
const MAX_PER_DAY: u32 = 24;
const MAX_TOKENS: u32 = 1_000_000_000;

/// When an agent looks after itself, and what it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelfImproveSettings {
    /// Time for which its conversations must have rested, in seconds.
    pub idle_s: u32,
    /// Runs in a UTC day.
    pub max_per_day: u32,
    /// Tokens of models' input and output in a UTC day. The run ends after the step that reaches it.
    pub max_tokens: u32,
}

impl Default for SelfImproveSettings {
    fn default() -> Self {
        Self { idle_s: 3_600, max_per_day: 1, max_tokens: 200_000 }
    }
}

impl SelfImproveSettings {
    /// Explains what is wrong with the settings.
    pub fn check(&self) -> Result<(), String> {
        for (name, value, most) in [
            ("idle_s", self.idle_s, MAX_IDLE_S),
            ("max_per_day", self.max_per_day, MAX_PER_DAY),
            ("max_tokens", self.max_tokens, MAX_TOKENS),
        ] {
            if !(1..=most).contains(&value) {
                return Err(format!("`{name}` is 1 to {most}, and this one is {value}"));
            }
        }
        Ok(())
    }
}
