//! Who changes a todo list, and where.

use holdfast_types::{AgentId, BehaviorRole, RunId, SessionId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// The agent of the session that the list belongs to.
    RootAgent,
    /// A subagent, which changes only todos that are assigned to it.
    SubAgent,
    /// A person, who may change any todo.
    User,
    System,
}

impl ActorKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RootAgent => "root_agent",
            Self::SubAgent => "sub_agent",
            Self::User => "user",
            Self::System => "system",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    pub kind: ActorKind,
    /// Name of the agent, label of the subagent, or the person's name.
    pub name: String,
    /// Role of the behaviour that an agent works by; `None` if it works without behaviours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<BehaviorRole>,
    /// Whether the conversation has read text from outside: what it writes may repeat it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_outside_text: bool,
}

/// Step of a run of a session, to which changes and records belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub session: SessionId,
    /// Root session; its list and worklog are its own, or those of its workspace.
    pub list: SessionId,
    pub agent: AgentId,
    pub run: Option<RunId>,
    /// Name of the behaviour with its parameters; empty if there is none.
    pub behavior: String,
    pub step: u32,
    /// Code of the current todo.
    pub todo: Option<String>,
    /// Whether the conversation has read text from outside: what it records may repeat it.
    pub has_outside_text: bool,
}

impl Place {
    /// The list of a session, seen from outside of its turns.
    #[must_use]
    pub const fn outside(list: SessionId, agent: AgentId) -> Self {
        Self {
            session: list,
            list,
            agent,
            run: None,
            behavior: String::new(),
            step: 0,
            todo: None,
            has_outside_text: false,
        }
    }

    /// Whether records of this place are committed by the record of its step.
    pub(crate) const fn is_in_step(&self) -> bool {
        self.run.is_some() && !self.behavior.is_empty()
    }
}
