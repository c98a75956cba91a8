//! Settings of model routing: a model chooses the agent that answers.
//!
//! They are stored with the message, so that those apply that were valid when it was accepted.

use serde::{Deserialize, Serialize};

use crate::AgentId;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteScope {
    /// The turn of one message.
    #[default]
    Message,
    /// Until the conversation starts anew.
    Session,
}

impl RouteScope {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Session => "session",
        }
    }
}

/// Settings for the choice of an agent by a model. Stored as JSON: fields are only ever added, with
/// a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelRoute {
    /// Agents that may be chosen besides the session's own; empty allows all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<AgentId>,
    pub each: RouteScope,
    /// Model that chooses, as `provider:id`; `None` is the model of the session's agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_wrote_is_read() {
        let read = |text: &str| serde_json::from_str::<ModelRoute>(text).unwrap();

        assert_eq!(read("{}"), ModelRoute::default());
        assert_eq!(read(r#"{"each":"session","of_tomorrow":1}"#).each, RouteScope::Session);
        let written = serde_json::to_string(&ModelRoute::default()).unwrap();
        assert_eq!(written, r#"{"each":"message"}"#);
    }
}
