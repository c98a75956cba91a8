//! Deletion of tenants with everything that they have.
//!
//! A tenant is first marked: its keys and channels are refused at once. Then its rows are deleted
//! in batches, from every table of the database's catalogue that has a column `tenant_id`, so that
//! a new table is covered without a change here. The tenant itself is deleted by the first pass
//! that finds nothing else: whatever still wrote rows when the first pass began has ended by then.
//! Its place in the queue goes with it, because that says whose runner may delete it.

use holdfast_pg::Pools;
use holdfast_types::TenantId;
use serde_json::json;
use sqlx::AssertSqlSafe;

use super::tenants::Tenants;
use crate::{Actor, Error, store, tenant::event::TenantEventKind};

/// Maximum number of rows that one transaction deletes.
const ROWS_PER_BATCH: i64 = 2_000;

impl Tenants<'_> {
    /// Marks a tenant for deletion. There is no way back.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such tenant.
    pub async fn delete(self, tenant: TenantId, actor: Actor) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if store::tenants::mark_deleting(&mut tx).await? {
            let by = json!({"actor": actor.to_string()});
            let kind = TenantEventKind::DeletionStarted;
            store::tenant_events::insert(&mut tx, kind, by).await?;
        }
        store::audit::record(&mut tx, actor, "tenant.delete", tenant).await?;
        Ok(tx.commit().await?)
    }

    /// Returns the tenants that are marked for deletion, those that wait longest first.
    pub async fn deleting(self) -> Result<Vec<TenantId>, Error> {
        let mut tx = self.0.pools.system().await?;
        let tenants = store::tenants::deleting(&mut tx).await?;
        tx.commit().await?;
        Ok(tenants)
    }

    /// Deletes the rows of a tenant that is marked for deletion, and the tenant itself if it has
    /// none. Returns the number of deleted rows: after 0 the tenant is gone.
    ///
    /// Sessions should be deleted before, by their ids: not every table has an index that begins
    /// with the tenant.
    ///
    /// # Errors
    ///
    /// After an error some rows may have been deleted.
    pub async fn erase(self, tenant: TenantId) -> Result<u64, Error> {
        let pools = &self.0.pools;
        let mut erased = 0;
        for table in tables(pools).await? {
            erased += erase_rows(pools, tenant, &table).await?;
        }
        if erased == 0 {
            let mut tx = pools.tenant(tenant).await?;
            // Before the tenant goes, since an event has its name.
            let kind = TenantEventKind::Deleted;
            store::tenant_events::insert_if_deleting(&mut tx, kind).await?;
            store::tenants::delete(&mut tx).await?;
            tx.commit().await?;
        }
        Ok(erased)
    }
}

/// Returns the quoted names of the tables with rows of tenants, except that of the tenants. The
/// audit goes with the tenant: it is kept until everything else is deleted.
async fn tables(pools: &Pools) -> sqlx::Result<Vec<String>> {
    const SQL: &str = "
        select format('%I.%I', n.nspname, c.relname)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
        where c.relkind in ('r', 'p') and not c.relispartition
          and c.oid not in ('control.tenants'::regclass, 'control.audit'::regclass,
                            'session.tenant_queue'::regclass)
        order by 1";
    let mut once = pools.system_connection().await?;
    let tables = holdfast_pg::query_scalar(SQL).fetch_all(once.conn()).await?;
    once.done();
    Ok(tables)
}

async fn erase_rows(pools: &Pools, tenant: TenantId, table: &str) -> sqlx::Result<u64> {
    // The condition on the tenant: a policy hides the rows of others, and this one those of a
    // tenant that is not marked.
    let sql = format!(
        "delete from {table} where ctid = any(array(
             select ctid from {table} where tenant_id = $1 and exists (
                 select from control.tenants where tenant_id = $1 and deleting_at is not null)
             limit $2))"
    );
    let mut erased = 0;
    loop {
        let mut tx = pools.tenant(tenant).await?;
        // The table's name is quoted by the database.
        let batch = holdfast_pg::query(AssertSqlSafe(sql.clone()))
            .bind(tenant.as_uuid())
            .bind(ROWS_PER_BATCH)
            .execute(tx.conn())
            .await?
            .rows_affected();
        tx.commit().await?;
        erased += batch;
        if batch == 0 {
            return Ok(erased);
        }
    }
}
