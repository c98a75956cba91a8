//! Operations of the directory, one file per kind of item. Transactions begin and end here.

mod accounts;
mod agents;
mod catalogue;
mod chains;
mod connections;
mod credentials;
mod keys;
mod mcp_servers;
mod nodes;
mod packages;
mod policies;
mod providers;
mod renewals;
mod routing;
mod skill_env;
mod tenants;

pub use nodes::NodeConnectionState;

use crate::Error;

/// Returns [`Error::TooMany`] if the limit is reached.
fn check_limit(what: &'static str, have: i64, limit: i64) -> Result<(), Error> {
    if have >= limit { Err(Error::TooMany { what, limit }) } else { Ok(()) }
}
