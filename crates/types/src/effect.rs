//! Effects of tool calls.

use serde::{Deserialize, Serialize};

/// Effect of a tool call. It decides which calls may run concurrently, which are repeated after a
/// crash, and which are reported as having an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// No effect. Runs beside other calls, and again after a crash.
    Reads,
    /// Changes only the agent's own data. Runs alone, and again after a crash with the same key.
    Writes,
    /// Changes the world outside the mesh. Runs alone and at most once. An effect that only a newer
    /// version knows counts as this one.
    #[serde(other)]
    Acts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_of_a_newer_version_acts() {
        assert_eq!(serde_json::from_str::<Effect>("\"pays\"").unwrap(), Effect::Acts);
        assert_eq!(serde_json::from_str::<Effect>("\"writes\"").unwrap(), Effect::Writes);
    }
}
