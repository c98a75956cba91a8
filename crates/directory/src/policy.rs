//! Tool policies of tenants and agents, stored as versioned JSON. `holdfast_agent::policy`
//! interprets them.

use jiff::Timestamp;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct StoredPolicy {
    /// Policy document; `{}` if none is stored.
    pub document: Value,
    /// Version, increased by each change; 0 if none is stored.
    pub version: i64,
    /// `None` if no policy is stored.
    pub updated_at: Option<Timestamp>,
}

impl Default for StoredPolicy {
    fn default() -> Self {
        Self { document: Value::Object(serde_json::Map::new()), version: 0, updated_at: None }
    }
}

/// Policies that apply to one agent, read in one snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policies {
    pub tenant: StoredPolicy,
    pub agent: StoredPolicy,
}

/// A tool that a runner has announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTool {
    pub name: String,
    /// Effect of the tool, in one line.
    pub summary: String,
}
