//! The way to what has to be seen before a tenant is known.

use sqlx::{PgConnection, PgPool, Postgres, Transaction};

/// A transaction as `holdfast_system`: it sees leases, ids and states of all tenants, and no content.
///
/// Its column grants are in the migrations. What follows from what it finds goes
/// through a [`TenantTx`](crate::TenantTx).
#[derive(Debug)]
pub struct SystemTx {
    inner: Transaction<'static, Postgres>,
}

impl SystemTx {
    pub(crate) async fn begin(pool: &PgPool) -> sqlx::Result<Self> {
        Ok(Self { inner: pool.begin().await? })
    }

    /// The connection, for a query.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.inner
    }

    /// Makes the writes last. Dropping the transaction instead undoes them.
    ///
    /// # Errors
    ///
    /// If the connection is lost, in which case they may have lasted all the same.
    pub async fn commit(self) -> sqlx::Result<()> {
        self.inner.commit().await
    }
}
