//! Roles of people in a tenant.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Role of a person in a tenant. Of the roles that a person's groups have, the greatest counts. Each
/// role from `Member` on includes the one before it; `Viewer` and `Guest` stand alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TenantRole {
    /// Begins conversations and reads nothing else.
    Guest,
    /// Reads the settings and conversations of the whole tenant, and talks to no agent.
    Viewer,
    /// Talks to agents, and reaches what is their own: conversations, memories, files, reminders.
    Member,
    /// Also decides about tool calls in all conversations.
    Approver,
    /// Runs the tenant's installation: agents, channels, schedules and files. Owns no agent.
    Operator,
    /// Changes keys, people, policies, providers and budgets, and reads the audit log.
    Owner,
}

impl TenantRole {
    pub const ALL: [Self; 6] =
        [Self::Guest, Self::Viewer, Self::Member, Self::Approver, Self::Operator, Self::Owner];

    /// Word in settings and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }
}

impl fmt::Display for TenantRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no role: there are `guest`, `viewer`, `member`, `approver`, `operator`, `owner`")]
pub struct InvalidTenantRole(String);

impl FromStr for TenantRole {
    type Err = InvalidTenantRole;

    fn from_str(word: &str) -> Result<Self, InvalidTenantRole> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == word);
        found.ok_or_else(|| InvalidTenantRole(word.chars().take(40).collect()))
    }
}
