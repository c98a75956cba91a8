//! Author of a change, for the audit log.

use std::fmt;

use holdfast_types::{AgentId, KeyId, PersonId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// The holder of this API key.
    Key(KeyId),
    /// A person who signed in.
    Person(PersonId),
    /// An agent, in one of its turns.
    Agent(AgentId),
    /// An operator at the installation's own console, without a key.
    Operator,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Person(person) => person.fmt(f),
            Self::Agent(agent) => agent.fmt(f),
            Self::Operator => f.write_str("operator"),
        }
    }
}
