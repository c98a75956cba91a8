//! Transactions on one tenant's rows. All access to them goes through [`TenantTx`].

use holdfast_types::TenantId;

use crate::{
    Connection, change_author,
    connection_pool::{ConnectionPool, PooledConnection},
};

/// Name and value of a database setting for one transaction: `("jit", "off")`.
pub type Setting = (&'static str, &'static str);

/// A transaction that sees one tenant's rows and no others.
///
/// Every query of every service takes one of these, so a query without a tenant does not compile.
/// Each query also names the tenant in its `where` clause, which the indexes need. Row-level
/// security, which this type switches on, protects against a query that forgets it.
#[derive(Debug)]
pub struct TenantTx {
    tenant: TenantId,
    lent: PooledConnection,
}

impl TenantTx {
    /// Begins a transaction for one tenant.
    pub(crate) async fn begin(
        keep: &ConnectionPool,
        tenant: TenantId,
        settings: &[Setting],
    ) -> sqlx::Result<Self> {
        // One round trip for all. `local` ends the settings with the transaction, so the connection
        // returns to the pool without this tenant. The text contains only UUIDs in hexadecimal,
        // constants of the program and ids without quotes, so SQL injection is not possible.
        let mut settings_sql = format!("; SET LOCAL holdfast.tenant_id = '{}'", tenant.as_uuid());
        for (name, value) in settings {
            settings_sql.push_str("; SET LOCAL ");
            settings_sql.push_str(name);
            settings_sql.push_str(" = ");
            settings_sql.push_str(value);
        }
        if let Some(author) = change_author::setting_sql() {
            settings_sql.push_str(&author);
        }
        let mut lent = keep.acquire_for(tenant).await?;
        lent.begin(&settings_sql).await?;
        Ok(Self { tenant, lent })
    }

    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub fn conn(&mut self) -> &mut Connection {
        self.lent.conn()
    }

    /// Rolls back the writes and releases the locks, and waits until that is done.
    ///
    /// A drop does the same a little later, in the background. Until then other transactions skip
    /// or wait for the locked rows.
    ///
    /// # Errors
    ///
    /// If the connection is lost; the server then rolls back.
    pub async fn rollback(self) -> sqlx::Result<()> {
        self.lent.rollback().await
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
