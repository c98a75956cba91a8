//! Connection pool that checks no healthy connection.
//!
//! sqlx's own pool pings each connection that is returned, which adds a round trip to every
//! transaction. Here only a connection that was dropped in the middle of a transaction costs more
//! than its own statements (docs/decisions/0008-a-turns-way-to-the-database.md).

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_types::TenantId;
use metrics::{Gauge, Histogram};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};
use tracing::debug;

use crate::{
    Connection,
    connection::{PoolingMode, StatementScope},
    tenant_turns::TenantTurns,
};

/// Time after which an unused connection is closed.
const MAX_IDLE_TIME: Duration = Duration::from_secs(300);

/// Maximum age of a connection. A server process never frees what it has cached.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(3600);

/// Maximum duration of the rollback of an abandoned transaction, before its connection is closed
/// instead.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Statement that is sent on a connection that was dropped instead of returned.
///
/// If each statement was its own transaction, it is a query without effect: Postgres would warn
/// about a rollback. Behind a pooler a transaction may be open in that case too.
const ROLLBACK_SQL: &str = "ROLLBACK";
const NO_OP_SQL: &str = "select 1";

/// A pool of connections of one role. Clones share the connections.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    options: PgConnectOptions,
    begin: Arc<str>,
    pooling: PoolingMode,
    limits: Limits,
    permits: Arc<Semaphore>,
    turns: TenantTurns,
    idle: Mutex<VecDeque<IdleConnection>>,
    in_use: Gauge,
    wait: Histogram,
}

/// Limits of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of connections.
    pub size: u32,
    /// Maximum wait for a connection, and for the first answer of a transaction.
    pub acquire_timeout: Duration,
    /// Maximum duration of one statement.
    pub statement: Duration,
}

#[derive(Debug)]
struct IdleConnection {
    conn: Connection,
    born: Instant,
    idle_since: Instant,
}

impl ConnectionPool {
    /// Creates a pool whose connections have these settings, under a name for metrics. No connection
    /// is opened before it is needed.
    pub fn new(
        name: &'static str,
        options: PgConnectOptions,
        settings: &[(&str, String)],
        pooling: PoolingMode,
        limits: Limits,
    ) -> Self {
        let size = usize::try_from(limits.size).unwrap_or(1);
        let (permits, turns) = (Arc::new(Semaphore::new(size)), TenantTurns::new(size));
        let mut begin = "BEGIN".to_owned();
        let options = match pooling {
            PoolingMode::Session => {
                options.options(settings.iter().map(|(name, value)| (name, value)))
            }
            PoolingMode::Transaction => {
                for (name, value) in settings {
                    begin.push_str(&format!("; SET LOCAL {name} = {value}"));
                }
                // A start-up parameter that poolers refuse.
                options.extra_float_digits(None)
            }
        };
        metrics::gauge!("holdfast_database_connections_limit", "pool" => name)
            .increment(f64::from(limits.size));
        Self(Arc::new(PoolState {
            options,
            begin: begin.into(),
            pooling,
            limits,
            permits,
            turns,
            idle: Mutex::default(),
            in_use: metrics::gauge!("holdfast_database_connections_in_use", "pool" => name),
            wait: metrics::histogram!("holdfast_database_wait_duration_seconds", "pool" => name),
        }))
    }

