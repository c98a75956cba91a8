//! What a tenant has: keys, agents, models, channel accounts, and how messages are routed.
//!
//! [`Directory`] owns the Postgres schema `control` and is the only way to it.
//! The gateway reads and writes it, runners read agents and models, bridges
//! read accounts.
//!
//! | module | what it knows |
//! |---|---|
//! | `tenant`, `key`, `agent`, `policy`, `provider`, `credential`, `renewal`, `catalogue`, `budget`, `account`, `connection`, `mcp`, `node`, `routing`, `pattern`, `skill_env` | what things are, and what they may be |
//! | [`channel`] | what accounts may be set to, for those who serve them |
//! | `token`, `seal` | the text form of a key; how secrets are kept |
//! | `verbs` | what can be done; transactions begin and end there |
//! | `store` | every query |
//!
//! Each change writes a row of `control.audit` in its own transaction. Nothing
//! secret is ever in an audit row, a log line or a `Debug`.
//!
//! ## What can go wrong
//!
//! Two things are remembered for a moment: a key (5 s) and a tenant's routing
//! (1 s). So a key that is revoked in one process works for up to 5 s in
//! another, and a new binding counts there after up to 1 s.

mod account;
mod actor;
mod agent;
mod budget;
mod cache;
mod catalogue;
mod chain;
pub mod channel;
mod connection;
mod credential;
mod directory;
mod error;
mod key;
mod mcp;
mod node;
mod pattern;
mod policy;
mod provider;
mod renewal;
mod routing;
mod seal;
mod skill_env;
mod store;
mod tenant;
mod token;
mod verbs;
mod web;

pub use account::{Account, NewAccount, OpenAccount};
pub use actor::Actor;
pub use agent::{Agent, AgentCard, NewAgent, Settings};
pub use budget::Budget;
pub use catalogue::{Known, KnownModel};
pub use chain::NamedChain;
pub use connection::{Connection, NewConnection};
pub use credential::{CredentialCard, CredentialKind, Keys, NewCredential, OWN_KEY, Remembered};
pub use directory::Directory;
pub use error::Error;
pub use key::{Authenticated, Key, NewKey, SCOPES};
pub use mcp::{McpServer, McpTransport, NewMcpServer, OpenMcpServer};
pub use node::{KnownNode, NewNode, Node, NodeConnection, NodeSelf};
pub use pattern::Pattern;
pub use policy::{KnownTool, Policies, StoredPolicy};
pub use provider::{ELEVENLABS, ModelChoice, ModelSetup, NewProvider, Provider, ProviderKind};
pub use renewal::{CLAIMED, Grant, NewTokens, Renewable, Renewal, Renewed, RenewedAt};
pub use routing::{Binding, Identity, NewBinding, NewModelRoute, NewRule, Routing, Rule};
pub use seal::{DataKey, Kek, Purpose, Seal, Sealing};
pub use skill_env::{OpenVariable, SkillVariable};
pub use tenant::{Tenant, TenantChanges, TenantState};
pub use verbs::NodeStanding;
