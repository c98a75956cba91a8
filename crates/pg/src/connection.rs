//! Database connection with a time limit for each statement.
//!
//! **What can go wrong.** If the network between this process and Postgres is cut while a statement
//! runs, no packet tells so, and the statement timeout of Postgres cannot arrive either. So this
//! side has a limit of its own. After it the state of the connection is unknown, and the connection
//! is closed.

use std::{io, sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, PgConnection, Postgres, SqlSafeStr, postgres::PgArguments};
use tokio::time::timeout;

/// A connection to Postgres. The statements of [`query`](crate::query),
/// [`query_as`](crate::query_as) and [`query_scalar`](crate::query_scalar) run on it.
#[derive(Debug)]
pub struct Connection {
    conn: PgConnection,
    /// Maximum duration of one statement; longer than the statement timeout of Postgres.
    limit: Duration,
    /// A statement got no answer within its limit.
    is_broken: bool,
    /// Begins a transaction that has the settings of the pool.
    begin: Arc<str>,
    pooling: PoolingMode,
    scope: StatementScope,
}

/// Mode of the pooler between this process and the server, named as by PgBouncer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolingMode {
    /// The connection to the server stays the same, with its settings and prepared statements.
    /// Also without a pooler.
    Session,
    /// Each transaction may have another connection to the server: settings and prepared statements
    /// are lost between them.
    Transaction,
}

/// Transaction that the statements on a connection belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatementScope {
    /// A transaction that was begun.
    Transaction,
    /// Each statement is its own transaction.
    Statement,
}

impl Connection {
    pub(crate) const fn new(
        conn: PgConnection,
        limit: Duration,
        begin: Arc<str>,
        pooling: PoolingMode,
    ) -> Self {
        Self { conn, limit, is_broken: false, begin, pooling, scope: StatementScope::Transaction }
    }

    pub(crate) const fn set_scope(&mut self, scope: StatementScope) {
        self.scope = scope;
    }

    /// Begins a transaction with the settings of the pool, and with `more` of them.
    pub(crate) async fn begin(&mut self, more: &str, limit: Duration) -> sqlx::Result<()> {
        let sql = format!("{}{more}", self.begin);
        // Constants of the program and numbers; of `more` the caller takes care.
        self.execute_simple(AssertSqlSafe(sql), limit).await
    }

    /// Whether each statement needs a transaction around it, for its settings, and because it is
    /// prepared and executed in two steps.
    fn wraps_statements(&self) -> bool {
        self.pooling == PoolingMode::Transaction && self.scope == StatementScope::Statement
    }

    /// Prepares the connection for a statement, and the statement for the connection.
    pub(crate) async fn before<'q>(
        &mut self,
        query: sqlx::query::Query<'q, Postgres, PgArguments>,
    ) -> sqlx::Result<sqlx::query::Query<'q, Postgres, PgArguments>> {
        if self.wraps_statements() {
            self.begin("", self.limit).await?;
        }
        // A statement that is not persistent has no name, so it meets no other of that name.
        Ok(query.persistent(self.pooling == PoolingMode::Session))
    }

    /// Ends what [`before`](Self::before) began.
    pub(crate) async fn after<T>(&mut self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        if self.wraps_statements() && !self.is_broken {
            let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
            let ended = self.execute_simple(end, Duration::MAX).await;
            return result.and_then(|value| ended.map(|()| value));
        }
        result
    }

    pub(crate) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(crate) fn into_inner(self) -> PgConnection {
        self.conn
    }

    /// Runs statements without parameters, separated by semicolons, within `limit`.
    pub(crate) async fn execute_simple(
        &mut self,
        sql: impl SqlSafeStr,
        limit: Duration,
    ) -> sqlx::Result<()> {
        let limit = limit.min(self.limit);
        self.check()?;
        within(limit, &mut self.is_broken, sqlx::raw_sql(sql).execute(&mut self.conn)).await?;
        Ok(())
    }

    /// Runs one statement, which `start` sends on the connection.
    pub(crate) async fn run<'c, T, F>(
        &'c mut self,
        start: impl FnOnce(&'c mut PgConnection) -> F,
    ) -> sqlx::Result<T>
    where
        F: Future<Output = sqlx::Result<T>>,
    {
        self.check()?;
        within(self.limit, &mut self.is_broken, start(&mut self.conn)).await
    }

    /// Fails if an earlier statement got no answer: its answer may still come, and the next
    /// statement would take it for its own.
    fn check(&self) -> sqlx::Result<()> {
        if !self.is_broken {
            return Ok(());
        }
        let text = "an earlier statement on this connection got no answer";
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::NotConnected, text)))
    }
}

async fn within<T>(
    limit: Duration,
    is_broken: &mut bool,
    statement: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    timeout(limit, statement).await.unwrap_or_else(|_elapsed| {
        *is_broken = true;
        let text = format!("the database has not answered for {} s", limit.as_secs());
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, text)))
    })
}