    /// Returns an idle connection or opens a new one.
    ///
    /// While the server is unreachable or not ready, this retries until the caller's timeout.
    pub async fn acquire(&self) -> sqlx::Result<PooledConnection> {
        timeout(self.0.limits.acquire_timeout, self.acquire_without_timeout(Instant::now()))
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// As [`acquire`](Self::acquire), for a tenant: its many requests do not keep those of others
    /// waiting.
    pub async fn acquire_for(&self, tenant: TenantId) -> sqlx::Result<PooledConnection> {
        timeout(self.0.limits.acquire_timeout, self.acquire_in_turn(tenant))
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    async fn acquire_in_turn(&self, tenant: TenantId) -> sqlx::Result<PooledConnection> {
        let began = Instant::now();
        let _turn = self.0.turns.take(tenant).await;
        self.acquire_without_timeout(began).await
    }

    async fn acquire_without_timeout(&self, began: Instant) -> sqlx::Result<PooledConnection> {
        let permit = Arc::clone(&self.0.permits)
            .acquire_owned()
            .await
            .map_err(|_closed| sqlx::Error::PoolClosed)?;
        let permit = CountedPermit::new(permit, &self.0.in_use);
        let (mut conn, born) = match self.0.take() {
            Some(kept) => (kept.conn, kept.born),
            None => {
                let (conn, begin) = (self.0.connect().await?, Arc::clone(&self.0.begin));
                let limit = self.0.limits.statement;
                (Connection::new(conn, limit, begin, self.0.pooling), Instant::now())
            }
        };
        conn.set_scope(StatementScope::Transaction);
        self.0.wait.record(began.elapsed());
        let shared = Arc::clone(&self.0);
        Ok(PooledConnection {
            conn: Some(conn),
            born,
            reset_sql: ROLLBACK_SQL,
            shared,
            permit: Some(permit),
        })
    }

    /// Closes the connections that are not lent, and lends no more.
    pub async fn close(&self) {
        self.0.permits.close();
        let idle = std::mem::take(&mut *self.0.idle());
        for kept in idle {
            if let Err(error) = kept.conn.into_inner().close().await {
                debug!(%error, "a connection ended before it was closed");
            }
        }
    }
}

impl PoolState {
    fn idle(&self) -> std::sync::MutexGuard<'_, VecDeque<IdleConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection that was used last, so that surplus connections become old and are
    /// closed.
    fn take(&self) -> Option<IdleConnection> {
        let mut idle = self.idle();
        while idle.front().is_some_and(|oldest| oldest.idle_since.elapsed() > MAX_IDLE_TIME) {
            idle.pop_front();
        }
        idle.pop_back()
    }

    fn put(&self, conn: Connection, born: Instant) {
        let is_usable = !conn.is_broken() && born.elapsed() < MAX_CONNECTION_AGE;
        if is_usable && !self.permits.is_closed() {
            self.idle().push_back(IdleConnection { conn, born, idle_since: Instant::now() });
        }
    }

    async fn connect(&self) -> sqlx::Result<PgConnection> {
        let mut pause = Duration::from_millis(10);
        loop {
            match self.options.connect().await {
                Err(error) if is_transient(&error) => {
                    debug!(%error, "the database is not there yet")
                }
                other => return other,
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

/// Whether a server that refuses a connection with this error may accept a later one.
fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        // The server starts; it stops; it has no free connection.
        sqlx::Error::Database(error) => {
            matches!(error.code().as_deref(), Some("57P03" | "57P01" | "53300"))
        }
        _ => false,
    }
}

/// A connection on loan from a pool.
///
/// Return it by [`done`](Self::done) when no transaction is open on it. If it is dropped instead,
/// the open transaction is first rolled back in the background.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    /// `None` after the connection is returned.
    conn: Option<Connection>,
    born: Instant,
    reset_sql: &'static str,
    shared: Arc<PoolState>,
    /// `None` after the background rollback has begun.
    permit: Option<CountedPermit>,
}

/// Place of one connection in the pool, counted until it is dropped.
#[derive(Debug)]
struct CountedPermit {
    _permit: OwnedSemaphorePermit,
    in_use: Gauge,
}

impl CountedPermit {
    fn new(permit: OwnedSemaphorePermit, in_use: &Gauge) -> Self {
        in_use.increment(1.0);
        Self { _permit: permit, in_use: in_use.clone() }
    }
}

impl Drop for CountedPermit {
    fn drop(&mut self) {
        self.in_use.decrement(1.0);
    }
}

impl PooledConnection {
    /// Marks a loan on which each statement is its own transaction.
    pub fn without_transaction(mut self) -> Self {
        if self.shared.pooling == PoolingMode::Session {
            self.reset_sql = NO_OP_SQL;
        }
        self.conn().set_scope(StatementScope::Statement);
        self
    }

    pub fn conn(&mut self) -> &mut Connection {
        match &mut self.conn {
            Some(conn) => conn,
            None => unreachable!("`done` takes the loan itself"),
        }
    }

    /// Begins a transaction, with statements that follow the `BEGIN`, each after a semicolon. This
    /// waits for no lock, so a server that does not answer soon is unreachable.
    pub async fn begin(&mut self, settings: &str) -> sqlx::Result<()> {
        let limit = self.shared.limits.acquire_timeout;
        self.conn().begin(settings, limit).await
    }

    /// Commits the open transaction, and returns the connection to the pool.
    pub async fn commit(mut self) -> sqlx::Result<()> {
        self.conn().execute_simple("COMMIT", Duration::MAX).await?;
        self.done();
        Ok(())
    }

    /// Returns a connection without an open transaction to the pool. One that is broken is closed.
    pub fn done(mut self) {
        if let Some(conn) = self.conn.take() {
            self.shared.put(conn, self.born);
        }
    }

    /// Rolls back the open transaction, and returns the connection to the pool.
    pub async fn rollback(mut self) -> sqlx::Result<()> {
        self.conn().execute_simple(ROLLBACK_SQL, ROLLBACK_TIMEOUT).await?;
        self.done();
        Ok(())
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        // Without a runtime the process is ending. The server rolls back when the socket closes.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, born, settle) = (Arc::clone(&self.shared), self.born, self.reset_sql);
        let permit = self.permit.take();
        runtime.spawn(async move {
            let mut conn = conn;
            if !conn.is_broken() && conn.execute_simple(settle, ROLLBACK_TIMEOUT).await.is_ok() {
                shared.put(conn, born);
            } else {
                // Most likely the server restarted or cannot be reached, and the idle connections
                // have ended as well.
                shared.idle().clear();
                debug!("a connection was given up: its transaction could not be undone");
            }
            // Not earlier: the next caller would open one connection more than the limit.
            drop(permit);
        });
    }
}
