//! Behaviours of a tenant and of its agents, as documents.

use jiff::Timestamp;

/// Maximum number of behaviours of a tenant, and of an agent.
pub(crate) const MAX_BEHAVIORS: i64 = 100;

/// Versions that are kept of a behaviour.
pub(crate) const MAX_BEHAVIOR_VERSIONS: i64 = 50;

/// Layer of a behaviour. An agent's replaces the tenant's of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BehaviorLayer {
    Tenant,
    Agent,
}

/// A version of a behaviour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBehavior {
    pub layer: BehaviorLayer,
    pub name: String,
    /// From 1, increased by each change.
    pub version: i64,
    /// YAML or JSON, as it was written.
    pub source: String,
    /// Whether it is the version in use; none is if the behaviour was deleted.
    pub is_current: bool,
    pub created_at: Timestamp,
}
