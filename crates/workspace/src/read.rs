//! Reads of a tree: file lists and contents, at the newest or an earlier revision.

use std::collections::BTreeMap;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TenantId, TreePath};

use crate::{
    ContentHash, Error, File, FileEntry, Revision, Workspaces,
    model::{bytes_from_db, parse_stored_path},
    workspaces::{check_revision, head},
};

impl Workspaces {
    /// Files of a tree in the byte order of their paths: all, or those within a folder (a file is
    /// within itself).
    ///
    /// An earlier revision is computed from the history; the cost grows with the number of changes
    /// up to it.
    ///
    /// # Errors
    ///
    /// [`Error::NoRevision`] if the tree has no such revision.
    pub async fn list(
        &self,
        tenant: TenantId,
        agent: AgentId,
        at: Option<Revision>,
        within: Option<&TreePath>,
    ) -> Result<Vec<FileEntry>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let listed = match at {
            None => list_now(&mut tx, agent, within).await?,
            Some(at) => list_at(&mut tx, agent, at, within).await?,
        };
        tx.finish_reading();
        Ok(listed)
    }

    /// Reads one file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::NoRevision`] if the tree has no such revision.
    pub async fn read(
        &self,
        tenant: TenantId,
        agent: AgentId,
        path: &TreePath,
        at: Option<Revision>,
    ) -> Result<Option<File>, Error> {
        const AT_REVISION: &str = "
            select c.content, h.new_hash, h.revision, coalesce(f.outside, true)
            from (select new_hash, revision from workspace.changes
                  where tenant_id = $1 and agent_id = $2 and path = $3 and revision <= $4
                  order by revision desc limit 1) h
            join workspace.contents c on c.tenant_id = $1 and c.hash = h.new_hash
            left join workspace.files f
                on f.tenant_id = $1 and f.agent_id = $2 and f.path = $3 and f.revision = h.revision";

        let Some(at) = at else {
            let found = self.read_many(tenant, agent, std::slice::from_ref(path)).await?;
            return Ok(found.into_values().next());
        };
        let mut tx = self.pools.tenant(tenant).await?;
        check_revision(at, head(&mut tx, agent).await?)?;
        let row: Option<(Vec<u8>, Vec<u8>, i64, bool)> = holdfast_pg::query_as(AT_REVISION)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(path.as_str())
            .bind(at.number())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        row.map(|(content, hash, revision, outside)| {
            file_from_row(content, &hash, revision, outside)
        })
        .transpose()
    }

    /// Reads the newest version of several files in one statement, so that all are of one revision.
    /// Paths without a file are left out.
    pub async fn read_many(
        &self,
        tenant: TenantId,
        agent: AgentId,
        paths: &[TreePath],
    ) -> Result<BTreeMap<TreePath, File>, Error> {
        const SQL: &str = "
            select f.path, c.content, f.hash, f.revision, f.outside
            from workspace.files f
            join workspace.contents c on c.tenant_id = f.tenant_id and c.hash = f.hash
            where f.tenant_id = $1 and f.agent_id = $2 and f.path = any($3)";
        type Row = (String, Vec<u8>, Vec<u8>, i64, bool);

        let paths: Vec<&str> = paths.iter().map(TreePath::as_str).collect();
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(paths)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        rows.into_iter()
            .map(|(path, content, hash, revision, outside)| {
                Ok((parse_stored_path(&path)?, file_from_row(content, &hash, revision, outside)?))
            })
            .collect()
    }
}

pub(crate) fn file_from_row(
    content: Vec<u8>,
    hash: &[u8],
    revision: i64,
    outside: bool,
) -> Result<File, Error> {
    Ok(File { content, hash: ContentHash::stored(hash)?, revision: revision.into(), outside })
}

/// Lower (inclusive) and upper (exclusive) bound of the paths within a folder. The range also holds
/// a few others, whose names continue the folder's, such as `a-b` after `a`: filter them. `0` is
/// the character after `/`.
fn path_bounds(within: Option<&TreePath>) -> (String, String) {
    match within {
        Some(folder) => (folder.to_string(), format!("{folder}0")),
        // Greater than any path: the greatest character, more bytes than a path can have.
        None => (String::new(), char::MAX.to_string().repeat(129)),
    }
}

type FileEntryRow = (String, i64, Vec<u8>, i64, jiff_sqlx::Timestamp);

