//! Roles of people in a tenant.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Role of a person in a tenant. A greater role may do everything that a lesser one may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TenantRole {
    /// Reads settings and conversations.
    Viewer,
    /// Talks to agents.
    Member,
    /// Changes agents, channels, schedules and files, and decides about tool calls.
    Operator,
    /// Changes keys, people, policies, providers and budgets, and reads the audit log.
    Owner,
}

impl TenantRole {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Member, Self::Operator, Self::Owner];

    /// Word in settings and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
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
#[error("`{0}` is no role: there are `viewer`, `member`, `operator`, `owner`")]
pub struct InvalidTenantRole(String);

impl FromStr for TenantRole {
    type Err = InvalidTenantRole;

    fn from_str(word: &str) -> Result<Self, InvalidTenantRole> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == word);
        found.ok_or_else(|| InvalidTenantRole(word.chars().take(40).collect()))
    }
}
