//! Pools of connections, one for each of the two roles.

use std::time::Duration;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};
use tracing::{info, warn};

use crate::{Config, Once, Setting, SystemTx, TenantTx, keep::Keep};

/// The pools of one process. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Pools {
    app: Keep,
    system: Keep,
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
        let pool = |role: &str, size: u32| -> anyhow::Result<Keep> {
            Ok(Keep::new(options(config, service, role)?, size, config.acquire_timeout))
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
        self.tenant_with(tenant, &[]).await
    }

    /// Begins a transaction that sees one tenant's rows, with some of the database's settings for
    /// as long as it lasts. They cost no round trip.
    ///
    /// # Errors
    ///
    /// If there is no connection to be had, or the database knows no such setting.
    pub async fn tenant_with(
        &self,
        tenant: holdfast_types::TenantId,
        settings: &[Setting],
    ) -> sqlx::Result<TenantTx> {
        TenantTx::begin(&self.app, tenant, settings).await
    }

    /// Begins a transaction that sees leases and ids of all tenants.
    ///
    /// # Errors
    ///
    /// If there is no connection to be had.
    pub async fn system(&self) -> sqlx::Result<SystemTx> {
        SystemTx::begin(&self.system).await
    }

    /// A connection of the system role, for a single statement that is its own transaction.
    ///
    /// # Errors
    ///
    /// If there is no connection to be had.
    pub async fn once(&self) -> sqlx::Result<Once> {
        Once::begin(&self.system).await
    }

    /// Asks the database whether it is there.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub async fn ping(&self) -> sqlx::Result<()> {
        let mut once = self.once().await?;
        sqlx::query("select 1").execute(once.conn()).await?;
        once.done();
        Ok(())
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
