//! Pools of connections, one for each of the two roles.

use std::time::Duration;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use sqlx::{
    ConnectOptions as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tracing::{info, warn};

use crate::{Config, SystemTx, TenantTx};

/// The pools of one process. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Pools {
    app: PgPool,
    system: PgPool,
}

/// How often a service that waits for its database says so.
const SAY_AGAIN: Duration = Duration::from_secs(10);

impl Pools {
    /// Makes the pools; nothing is connected until it is needed.
    ///
    /// # Errors
    ///
    /// If the URL is not one.
    pub fn lazy(config: &Config, service: &str) -> anyhow::Result<Self> {
        let pool = |role: &str, size: u32| -> anyhow::Result<PgPool> {
            let options = options(config, service, role)?;
            Ok(PgPoolOptions::new()
                .max_connections(size)
                .acquire_timeout(config.acquire_timeout)
                .idle_timeout(Duration::from_secs(300))
                .max_lifetime(Duration::from_secs(3600))
                // A ping before each use would double the round trips; a dead connection's
                // first error is transient, and the caller tries again.
                .test_before_acquire(false)
                .connect_lazy_with(options))
        };
        Ok(Self {
            app: pool("holdfast_app", config.pool_size)?,
            system: pool("holdfast_system", config.system_pool_size)?,
        })
    }

    /// Begins a transaction that sees one tenant's rows.
    ///
    /// # Errors
    ///
    /// If there is no connection to be had.
    pub async fn tenant(&self, tenant: holdfast_types::TenantId) -> sqlx::Result<TenantTx> {
        TenantTx::begin(&self.app, tenant).await
    }

    /// Begins a transaction that sees leases and ids of all tenants.
    ///
    /// # Errors
    ///
    /// If there is no connection to be had.
    pub async fn system(&self) -> sqlx::Result<SystemTx> {
        SystemTx::begin(&self.system).await
    }

    /// The system role's pool, for a single statement that is its own transaction.
    #[must_use]
    pub const fn system_pool(&self) -> &PgPool {
        &self.system
    }

    /// Asks the database whether it is there.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub async fn ping(&self) -> sqlx::Result<()> {
        sqlx::query("select 1").execute(&self.system).await.map(|_| ())
    }

    /// Closes the connections.
    pub async fn close(&self) {
        tokio::join!(self.app.close(), self.system.close());
    }
}

fn options(config: &Config, service: &str, role: &str) -> anyhow::Result<PgConnectOptions> {
    let options: PgConnectOptions =
        config.url.expose_secret().parse().context(
            "`database.url` is not a Postgres URL: write postgres://user:password@host/db",
        )?;
    let timeout = config.statement_timeout.as_millis().to_string();
    Ok(options
        .application_name(&format!("holdfast-{service}"))
        .statement_cache_capacity(256)
        .options([
            ("role", role),
            ("statement_timeout", timeout.as_str()),
            ("idle_in_transaction_session_timeout", "60000"),
            // A client that vanished must not hold a row lock for ever.
            ("tcp_keepalives_idle", "15"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
            // The queues' tables go from empty to thousands of rows faster than statistics
            // follow, and every query has its index: a plan must not depend on when the last
            // `analyze` ran.
            ("enable_seqscan", "off"),
            ("enable_bitmapscan", "off"),
        ])
        .disable_statement_logging())
}

/// Waits until the database answers and its schema is the one that this binary knows.
///
/// A database that is down at the start is no reason to fail: this says so and waits.
///
/// # Errors
///
/// Only if `stop` comes first.
pub async fn wait_for<F>(pools: &Pools, stop: F) -> anyhow::Result<()>
where
    F: Future<Output = ()>,
{
    tokio::select! {
        () = stop => anyhow::bail!("asked to stop while waiting for the database"),
        () = until_ready(pools) => Ok(()),
    }
}

async fn until_ready(pools: &Pools) {
    let mut said: Option<tokio::time::Instant> = None;
    let mut pause = Duration::from_millis(50);
    loop {
        let problem = match crate::migrate::pending(pools).await {
            Ok(None) => {
                if said.is_some() {
                    info!("the database is ready");
                }
                return;
            }
            Ok(Some(missing)) => missing,
            Err(error) => format!("it does not answer ({error})"),
        };
        if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            warn!(%problem, "waiting for the database: check `database.url`, or run `holdfast migrate`");
            said = Some(tokio::time::Instant::now());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
