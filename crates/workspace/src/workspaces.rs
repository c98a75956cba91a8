//! Entry point of the crate, and the locks of a tree.

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, TenantId, TreePath};
use jiff::civil::Date;
use jiff_sqlx::ToSqlx as _;
use uuid::Uuid;

use crate::{BranchState, Error, Limits, Revision, limits::TreeSize, model::parse_stored_path};

/// Trees of all agents. Cheap to clone: clones share the pools.
///
/// A tree that was never written to is empty, at [`Revision::EMPTY`]. The caller checks whether the
/// agent exists.
#[derive(Debug, Clone)]
pub struct Workspaces {
    pub(crate) pools: Pools,
    pub(crate) limits: Limits,
}

impl Workspaces {
    #[must_use]
    pub fn new(pools: Pools) -> Self {
        Self { pools, limits: Limits::default() }
    }

    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Newest revision of a tree.
    pub async fn head(&self, tenant: TenantId, agent: AgentId) -> Result<Revision, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let head = head(&mut tx, agent).await?;
        tx.finish_reading();
        Ok(head)
    }

    /// Returns the bytes of the current files of tenants; or of one tenant.
    pub async fn storage(&self, tenant: Option<TenantId>) -> Result<Vec<(TenantId, u64)>, Error> {
        const SQL: &str = "
            select tenant_id, sum(bytes)::bigint from workspace.trees
            where $1::uuid is null or tenant_id = $1 group by tenant_id";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, i64)> = holdfast_pg::query_as(SQL)
            .bind(tenant.map(|tenant| tenant.as_uuid()))
            .fetch_all(once.conn())
            .await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, bytes)| (tenant.into(), bytes.unsigned_abs())).collect())
    }

    /// Notes what the files of each agent have today, if it is more than was noted before. Deletes
    /// notes that are older than so many days.
    pub async fn note_storage(&self, kept_days: u16) -> Result<(), Error> {
        const NOTE: &str = "
            insert into workspace.storage_days as d (tenant_id, day, agent_id, bytes)
            select tenant_id, (clock_timestamp() at time zone 'utc')::date, agent_id, bytes
            from workspace.trees where bytes > 0
            on conflict (tenant_id, day, agent_id) do update set bytes = excluded.bytes
                where excluded.bytes > d.bytes";
        const PRUNE: &str = "
            delete from workspace.storage_days
            where day < (clock_timestamp() at time zone 'utc')::date - $1::integer";
        let mut once = self.pools.system_connection().await?;
        holdfast_pg::query(NOTE).execute(once.conn()).await?;
        holdfast_pg::query(PRUNE).bind(i32::from(kept_days)).execute(once.conn()).await?;
        once.done();
        Ok(())
    }

    /// Returns the most that the files of each agent of a tenant had on each day, from the first to
    /// the last day, both included. A day is written as `2026-11-22`.
    pub async fn storage_by_day(
        &self,
        tenant: TenantId,
        (first, last): (Date, Date),
    ) -> Result<Vec<(String, AgentId, u64)>, Error> {
        const SQL: &str = "
            select to_char(day, 'YYYY-MM-DD'), agent_id, bytes from workspace.storage_days
            where tenant_id = $1 and day between $2 and $3 order by day, agent_id";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(String, Uuid, i64)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(first.to_sqlx())
            .bind(last.to_sqlx())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let read =
            |(day, agent, bytes): (String, Uuid, i64)| (day, agent.into(), bytes.unsigned_abs());
        Ok(rows.into_iter().map(read).collect())
    }

    /// Deletes a tree with its history and its branches, and the contents that no other tree of the
    /// tenant has ever had. For an agent that is deleted; cannot be undone.
    ///
    /// # Errors
    ///
    /// If the database fails; nothing was deleted then.
    pub async fn delete_tree(&self, tenant: TenantId, agent: AgentId) -> Result<(), Error> {
        clear_tree(&self.pools, tenant, agent, ClearMode::DeleteAll).await
    }
}

/// Deletes the files and the history of a tree and of its branches.
pub(crate) async fn clear_tree(
    pools: &Pools,
    tenant: TenantId,
    agent: AgentId,
    keeps: ClearMode,
) -> Result<(), Error> {
    const TREES: &str = "
        select agent_id from workspace.trees
        where tenant_id = $1 and (agent_id = $2 or branch_of = $2)";
    const CONTENTS: &str = "
        with gone as (
            delete from workspace.changes where tenant_id = $1 and agent_id = any($2)
            returning new_hash)
        select distinct new_hash from gone where new_hash is not null";

    let mut tx = pools.tenant(tenant).await?;
    lock_contents(&mut tx).await?;
    let mut trees: Vec<Uuid> = holdfast_pg::query_scalar(TREES)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .fetch_all(tx.conn())
        .await?;
    if !trees.contains(&agent.as_uuid()) {
        // An agent without a tree may have rows in `skill_uses`.
        trees.push(agent.as_uuid());
    }
    let hashes: Vec<Vec<u8>> = holdfast_pg::query_scalar(CONTENTS)
        .bind(tenant.as_uuid())
        .bind(&trees)
        .fetch_all(tx.conn())
        .await?;
    for sql in [
        "delete from workspace.files where tenant_id = $1 and agent_id = any($2)",
        "delete from workspace.revisions where tenant_id = $1 and agent_id = any($2)",
        "delete from workspace.skill_uses where tenant_id = $1 and agent_id = any($2)",
        "delete from workspace.named where tenant_id = $1 and agent_id = any($2)",
        match keeps {
            ClearMode::DeleteAll => {
                "delete from workspace.trees where tenant_id = $1 and agent_id = any($2)"
            }
            ClearMode::KeepRow => {
                "update workspace.trees
                 set closed = 'gone', closed_at = clock_timestamp(), files = 0, bytes = 0
                 where tenant_id = $1 and agent_id = any($2)"
            }
        },
    ] {
        holdfast_pg::query(sql).bind(tenant.as_uuid()).bind(&trees).execute(tx.conn()).await?;
    }
    delete_unused_contents(&mut tx, hashes).await?;
    tx.commit().await?;
    Ok(())
}

