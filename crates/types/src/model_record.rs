//! Record of one call of a model.

use serde::{Deserialize, Serialize};

use crate::{ProviderFailure, RunnerId};

/// Facts about a model call, for the trace of its run. No model sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelRecord {
    /// In milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    pub took_ms: u64,
    /// Time until the first piece of the reply; 0 if there were no pieces.
    #[serde(skip_serializing_if = "is_default")]
    pub first_piece_ms: u64,
    /// Requests to the model that answered, the last one included.
    pub attempts: u32,
    /// Models that were asked before and failed, each with the reason: `openai:gpt-5: timeout`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Requests that failed before the answer, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<ProviderFailure>,
    /// In millionths of a US dollar.
    #[serde(skip_serializing_if = "is_default")]
    pub cost_micros: u64,
    pub runner: Option<RunnerId>,
    /// Id of the trace; empty if tracing is off.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trace: String,
    /// Name of the [`StopReason`](crate::StopReason), which a newer version may have added.
    pub stop: String,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
