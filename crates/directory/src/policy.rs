//! What a tenant and its agents say about tools. What it means is `holdfast_agent::policy`'s
//! affair: here it is JSON that has a version.

use jiff::Timestamp;
use serde_json::Value;

/// A tool policy as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPolicy {
    /// What is written; `{}` if nothing is.
    pub document: Value,
    /// Grows with each change; 0 if nothing was ever written.
    pub version: i64,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
}

impl Default for StoredPolicy {
    fn default() -> Self {
        Self { document: Value::Object(serde_json::Map::new()), version: 0, updated_at: None }
    }
}

/// What holds for one agent: its tenant's policy and its own, as they were at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policies {
    /// The tenant's.
    pub tenant: StoredPolicy,
    /// The agent's.
    pub agent: StoredPolicy,
}

/// A tool that some runner has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTool {
    /// Its name.
    pub name: String,
    /// What it does, in a line.
    pub summary: String,
}
