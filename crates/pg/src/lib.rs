//! Postgres: pools, transactions bound to a tenant, migrations, and the classification of errors.
//!
//! Rows are accessed in two ways. [`TenantTx`] sees one tenant's rows. [`SystemTx`] sees leases and
//! ids of all tenants, for work that precedes the knowledge of a tenant. The database enforces both
//! by roles and row-level security.

mod change_author;
mod config;
mod connection;
mod connection_pool;
mod durability;
mod error;
mod failure_log;
mod login;
mod migrate;
mod pool;
mod query;
mod readiness;
mod system_tx;
mod tenant_turns;
mod tenant_tx;

pub use change_author::with_change_author;
pub use config::Config;
pub use connection::Connection;
pub use durability::{detect_failover, durability_problems, log_durability};
pub use error::{is_lock_timeout, is_rolled_back, kind, on_constraint, permanent_class, summary};
pub use failure_log::FailureLog;
pub use login::LoginScope;
pub use migrate::{MigrateError, fingerprint, migrate, pending};
pub use pool::Pools;
pub use query::{Query, QueryAs, QueryBuilder, QueryScalar, query, query_as, query_scalar};
pub use readiness::wait_until_ready;
pub use system_tx::{SystemConnection, SystemTx};
pub use tenant_tx::{Setting, TenantTx};
