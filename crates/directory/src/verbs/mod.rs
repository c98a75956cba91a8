//! Operations of the directory, one file per kind of item. Transactions begin and end here.

mod accounts;
mod agents;
mod audit;
mod behaviors;
mod budgets;
mod catalogue;
mod chains;
mod connections;
mod credentials;
mod keys;
mod mcp_servers;
mod model_choice;
mod model_uses;
mod nodes;
mod packages;
mod people;
mod plans;
mod policies;
mod providers;
mod renewals;
mod request_keys;
mod routing;
mod skill_env;
mod tenant_deletion;
mod tenant_events;
mod tenants;

pub use accounts::Accounts;
pub use agents::{Agents, BaseVersion};
pub use audit::Audit;
pub use behaviors::Behaviors;
pub use budgets::Budgets;
pub use catalogue::Models;
pub use chains::Chains;
pub use connections::Connections;
pub use credentials::Credentials;
pub use keys::Keys;
pub use keys::console::ConsoleSessions;
pub use keys::devices::Devices;
pub use mcp_servers::McpServers;
pub use model_uses::ModelUse;
pub use nodes::{NodeConnectionState, Nodes};
pub use packages::ImportedAgent;
pub use people::{People, ProviderCheck};
pub use plans::Plans;
pub use policies::PolicyDocuments;
pub use providers::Providers;
pub use providers::platform::PlatformKeys;
pub use routing::Routes;
pub use skill_env::SkillEnv;
pub use tenant_events::TenantEvents;
pub use tenant_events::webhooks::EventWebhooks;
pub use tenants::Tenants;

use crate::Error;

/// Returns [`Error::TooMany`] if the limit is reached.
fn check_limit(what: &'static str, have: i64, limit: i64) -> Result<(), Error> {
    if have >= limit { Err(Error::TooMany { what, limit }) } else { Ok(()) }
}
