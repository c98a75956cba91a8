//! Connection pools, one for each of the two roles.

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};

use crate::{
    Config, Setting, SystemConnection, SystemTx, TenantTx, connection_pool::ConnectionPool,
};

/// The pools of one process. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Pools {
    app: ConnectionPool,
    system: ConnectionPool,
}

impl Pools {
    /// Creates the pools. Connections are opened when they are needed.
    ///
    /// # Errors
    ///
    /// If `database.url` is not a Postgres URL.
    pub fn lazy(config: &Config, service: &str) -> anyhow::Result<Self> {
        let pool = |role: &str, size: u32| -> anyhow::Result<ConnectionPool> {
            Ok(ConnectionPool::new(options(config, service, role)?, size, config.acquire_timeout))
        };
        Ok(Self {
            app: pool("holdfast_app", config.pool_size)?,
            system: pool("holdfast_system", config.system_pool_size)?,
        })
    }

    /// Begins a transaction that sees one tenant's rows.
    pub async fn tenant(&self, tenant: holdfast_types::TenantId) -> sqlx::Result<TenantTx> {
        self.tenant_with(tenant, &[]).await
    }

    /// Begins a transaction that sees one tenant's rows, with database settings that last as long
    /// as the transaction. They need no extra round trip.
    ///
    /// # Errors
    ///
    /// If there is no connection, or the database knows no such setting.
    pub async fn tenant_with(
        &self,
        tenant: holdfast_types::TenantId,
        settings: &[Setting],
    ) -> sqlx::Result<TenantTx> {
        TenantTx::begin(&self.app, tenant, settings).await
    }

    /// Begins a transaction that sees leases and ids of all tenants.
    pub async fn system(&self) -> sqlx::Result<SystemTx> {
        SystemTx::begin(&self.system).await
    }

    /// Returns a connection of the system role, for a single statement that is its own transaction.
    pub async fn system_connection(&self) -> sqlx::Result<SystemConnection> {
        SystemConnection::begin(&self.system).await
    }

    /// Checks that the database answers.
    pub async fn ping(&self) -> sqlx::Result<()> {
        let mut once = self.system_connection().await?;
        sqlx::query("select 1").execute(once.conn()).await?;
        once.done();
        Ok(())
    }

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
            // A client that vanished must not hold a row lock forever.
            ("tcp_keepalives_idle", "15"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
            // The queue tables grow from empty to thousands of rows faster than statistics follow,
            // and every query has its index: a plan must not depend on when the last `analyze` ran.
            ("enable_seqscan", "off"),
            ("enable_bitmapscan", "off"),
        ])
        .disable_statement_logging())
}
