//! Connections that are kept open between transactions.
//!
//! sqlx's own pool asks each connection that comes back whether it is still alive, which is one
//! round trip more for each transaction; here only one whose transaction was left in the middle
//! costs anything more than its own statements (docs/decisions/0008-a-turns-way-to-the-database.md).

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};
use tracing::debug;

/// How long a connection may lie unused before it is closed.
const IDLE: Duration = Duration::from_secs(300);

/// How old a connection may become: a server's process keeps what it once cached.
const AGE: Duration = Duration::from_secs(3600);

/// How long a transaction that was left in the middle may take to be undone before its connection
/// is given up instead.
const UNDO: Duration = Duration::from_secs(5);

/// What is sent on a connection that was left in the middle of a transaction, and of a statement
/// that is its own: there a rollback would be warned of.
const UNDO_ALL: &str = "ROLLBACK";
const UNDO_NOTHING: &str = "select 1";

/// A bounded number of connections of one role. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct Keep(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: PgConnectOptions,
    patience: Duration,
    permits: Arc<Semaphore>,
    idle: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    conn: PgConnection,
    born: Instant,
    since: Instant,
}

impl Keep {
    /// Keeps up to `size` connections; none is made before it is needed.
    pub fn new(options: PgConnectOptions, size: u32, patience: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(1)));
        Self(Arc::new(Shared { options, patience, permits, idle: Mutex::default() }))
    }

    /// Lends a connection, a kept one or a new one.
    ///
    /// A server that is away or not yet ready is asked again for as long as a caller may wait.
    pub async fn lend(&self) -> sqlx::Result<Lent> {
        timeout(self.0.patience, self.lend_at_last())
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    async fn lend_at_last(&self) -> sqlx::Result<Lent> {
        let permit = Arc::clone(&self.0.permits)
            .acquire_owned()
            .await
            .map_err(|_closed| sqlx::Error::PoolClosed)?;
        let (conn, born) = match self.0.take() {
            Some(kept) => (kept.conn, kept.born),
            None => (self.0.connect().await?, Instant::now()),
        };
        let shared = Arc::clone(&self.0);
        Ok(Lent { conn: Some(conn), born, settle: UNDO_ALL, shared, permit: Some(permit) })
    }

    /// Closes the connections that are not lent, and lends no more.
    pub async fn close(&self) {
        self.0.permits.close();
        let idle = std::mem::take(&mut *self.0.idle());
        for kept in idle {
            if let Err(error) = kept.conn.close().await {
                debug!(%error, "a connection ended before it was closed");
            }
        }
    }
}

impl Shared {
    fn idle(&self) -> std::sync::MutexGuard<'_, VecDeque<Kept>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that was used last, so that those not needed grow old and go.
    fn take(&self) -> Option<Kept> {
        let mut idle = self.idle();
        while idle.front().is_some_and(|oldest| oldest.since.elapsed() > IDLE) {
            idle.pop_front();
        }
        idle.pop_back()
    }

    fn put(&self, conn: PgConnection, born: Instant) {
        if born.elapsed() < AGE && !self.permits.is_closed() {
            self.idle().push_back(Kept { conn, born, since: Instant::now() });
        }
    }

    async fn connect(&self) -> sqlx::Result<PgConnection> {
        let mut pause = Duration::from_millis(10);
        loop {
            match self.options.connect().await {
                Err(error) if may_pass(&error) => debug!(%error, "the database is not there yet"),
                other => return other,
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

/// Whether a server that refuses a connection so may let the next one in.
fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        // It starts; it stops; it has no connection to spare.
        sqlx::Error::Database(error) => {
            matches!(error.code().as_deref(), Some("57P03" | "57P01" | "53300"))
        }
        _ => false,
    }
}

/// A connection for a while.
///
/// Give it back by [`Lent::done`] when nothing is under way on it. One that is dropped instead has
/// what was under way undone first, in the background.
#[derive(Debug)]
pub(crate) struct Lent {
    /// `None` once it is given back.
    conn: Option<PgConnection>,
    born: Instant,
    settle: &'static str,
    shared: Arc<Shared>,
    /// `None` once what was under way is being undone.
    permit: Option<OwnedSemaphorePermit>,
}

impl Lent {
    /// For statements of which each is its own transaction.
    pub const fn by_statement(mut self) -> Self {
        self.settle = UNDO_NOTHING;
        self
    }

    /// The connection; an error if it was given back.
    pub fn conn(&mut self) -> &mut PgConnection {
        match &mut self.conn {
            Some(conn) => conn,
            None => unreachable!("`done` takes the loan itself"),
        }
    }

    /// Gives back a connection on which nothing is under way.
    pub fn done(mut self) {
        if let Some(conn) = self.conn.take() {
            self.shared.put(conn, self.born);
        }
    }

    /// Undoes what is under way, and gives the connection back.
    pub async fn undo(mut self) -> sqlx::Result<()> {
        self.conn().execute("ROLLBACK").await?;
        self.done();
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        // Without a runtime the process ends, and the server undoes it when the socket closes.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, born, settle) = (Arc::clone(&self.shared), self.born, self.settle);
        let permit = self.permit.take();
        runtime.spawn(async move {
            let mut conn = conn;
            match timeout(UNDO, conn.execute(settle)).await {
                Ok(Ok(_)) => shared.put(conn, born),
                _ => {
                    // What ended this one ended the others, most likely: a server that starts
                    // anew knows none of them.
                    shared.idle().clear();
                    debug!("a connection was given up: its transaction could not be undone");
                }
            }
            // Not before: whoever asks next would open one more than there may be.
            drop(permit);
        });
    }
}
