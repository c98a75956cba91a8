//! Database access that precedes the knowledge of a tenant.

use crate::{
    Connection,
    connection_pool::{ConnectionPool, PooledConnection},
};

/// A transaction as `holdfast_system`: it sees leases, ids and states of all tenants, and no
/// content.
///
/// The migrations define its column grants. Once the tenant is known, use a
/// [`TenantTx`](crate::TenantTx).
#[derive(Debug)]
pub struct SystemTx {
    lent: PooledConnection,
}

impl SystemTx {
    pub(crate) async fn begin(keep: &ConnectionPool) -> sqlx::Result<Self> {
        let mut lent = keep.acquire().await?;
        lent.begin("").await?;
        Ok(Self { lent })
    }

    pub fn conn(&mut self) -> &mut Connection {
        self.lent.conn()
    }

    /// Commits the writes. If the transaction is dropped instead, they are rolled back.
    ///
    /// # Errors
    ///
    /// If the connection is lost. The transaction may still have been committed.
    pub async fn commit(self) -> sqlx::Result<()> {
        self.lent.commit().await
    }

    /// Ends a read-only transaction without waiting for the server's answer.
    pub fn finish_reading(self) {
        // The drop sends a rollback in the background. There is nothing to roll back.
        drop(self);
    }
}

/// A connection as `holdfast_system` on which each statement is its own transaction.
///
/// Call [`done`](Self::done) after the last answer. If it is dropped instead, for example after an
/// error, that costs one more round trip and nothing else.
#[derive(Debug)]
pub struct SystemConnection {
    lent: PooledConnection,
}

impl SystemConnection {
    pub(crate) async fn begin(keep: &ConnectionPool) -> sqlx::Result<Self> {
        Ok(Self { lent: keep.acquire().await?.without_transaction() })
    }

    pub fn conn(&mut self) -> &mut Connection {
        self.lent.conn()
    }

    /// Returns the connection to the pool.
    pub fn done(self) {
        self.lent.done();
    }
}
