//! The way to what has to be seen before a tenant is known.

use sqlx::{Executor as _, PgConnection};

use crate::keep::{Keep, Lent};

/// A transaction as `holdfast_system`: it sees leases, ids and states of all tenants, and no content.
///
/// Its column grants are in the migrations. What follows from what it finds goes
/// through a [`TenantTx`](crate::TenantTx).
#[derive(Debug)]
pub struct SystemTx {
    lent: Lent,
}

impl SystemTx {
    pub(crate) async fn begin(keep: &Keep) -> sqlx::Result<Self> {
        let mut lent = keep.lend().await?;
        lent.conn().execute("BEGIN").await?;
        Ok(Self { lent })
    }

    /// The connection, for a query.
    pub fn conn(&mut self) -> &mut PgConnection {
        self.lent.conn()
    }

    /// Makes the writes last. Dropping the transaction instead undoes them.
    ///
    /// # Errors
    ///
    /// If the connection is lost, in which case they may have lasted all the same.
    pub async fn commit(mut self) -> sqlx::Result<()> {
        self.lent.conn().execute("COMMIT").await?;
        self.lent.done();
        Ok(())
    }

    /// Ends a transaction that only read, without waiting for the server's answer.
    pub fn finish_reading(self) {
        // Dropping undoes it, and there is nothing to undo.
        drop(self);
    }
}

/// A connection as `holdfast_system` for statements of which each is its own transaction.
///
/// Call [`done`](Self::done) when the last one has answered. Dropped instead, as when one failed,
/// it costs a round trip more, and nothing else.
#[derive(Debug)]
pub struct Once {
    lent: Lent,
}

impl Once {
    pub(crate) async fn begin(keep: &Keep) -> sqlx::Result<Self> {
        Ok(Self { lent: keep.lend().await?.by_statement() })
    }

    /// The connection, for a statement.
    pub fn conn(&mut self) -> &mut PgConnection {
        self.lent.conn()
    }

    /// Gives the connection back.
    pub fn done(self) {
        self.lent.done();
    }
}
