//! History of a tree: author, time, reason and files of each change.

pub(crate) mod watches;

use std::collections::BTreeMap;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, RunId, TenantId, TreePath};
use jiff::Timestamp;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{
    ChangeStep, ContentRef, Error, FileChange, Revision, Workspaces, model::parse_stored_path,
};

/// Maximum number of revisions per query.
const MAX_LOG_REVISIONS: i64 = 500;
/// Maximum number of files that are listed per revision; the rest are counted.
const MAX_FILES_PER_REVISION: i64 = 50;

#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    /// Only revisions that changed this file, or a file in this folder.
    pub path: Option<TreePath>,
    /// Only revisions before this one.
    pub before: Option<Revision>,
    /// Maximum number of revisions, 0 to 500.
    pub limit: i64,
}

/// Entry of a tree's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub revision: Revision,
    pub author: String,
    /// Run of the turn that made it; `None` outside of turns.
    pub run: Option<RunId>,
    /// Step of a behaviour that made it.
    pub step: Option<ChangeStep>,
    pub reason: String,
    pub at: Timestamp,
    pub changed: u32,
    /// The first 50 changed files, ordered by path; only those of the filter's path if it names one.
    pub files: Vec<FileChange>,
}

#[derive(sqlx::FromRow)]
struct Row {
    revision: i64,
    author: String,
    run_id: Option<Uuid>,
    step: Option<Json<ChangeStep>>,
    reason: String,
    created_at: jiff_sqlx::Timestamp,
    changed: i32,
}

impl Workspaces {
    /// History of a tree, newest first.
    pub async fn log(
        &self,
        tenant: TenantId,
        agent: AgentId,
        filter: &LogFilter,
    ) -> Result<Vec<LogEntry>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let rows = load_revisions(&mut tx, agent, filter).await?;
        let numbers: Vec<i64> = rows.iter().map(|row| row.revision).collect();
        let mut files = load_changes(&mut tx, agent, &numbers, filter.path.as_ref()).await?;
        tx.finish_reading();
        Ok(rows
            .into_iter()
            .map(|row| LogEntry {
                files: files.remove(&row.revision).unwrap_or_default(),
                revision: row.revision.into(),
                author: row.author,
                run: row.run_id.map(RunId::from),
                step: row.step.map(|step| step.0),
                reason: row.reason,
                at: row.created_at.to_jiff(),
                changed: u32::try_from(row.changed).unwrap_or(0),
            })
            .collect())
    }
}

async fn load_revisions(
    tx: &mut TenantTx,
    agent: AgentId,
    filter: &LogFilter,
) -> Result<Vec<Row>, Error> {
    const ALL: &str = "
        select revision, author, run_id, step, reason, created_at, changed
        from workspace.revisions
        where tenant_id = $1 and agent_id = $2 and revision < $3
        order by revision desc limit $4";
    // `0` is the character after `/`.
    const OF_PATH: &str = "
        select r.revision, r.author, r.run_id, r.step, r.reason, r.created_at, r.changed
        from (select distinct revision from workspace.changes
              where tenant_id = $1 and agent_id = $2 and revision < $3
                and (path = $5 or (path >= $5 || '/' and path < $5 || '0'))
              order by revision desc limit $4) h
        cross join lateral (
            select * from workspace.revisions
            where tenant_id = $1 and agent_id = $2 and revision = h.revision limit 1) r
        order by r.revision desc";
    let tenant = tx.tenant();
    let query = holdfast_pg::query_as(if filter.path.is_some() { OF_PATH } else { ALL })
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(filter.before.map_or(i64::MAX, Revision::number))
        .bind(filter.limit.clamp(0, MAX_LOG_REVISIONS));
    let query = match &filter.path {
        Some(path) => query.bind(path.as_str()),
        None => query,
    };
    Ok(query.fetch_all(tx.conn()).await?)
}

type ChangeRow = (i64, String, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>, Option<i64>);

async fn load_changes(
    tx: &mut TenantTx,
    agent: AgentId,
    revisions: &[i64],
    path: Option<&TreePath>,
) -> Result<BTreeMap<i64, Vec<FileChange>>, Error> {
    const SQL: &str = "
        select h.revision, h.path, h.old_hash, h.old_size, h.new_hash, h.new_size
        from unnest($3::bigint[]) as n (revision)
        cross join lateral (
            select * from workspace.changes c
            where c.tenant_id = $1 and c.agent_id = $2 and c.revision = n.revision
              and ($4::text is null or c.path = $4
                   or (c.path >= $4 || '/' and c.path < $4 || '0'))
            order by c.path limit $5) h";
    let tenant = tx.tenant();
    let rows: Vec<ChangeRow> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(revisions)
        .bind(path.map(TreePath::as_str))
        .bind(MAX_FILES_PER_REVISION)
        .fetch_all(tx.conn())
        .await?;
    let mut files: BTreeMap<i64, Vec<FileChange>> = BTreeMap::new();
    for (revision, path, old_hash, old_size, new_hash, new_size) in rows {
        files.entry(revision).or_default().push(FileChange {
            path: parse_stored_path(&path)?,
            before: ContentRef::from_stored(old_hash, old_size)?,
            after: ContentRef::from_stored(new_hash, new_size)?,
        });
    }
    Ok(files)
}
