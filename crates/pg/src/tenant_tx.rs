//! The only way to a tenant's rows.

use holdfast_types::TenantId;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::keep::{Keep, Lent};

/// A setting of the database's and its value, for one transaction: `("jit", "off")`.
pub type Setting = (&'static str, &'static str);

/// A transaction that sees one tenant's rows and no others.
///
/// Every query of every service takes one of these, so a query without a tenant
/// does not compile. Each query also names the tenant in its `where` clause,
/// which is what the indexes want; and row-level security, which this switches
/// on, is there for the day when one forgets.
#[derive(Debug)]
pub struct TenantTx {
    tenant: TenantId,
    lent: Lent,
}

impl TenantTx {
    /// Begins a transaction for one tenant.
    ///
    /// # Errors
    ///
    /// If there is no connection to be had.
    pub(crate) async fn begin(
        keep: &Keep,
        tenant: TenantId,
        settings: &[Setting],
    ) -> sqlx::Result<Self> {
        // One round trip for all. `local` ends the settings with the transaction: the
        // connection goes back to the pool knowing nothing of this tenant. What is put into
        // the text is a UUID's own hexadecimal form and what stands in the program, so nothing
        // can hide in it.
        let mut begin = format!("BEGIN; SET LOCAL holdfast.tenant_id = '{}'", tenant.as_uuid());
        for (name, value) in settings {
            begin.push_str("; SET LOCAL ");
            begin.push_str(name);
            begin.push_str(" = ");
            begin.push_str(value);
        }
        let mut lent = keep.lend().await?;
        lent.conn().execute(AssertSqlSafe(begin)).await?;
        Ok(Self { tenant, lent })
    }

    /// The tenant whose rows these are.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The connection, for a query.
    pub fn conn(&mut self) -> &mut PgConnection {
        self.lent.conn()
    }

    /// Undoes the writes and lets go of the locks, now.
    ///
    /// Dropping does the same a little later, in the background; until then others skip or wait
    /// for the rows that were locked.
    ///
    /// # Errors
    ///
    /// If the connection is lost; the server then undoes them.
    pub async fn rollback(self) -> sqlx::Result<()> {
        self.lent.undo().await
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
