//! What an operator may choose about the database.

use std::time::Duration;

use holdfast_kit::config::masked;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The Postgres database.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Connection URL of the services' login. It holds a password, so it comes from a `Secret`.
    ///
    /// The login must be a member of `holdfast_app` and `holdfast_system`, and own nothing.
    #[serde(serialize_with = "masked")]
    pub url: SecretString,

    /// Connection URL of the schema's owner, which only `holdfast migrate` and `holdfast up` use.
    #[serde(serialize_with = "masked")]
    pub admin_url: SecretString,

    /// Connections that one process holds open at most, for tenants' rows.
    ///
    /// All processes together must stay below Postgres' `max_connections`, with as many as
    /// `system_pool_size` besides for each.
    pub pool_size: u32,

    /// Connections that one process holds open at most, for claims and sweeps.
    pub system_pool_size: u32,

    /// How long a call may wait for a connection before it is refused as unavailable.
    #[serde(with = "humantime_serde")]
    pub acquire_timeout: Duration,

    /// How long one statement may take before Postgres ends it.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "postgres://holdfast@127.0.0.1/holdfast".into(),
            admin_url: "".into(),
            pool_size: 16,
            system_pool_size: 2,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(20),
        }
    }
}
