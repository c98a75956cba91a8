//! Watches: sessions that wait for a change of their agent's files.
//!
//! A session is told of the revisions that follow the one that its watch names, so nothing is queued
//! and a commit does nothing for it. The watch stays when the session was told: no later wait of the
//! session begins before the revision that it was told of.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, SessionId, TenantId, TreePath};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{ChangeStep, Error, Revision, Workspaces, model::parse_stored_path};

/// Event of a changed file.
pub const FILE_CHANGED: &str = "file_changed";

/// Tenants and watches that one look finds.
const MAX_TENANTS: i64 = 1_000;
const MAX_WATCHES: i64 = 200;

/// Changes of files that one look reads for a watch.
const MAX_CHANGES: i64 = 2_000;

/// A wait of a session for a change of files.
#[derive(Debug, Clone, PartialEq)]
pub struct FileWatch {
    pub session: SessionId,
    /// Whose files, or the copy that a subagent works on.
    pub agent: AgentId,
    /// Which files the conversation sees, in a form of the caller's.
    pub view: Value,
    /// Text that the path of a changed file must contain, in any case.
    pub part: Option<String>,
}

/// A watch whose files have changed.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedWatch {
    pub session: SessionId,
    pub view: Value,
    /// Text that the path of a changed file must contain, in any case.
    pub part: Option<String>,
    /// Newest revision of the files.
    pub head: Revision,
    /// Files that others than the session have changed, once each.
    pub paths: Vec<TreePath>,
}

type WatchRow = (Uuid, Uuid, Json<Value>, Option<String>, i64, i64);

/// Stores that a session waits for a change that comes after `since`.
pub async fn watch_files(
    tx: &mut TenantTx,
    watch: &FileWatch,
    since: Timestamp,
) -> Result<(), Error> {
    const SQL: &str = "
        insert into workspace.file_watches as w
            (tenant_id, session_id, agent_id, view, part, revision, is_waiting)
        select $1, $2, $3, $4, $5, coalesce((
            select revision from workspace.revisions
            where tenant_id = $1 and agent_id = $3 and created_at < $6
            order by revision desc limit 1), 0), true
        on conflict (tenant_id, session_id) do update
            set agent_id = excluded.agent_id, view = excluded.view, part = excluded.part,
                is_waiting = true,
                revision = case when w.agent_id = excluded.agent_id
                    then greatest(w.revision, excluded.revision) else excluded.revision end";
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(watch.session.as_uuid())
        .bind(watch.agent.as_uuid())
        .bind(Json(&watch.view))
        .bind(&watch.part)
        .bind(since.to_sqlx())
        .execute(tx.conn())
        .await?;
    Ok(())
}

impl Workspaces {
    /// Returns tenants with sessions that wait for a change of files.
    pub async fn tenants_with_watches(&self) -> Result<Vec<TenantId>, Error> {
        const SQL: &str = "
            select distinct tenant_id from workspace.file_watches where is_waiting limit $1";
        let mut once = self.pools.system_connection().await?;
        let query = holdfast_pg::query_scalar(SQL).bind(MAX_TENANTS);
        let tenants: Vec<Uuid> = query.fetch_all(once.conn()).await?;
        once.done();
        Ok(tenants.into_iter().map(TenantId::from).collect())
    }

    /// Returns watches whose files have changed.
    pub async fn changed_watches(&self, tenant: TenantId) -> Result<Vec<ChangedWatch>, Error> {
        const SQL: &str = "
            select w.session_id, w.agent_id, w.view, w.part, w.revision, t.head
            from workspace.file_watches w
            join workspace.trees t on t.tenant_id = $1 and t.agent_id = w.agent_id
            where w.tenant_id = $1 and w.is_waiting and t.head > w.revision
            order by w.session_id limit $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let query = holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).bind(MAX_WATCHES);
        let rows: Vec<WatchRow> = query.fetch_all(tx.conn()).await?;
        let mut changed = Vec::with_capacity(rows.len());
        for (session, agent, Json(view), part, revision, head) in rows {
            let session = SessionId::from(session);
            let paths = changed_paths(&mut tx, agent, session, (revision, head)).await?;
            changed.push(ChangedWatch { session, view, part, head: head.into(), paths });
        }
        tx.finish_reading();
        Ok(changed)
    }

    /// Stores that a session has been told of a revision, or has nothing to be told of it.
    pub async fn move_watch(
        &self,
        tenant: TenantId,
        session: SessionId,
        (revision, waits): (Revision, WatchState),
    ) -> Result<(), Error> {
        const SQL: &str = "
            update workspace.file_watches set revision = greatest(revision, $3), is_waiting = $4
            where tenant_id = $1 and session_id = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(revision.number())
            .bind(waits == WatchState::Waits)
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }
}

/// Whether a session still waits for a change of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchState {
    Waits,
    Ended,
}

/// Files that others have changed between two revisions.
async fn changed_paths(
    tx: &mut TenantTx,
    agent: Uuid,
    session: SessionId,
    (after, head): (i64, i64),
) -> Result<Vec<TreePath>, Error> {
    const SQL: &str = "
        select distinct c.path, r.step
        from workspace.changes c
        join workspace.revisions r
          on r.tenant_id = $1 and r.agent_id = $2 and r.revision = c.revision
        where c.tenant_id = $1 and c.agent_id = $2 and c.revision > $3 and c.revision <= $4
        order by c.path limit $5";
    let tenant = tx.tenant();
    let rows: Vec<(String, Option<Json<ChangeStep>>)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent)
        .bind(after)
        .bind(head)
        .bind(MAX_CHANGES)
        .fetch_all(tx.conn())
        .await?;
    let is_own = |step: &Option<Json<ChangeStep>>| {
        step.as_ref().is_some_and(|Json(step)| step.session == session)
    };
    let mut paths = Vec::new();
    for (path, _) in rows.into_iter().filter(|(_, step)| !is_own(step)) {
        let path = parse_stored_path(&path)?;
        if paths.last() != Some(&path) {
            paths.push(path);
        }
    }
    Ok(paths)
}
