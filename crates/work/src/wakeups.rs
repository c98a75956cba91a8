//! Changes of todo lists that waiting sessions are told of.
//!
//! The transaction that changes a list stores a wakeup. A background process delivers it to the
//! sessions that wait, under an idempotency key of its own, and then removes it: after a crash in
//! between it is delivered again, and stored once.

use holdfast_pg::Pools;
use holdfast_types::{SessionId, TenantId};
use sqlx::FromRow;
use uuid::Uuid;

use crate::Error;

/// Wakeups that one query returns.
const WAKEUPS_PER_QUERY: i64 = 1_000;

/// A change of a todo list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wakeup {
    pub id: i64,
    /// Root sessions that work on the list.
    pub roots: Vec<SessionId>,
    /// Session that made the change, which is not told; `None` for a person.
    pub changed_by: Option<SessionId>,
    /// The changes, a line for each todo.
    pub text: String,
    /// The text may repeat text from outside.
    pub outside: bool,
}

#[derive(FromRow)]
struct Row {
    wakeup_id: i64,
    roots: Vec<Uuid>,
    changed_by: Option<Uuid>,
    text: String,
    outside: bool,
}

#[derive(Debug, Clone)]
pub struct Wakeups {
    pools: Pools,
}

impl Wakeups {
    #[must_use]
    pub const fn new(pools: Pools) -> Self {
        Self { pools }
    }

    /// Returns tenants with wakeups.
    pub async fn tenants(&self) -> Result<Vec<TenantId>, Error> {
        const SQL: &str = "
            select distinct tenant_id from (
                select tenant_id from work.wakeups order by wakeup_id limit $1) oldest";
        let mut once = self.pools.system_connection().await?;
        let query = holdfast_pg::query_scalar(SQL).bind(WAKEUPS_PER_QUERY);
        let tenants: Vec<Uuid> = query.fetch_all(once.conn()).await?;
        once.done();
        Ok(tenants.into_iter().map(TenantId::from).collect())
    }

    /// Returns wakeups of a tenant, the oldest first.
    pub async fn pending(&self, tenant: TenantId) -> Result<Vec<Wakeup>, Error> {
        const SQL: &str = "
            select wakeup_id, changed_by, text, outside, array(
                select session_id from work.lists l
                where l.tenant_id = $1 and l.list_id = w.list_id and l.session_id is not null
                union all
                select session_id from work.list_members m
                where m.tenant_id = $1 and m.list_id = w.list_id) as roots
            from work.wakeups w where tenant_id = $1 order by wakeup_id limit $2";
        let mut tx = self.pools.tenant(tenant).await?;
        let query = holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).bind(WAKEUPS_PER_QUERY);
        let rows: Vec<Row> = query.fetch_all(tx.conn()).await?;
        tx.finish_reading();
        let wakeups = rows.into_iter().map(|row| Wakeup {
            id: row.wakeup_id,
            roots: row.roots.into_iter().map(SessionId::from).collect(),
            changed_by: row.changed_by.map(SessionId::from),
            text: row.text,
            outside: row.outside,
        });
        Ok(wakeups.collect())
    }

    /// Removes wakeups that were delivered.
    pub async fn remove(&self, tenant: TenantId, ids: &[i64]) -> Result<(), Error> {
        const SQL: &str = "delete from work.wakeups where tenant_id = $1 and wakeup_id = any($2)";
        let mut tx = self.pools.tenant(tenant).await?;
        let query = holdfast_pg::query(SQL).bind(tenant.as_uuid()).bind(ids);
        query.execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }
}
