//! Queries of the directory, one file per table. Row types stay private.

pub(crate) mod accounts;
pub(crate) mod agents;
pub(crate) mod audit;
pub(crate) mod bindings;
pub(crate) mod budgets;
pub(crate) mod catalogue;
pub(crate) mod chains;
pub(crate) mod connections;
pub(crate) mod credentials;
pub(crate) mod identities;
pub(crate) mod keys;
pub(crate) mod mcp_servers;
pub(crate) mod nodes;
pub(crate) mod people;
pub(crate) mod plans;
pub(crate) mod policies;
pub(crate) mod prompt_facts;
pub(crate) mod providers;
pub(crate) mod renewals;
pub(crate) mod rules;
pub(crate) mod skill_env;
pub(crate) mod tenant_events;
pub(crate) mod tenants;
pub(crate) mod tools;
