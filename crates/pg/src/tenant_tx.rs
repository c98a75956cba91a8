//! The only way to a tenant's rows.

use holdfast_types::TenantId;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Transaction};

/// A transaction that sees one tenant's rows and no others.
///
/// Every query of every service takes one of these, so a query without a tenant
/// does not compile. Each query also names the tenant in its `where` clause,
/// which is what the indexes want; and row-level security, which this switches
/// on, is there for the day when one forgets.
#[derive(Debug)]
pub struct TenantTx {
    tenant: TenantId,
    inner: Transaction<'static, Postgres>,
}

impl TenantTx {
    /// Begins a transaction for one tenant.
    ///
    /// # Errors
    ///
    /// If there is no connection to be had.
    pub(crate) async fn begin(pool: &PgPool, tenant: TenantId) -> sqlx::Result<Self> {
        // One round trip for both. `local` ends the setting with the transaction: the
        // connection goes back to the pool knowing nothing of this tenant. What is put into
        // the text is a UUID's own hexadecimal form, so nothing can hide in it.
        let begin = format!("begin; set local holdfast.tenant_id = '{}'", tenant.as_uuid());
        Ok(Self { tenant, inner: pool.begin_with(AssertSqlSafe(begin)).await? })
    }

    /// The tenant whose rows these are.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The connection, for a query.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.inner
    }

    /// Undoes the writes and lets go of the locks, now.
    ///
    /// Dropping does the same a little later, when the pool gets to it; until then others skip
    /// or wait for the rows that were locked.
    ///
    /// # Errors
    ///
    /// If the connection is lost; the server then undoes them.
    pub async fn rollback(self) -> sqlx::Result<()> {
        self.inner.rollback().await
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
