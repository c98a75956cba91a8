//! Database settings of an operator.

use std::time::Duration;

use holdfast_kit::config::masked;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Connection URL of the services' login. It contains a password, so it comes from a `Secret`.
    ///
    /// The login owns nothing. It is the service's own (`holdfast_gateway`, `holdfast_runner`,
    /// `holdfast_scheduler`, `holdfast_memory`, `holdfast_bridge`), that of a pool of runners
    /// (`holdfast_runner_pool_<pool>`, `holdfast_runner_default`), or a member of `holdfast_app` and
    /// `holdfast_system`, which have the rights of all services.
    #[serde(serialize_with = "masked")]
    pub url: SecretString,

    /// Connection URL of the schema's owner. Only `holdfast migrate` and `holdfast up` use it.
    #[serde(serialize_with = "masked")]
    pub admin_url: SecretString,

    /// Maximum number of connections per process for tenants' rows.
    ///
    /// A transaction takes one for a few milliseconds and never waits for a second one, so a few
    /// serve many turns.
    ///
    /// The sum of `pool_size` and `system_pool_size` over all processes, and one more for each
    /// runner, must stay below Postgres' `max_connections`.
    pub pool_size: u32,

    /// Maximum number of connections per process for claims and sweeps.
    pub system_pool_size: u32,

    /// Maximum wait for a free connection, before the call fails as unavailable.
    ///
    /// Postgres waits as long for the next statement of an open transaction, at least 5 s and at
    /// most three quarters of `statement_timeout`, before it ends the connection.
    #[serde(with = "humantime_serde")]
    pub acquire_timeout: Duration,

    /// Maximum duration of one statement, before Postgres cancels it.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,

    /// Whether `url` leads to a pooler in transaction mode, such as PgBouncer.
    ///
    /// Each transaction then sets its role and timeouts itself, and no statement stays prepared.
    pub transaction_pooling: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "postgres://holdfast@127.0.0.1/holdfast".into(),
            admin_url: "".into(),
            pool_size: 3,
            system_pool_size: 2,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(20),
            transaction_pooling: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_uses_at_most_six_connections_by_default() {
        let config = Config::default();

        // One more renews the leases.
        assert!(config.pool_size + config.system_pool_size < 6);
    }
}
