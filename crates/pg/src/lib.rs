//! Postgres: pools, transactions that know whose rows they see, migrations, and what an error means.
//!
//! There are two ways to a row. [`TenantTx`] sees one tenant's; [`SystemTx`]
//! sees leases and ids of all of them, for what has to happen before a tenant
//! is known. The database enforces both by roles and row-level security.

mod config;
mod error;
mod keep;
mod migrate;
mod pool;
mod system_tx;
mod tenant_tx;

pub use config::Config;
pub use error::{is_unique_violation, kind, on_constraint};
pub use migrate::{MigrateError, fingerprint, migrate, pending};
pub use pool::{Pools, wait_for};
pub use system_tx::{Once, SystemTx};
pub use tenant_tx::{Setting, TenantTx};
