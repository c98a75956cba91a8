//! Whether an agent takes turns.

use std::{fmt, str::FromStr};

use crate::Error;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentState {
    #[default]
    Enabled,
    /// The agent takes no turns, and its messages wait.
    Disabled,
    /// Disabled for good: kept for its files and conversations.
    Archived,
}

impl AgentState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Archived => "archived",
        }
    }

    /// Action of the audit log for a change to this state. The events `agent.enabled` and
    /// `agent.disabled` are made of it (migration 0114).
    pub(crate) const fn action(self) -> &'static str {
        match self {
            Self::Enabled => "agent.enable",
            Self::Disabled => "agent.disable",
            Self::Archived => "agent.archive",
        }
    }
}

impl fmt::Display for AgentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AgentState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Self::Enabled, Self::Disabled, Self::Archived];
        all.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            Error::Invalid(format!("`{shown}` is no state: write enabled, disabled or archived"))
        })
    }
}
