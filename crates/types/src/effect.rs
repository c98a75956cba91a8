//! What a tool's call may change.

use serde::{Deserialize, Serialize};

/// What a call may change; it decides what may run at once, what may run again
/// after a crash, and what is reported as unknown instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing. Runs beside other calls, and again after a crash.
    Reads,
    /// Only what belongs to this agent. Runs alone, and again after a crash with the same key.
    Writes,
    /// The world outside the mesh. Runs alone and at most once.
    Acts,
}
