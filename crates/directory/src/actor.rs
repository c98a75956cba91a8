//! Who changed something, for the audit log.

use std::fmt;

use holdfast_types::{AgentId, KeyId};

/// Who asks for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// Whoever holds this API key.
    Key(KeyId),
    /// An agent, in a turn of its own.
    Agent(AgentId),
    /// Somebody at the platform's own console, without a key.
    Operator,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Agent(agent) => agent.fmt(f),
            Self::Operator => f.write_str("operator"),
        }
    }
}
