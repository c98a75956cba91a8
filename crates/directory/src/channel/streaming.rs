//! Whether an answer is shown while it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::field_errors::Field;

/// The field in the list of a channel's fields.
pub(super) const FIELD: Field = ("streaming", "\"off\" or \"edits\"");

/// How an answer is shown before it is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Streaming {
    /// An answer is sent when it is complete.
    #[default]
    Off,
    /// A message with its beginning is sent and edited; the complete answer replaces the text.
    Edits,
}
