//! Connection pools, one for each of the two roles, and one for the renewal of leases.

use std::time::Duration;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};

use crate::{
    Config, LoginScope, Setting, SystemConnection, SystemTx, TenantTx,
    connection::PoolingMode,
    connection_pool::{ConnectionPool, Limits},
    login::role,
};

/// Shortest time after which Postgres ends a transaction whose client sends nothing. Such a client
/// is frozen or gone, and holds locks that others wait for.
const MIN_IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum wait for a lock, and maximum duration of a statement, when leases are renewed. There
/// must be time for several attempts before the leases expire.
const RENEWAL_LOCK_TIMEOUT: Duration = Duration::from_millis(500);
const RENEWAL_STATEMENT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time between the statement timeout of Postgres and that of this process, for the answer to
/// arrive.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The pools of one process. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Pools {
    app: ConnectionPool,
    system: ConnectionPool,
    /// One connection, so that renewal waits for nothing else.
    renewal: ConnectionPool,
    scope: LoginScope,
}

impl Pools {
    /// Creates the pools. Connections are opened when they are needed.
    ///
    /// # Errors
    ///
    /// If `database.url` is not a Postgres URL.
    pub fn lazy(config: &Config, service: &str) -> anyhow::Result<Self> {
        let options = options(config, service)?;
        let pooling = match config.transaction_pooling {
            true => PoolingMode::Transaction,
            false => PoolingMode::Session,
        };
        let login = options.get_username().to_owned();
        // An installation that gives Postgres more time to answer gives its clients as much, but less
        // than to a statement, which may wait for the locks of a client that is gone.
        let acquire = config.acquire_timeout.min(config.statement_timeout * 3 / 4);
        let idle = acquire.max(MIN_IDLE_IN_TRANSACTION_TIMEOUT);
        let pool = |name, kind: &str, size, statement: Duration, lock| {
            let limits = Limits {
                size,
                acquire_timeout: config.acquire_timeout.min(statement),
                statement: statement + ANSWER_TIMEOUT,
            };
            let settings = settings(&role(&login, kind), statement, lock, idle);
            ConnectionPool::new(name, options.clone(), &settings, pooling, limits)
        };
        let statement = config.statement_timeout;
        let renewal = statement.min(RENEWAL_STATEMENT_TIMEOUT);
        // Longer than a frozen client can hold a lock.
        let lock = idle * 2;
        Ok(Self {
            app: pool("app", "app", config.pool_size, statement, lock),
            system: pool("system", "system", config.system_pool_size, statement, lock),
            renewal: pool("renewal", "system", 1, renewal, RENEWAL_LOCK_TIMEOUT),
            scope: LoginScope::of_login(&login),
        })
    }

    /// Tenants whose rows the login reaches.
    #[must_use]
    pub const fn login_scope(&self) -> &LoginScope {
        &self.scope
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

    /// Returns the connection of the system role that renews leases. Its statements fail earlier
    /// than others, and do not wait for other work of this process.
    pub async fn renewal_connection(&self) -> sqlx::Result<SystemConnection> {
        SystemConnection::begin(&self.renewal).await
    }

    /// Checks that the database answers.
    pub async fn ping(&self) -> sqlx::Result<()> {
        let mut once = self.system_connection().await?;
        crate::query("select 1").execute(once.conn()).await?;
        once.done();
        Ok(())
    }

    /// Returns the version of the server, and the size of the database in bytes.
    pub async fn server_status(&self) -> sqlx::Result<(String, u64)> {
        const SQL: &str = "
            select current_setting('server_version'), pg_database_size(current_database())";
        let mut once = self.system_connection().await?;
        let (version, bytes): (String, i64) = crate::query_as(SQL).fetch_one(once.conn()).await?;
        once.done();
        Ok((version, bytes.unsigned_abs()))
    }

    pub async fn close(&self) {
        tokio::join!(self.app.close(), self.system.close(), self.renewal.close());
    }
}

fn options(config: &Config, service: &str) -> anyhow::Result<PgConnectOptions> {
    let options: PgConnectOptions =
        config.url.expose_secret().parse().context(
            "`database.url` is not a Postgres URL: write postgres://user:password@host/db",
        )?;
    let options = match config.transaction_pooling {
        // The server's other end is the pooler, which checks its connections itself.
        true => options,
        // A client that vanished must not hold a row lock forever.
        false => options.options([
            ("tcp_keepalives_idle", "15"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ]),
    };
    Ok(options
        .application_name(&format!("holdfast-{service}"))
        .statement_cache_capacity(256)
        .disable_statement_logging())
}

/// Names and values of the settings that each transaction of a pool has.
fn settings(
    role: &str,
    statement: Duration,
    lock: Duration,
    idle: Duration,
) -> [(&'static str, String); 6] {
    let millis = |duration: Duration| duration.as_millis().to_string();
    [
        ("role", role.to_owned()),
        // The queue tables grow from empty to thousands of rows faster than statistics follow, and
        // every query has its index: a plan must not depend on when the last `analyze` ran.
        ("enable_seqscan", "off".to_owned()),
        ("enable_bitmapscan", "off".to_owned()),
        ("statement_timeout", millis(statement)),
        ("lock_timeout", millis(lock)),
        ("idle_in_transaction_session_timeout", millis(idle)),
    ]
}