/// Waits for the tenant's running changes and blocks new ones: a change may refer to a content that
/// the transaction deletes.
pub(crate) async fn lock_contents(tx: &mut TenantTx) -> Result<(), Error> {
    const SQL: &str = "select pg_advisory_xact_lock(hashtextextended($1::text, $2))";
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(CONTENTS_LOCK_SEED)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Deletes those of the contents that no revision has. The transaction must hold
/// [`lock_contents`], and must have deleted the changes in an earlier statement.
pub(crate) async fn delete_unused_contents(
    tx: &mut TenantTx,
    hashes: Vec<Vec<u8>>,
) -> Result<(), Error> {
    const SQL: &str = "
        delete from workspace.contents c
        where c.tenant_id = $1 and c.hash = any($2) and not exists (
            select from workspace.changes h
            where h.tenant_id = $1 and h.new_hash = c.hash)";
    let tenant = tx.tenant();
    holdfast_pg::query(SQL).bind(tenant.as_uuid()).bind(hashes).execute(tx.conn()).await?;
    Ok(())
}

/// Extent of a tree's deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClearMode {
    DeleteAll,
    /// The row stays, so that the same branch cannot be made again.
    KeepRow,
}

/// Seed of the advisory lock on a tenant's contents; unique among the locks of this database.
pub(crate) const CONTENTS_LOCK_SEED: i64 = 0x776f_726b_0001;

pub(crate) async fn head(tx: &mut TenantTx, agent: AgentId) -> sqlx::Result<Revision> {
    const SQL: &str = "select head from workspace.trees where tenant_id = $1 and agent_id = $2";
    let tenant = tx.tenant();
    let head: Option<i64> = holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    Ok(head.map_or(Revision::EMPTY, Revision::from))
}

/// Newest revision of a tree, and its files that may have text from outside. One statement reads
/// both, so that no commit is between them.
pub(crate) async fn head_and_outside_files(
    tx: &mut TenantTx,
    agent: AgentId,
) -> Result<(Revision, Vec<TreePath>), Error> {
    const SQL: &str = "
        select head, array(select path from workspace.files
                           where tenant_id = $1 and agent_id = $2 and outside)
        from workspace.trees where tenant_id = $1 and agent_id = $2";
    let tenant = tx.tenant();
    let found: Option<(i64, Vec<String>)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    let Some((head, paths)) = found else { return Ok((Revision::EMPTY, Vec::new())) };
    let paths = paths.iter().map(|path| parse_stored_path(path)).collect::<Result<_, _>>()?;
    Ok((head.into(), paths))
}

/// Refuses a revision above the newest.
pub(crate) fn check_revision(revision: Revision, head: Revision) -> Result<(), Error> {
    if (Revision::EMPTY..=head).contains(&revision) {
        return Ok(());
    }
    Err(Error::NoRevision { revision, head })
}

/// Tree whose row is locked until the transaction ends.
pub(crate) struct LockedTree {
    pub agent: AgentId,
    pub head: Revision,
    pub size: TreeSize,
    /// Limit on the bytes of all trees of the tenant, and what they have; `None` if there is none.
    pub storage: Option<StorageLimit>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct StorageLimit {
    pub limit: i64,
    pub used: i64,
}

/// Locks a tree's row; inserts it if there is none. [`Error::Closed`] for a closed branch.
pub(crate) async fn lock_tree(tx: &mut TenantTx, agent: AgentId) -> Result<LockedTree, Error> {
    // Lock order, to avoid deadlocks: contents, then trees. `clear` takes the contents' lock
    // exclusively.
    const SQL: &str = "
        with contents as materialized (
            select pg_advisory_xact_lock_shared(hashtextextended($1::text, $3)))
        select head, files::bigint, bytes, closed, storage.most,
               case when storage.most is not null then (
                   select sum(bytes)::bigint from workspace.trees where tenant_id = $1) end
        from contents cross join workspace.trees
        cross join (select control.tenant_limit($1, 'storage_bytes') as most) storage
        where tenant_id = $1 and agent_id = $2
        for update of trees";
    const CREATE: &str = "
        insert into workspace.trees (tenant_id, agent_id) values ($1, $2) on conflict do nothing";

    let tenant = tx.tenant();
    loop {
        type Row = (i64, i64, i64, Option<String>, Option<i64>, Option<i64>);
        let row: Option<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(CONTENTS_LOCK_SEED)
            .fetch_optional(tx.conn())
            .await?;
        if let Some((head, files, bytes, closed, limit, used)) = row {
            match branch_state(closed.as_deref())? {
                BranchState::Open => {}
                closed => return Err(Error::Closed(closed)),
            }
            let storage = limit.zip(used).map(|(limit, used)| StorageLimit { limit, used });
            let size = TreeSize { files, bytes };
            return Ok(LockedTree { agent, head: head.into(), size, storage });
        }
        // If another transaction inserts the row at the same time, this waits for it.
        holdfast_pg::query(CREATE)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .execute(tx.conn())
            .await?;
    }
}

/// Returns the state of a branch as it is stored in the tree's row.
pub(crate) fn branch_state(stored: Option<&str>) -> Result<BranchState, Error> {
    BranchState::parse(stored).ok_or(Error::Corrupt { what: "state of a branch" })
}