fn entries_from_rows(
    rows: Vec<FileEntryRow>,
    within: Option<&TreePath>,
) -> Result<Vec<FileEntry>, Error> {
    let mut listed = Vec::with_capacity(rows.len());
    for (path, size, hash, revision, changed_at) in rows {
        let path = parse_stored_path(&path)?;
        if within.is_none_or(|folder| path.is_within(folder)) {
            listed.push(FileEntry {
                path,
                size: bytes_from_db(size),
                hash: ContentHash::stored(&hash)?,
                revision: revision.into(),
                changed_at: changed_at.to_jiff(),
            });
        }
    }
    Ok(listed)
}

pub(crate) async fn list_now(
    tx: &mut TenantTx,
    agent: AgentId,
    within: Option<&TreePath>,
) -> Result<Vec<FileEntry>, Error> {
    const SQL: &str = "
        select path, size, hash, revision, changed_at from workspace.files
        where tenant_id = $1 and agent_id = $2 and path >= $3 and path < $4
        order by path";
    let (from, until) = path_bounds(within);
    let tenant = tx.tenant();
    let rows = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(from)
        .bind(until)
        .fetch_all(tx.conn())
        .await?;
    entries_from_rows(rows, within)
}

pub(crate) async fn list_at(
    tx: &mut TenantTx,
    agent: AgentId,
    at: Revision,
    within: Option<&TreePath>,
) -> Result<Vec<FileEntry>, Error> {
    // `lateral … limit` rather than a join, here and elsewhere: the planner may execute a join by
    // reading all of the agent's revisions for each row.
    const SQL: &str = "
        select h.path, h.new_size, h.new_hash, h.revision, r.created_at
        from (select distinct on (path) path, new_size, new_hash, revision
              from workspace.changes
              where tenant_id = $1 and agent_id = $2 and path >= $3 and path < $4
                and revision <= $5
              order by path, revision desc) h
        cross join lateral (
            select created_at from workspace.revisions
            where tenant_id = $1 and agent_id = $2 and revision = h.revision limit 1) r
        where h.new_hash is not null
        order by h.path";
    check_revision(at, head(tx, agent).await?)?;
    let (from, until) = path_bounds(within);
    let tenant = tx.tenant();
    let rows = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(from)
        .bind(until)
        .bind(at.number())
        .fetch_all(tx.conn())
        .await?;
    entries_from_rows(rows, within)
}

/// Loads contents by hash, in no order. The hashes must come from a tree of this tenant.
pub(crate) async fn load_contents(
    tx: &mut TenantTx,
    hashes: &[ContentHash],
) -> Result<Vec<(ContentHash, Vec<u8>)>, Error> {
    const SQL: &str =
        "select hash, content from workspace.contents where tenant_id = $1 and hash = any($2)";
    let wanted: Vec<&[u8]> = hashes.iter().map(|hash| hash.as_bytes().as_slice()).collect();
    let tenant = tx.tenant();
    let rows: Vec<(Vec<u8>, Vec<u8>)> =
        holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).bind(wanted).fetch_all(tx.conn()).await?;
    rows.into_iter().map(|(hash, content)| Ok((ContentHash::stored(&hash)?, content))).collect()
}

/// Splits a list of contents into batches of at most 1,000 items and 8 MiB; a larger item gets a
/// batch of its own.
pub(crate) fn batches<T>(items: &[T], size: impl Fn(&T) -> u64) -> Vec<&[T]> {
    const MAX_BATCH_BYTES: u64 = 8 << 20;
    const MAX_BATCH_ITEMS: usize = 1_000;
    let mut parts = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, item) in items.iter().enumerate() {
        if at > from && (bytes + size(item) > MAX_BATCH_BYTES || at - from == MAX_BATCH_ITEMS) {
            parts.push(&items[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += size(item);
    }
    if from < items.len() {
        parts.push(&items[from..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_the_order_lose_nothing_and_stay_small() {
        let sizes = [1, 8 << 20, 1, 9 << 20, 2, 3];

        let parts = batches(&sizes, |size| *size);

        assert_eq!(parts, [&sizes[..1], &sizes[1..2], &sizes[2..3], &sizes[3..4], &sizes[4..]]);
        assert!(batches(&[] as &[u64], |size| *size).is_empty());
        assert_eq!(batches(&[0; 2_001], |size| *size).len(), 3);
    }

    #[test]
    fn the_bounds_of_all_paths_are_outside_of_every_path() {
        let (from, until) = path_bounds(None);

        let greatest = char::MAX.to_string().repeat(63);
        let path: TreePath = [greatest.as_str(), &greatest, "x"].join("/").parse().unwrap();
        assert!(from.as_str() < path.as_str() && path.as_str() < until.as_str());
    }
}
