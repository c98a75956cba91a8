//! Undoing of changes that a run has made, by new revisions.
//!
//! A file that somebody has changed since stays as it is, and is told.

use std::collections::BTreeMap;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, RunId, TreePath};
use sha2::{Digest as _, Sha256};

use crate::{
    Base, ChangeAuthor, ContentRef, Error, Workspaces,
    commit::{FileOp, PreparedEdits, last_change},
    model::parse_stored_path,
    workspaces::lock_tree,
};

/// What [`Workspaces::undo_changes`] has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoneFiles {
    /// Files with the content that they had before.
    pub restored: Vec<TreePath>,
    pub conflicts: Vec<FileConflict>,
}

/// A file that somebody has changed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileConflict {
    pub path: TreePath,
    pub changed_by: String,
}

/// Contents of a file before and after the changes of a run.
#[derive(Debug)]
struct RunContents {
    before: Option<ContentRef>,
    after: Option<ContentRef>,
}

/// A file as it is.
#[derive(Debug)]
struct Current {
    content: ContentRef,
    /// It may have text from outside.
    outside: bool,
}

impl Workspaces {
    /// Gives files the contents that they had before the changes of a run whose keys `is_undone`
    /// accepts, within the caller's transaction.
    ///
    /// # Errors
    ///
    /// An exceeded limit, or [`Error::Folder`] if a file's path is a folder by now: nothing may be
    /// committed then.
    pub async fn undo_changes(
        &self,
        tx: &mut TenantTx,
        (agent, run): (AgentId, RunId),
        by: &ChangeAuthor,
        is_undone: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<UndoneFiles, Error> {
        by.check()?;
        // Locked before it is read, as by every change.
        lock_tree(tx, agent).await?;
        let changed = changes_of_run(tx, (agent, run), is_undone).await?;
        let now = current_files(tx, agent, &changed).await?;
        let mut undone = UndoneFiles::default();
        let (mut own, mut outside) = (Vec::new(), Vec::new());
        for (path, RunContents { before, after }) in changed {
            let current = now.get(&path);
            let content = current.map(|file| file.content);
            if content == before {
                continue;
            }
            if content != after {
                let last = last_change(tx, agent, &path).await?;
                let changed_by = last.map(|(author, _)| author).unwrap_or_default();
                undone.conflicts.push(FileConflict { path, changed_by });
                continue;
            }
            undone.restored.push(path.clone());
            // Whether a file that is gone had text from outside is not known any more.
            let is_outside = current.is_none_or(|file| file.outside);
            let ops = if is_outside { &mut outside } else { &mut own };
            let base = content.map_or(Base::Absent, |content| Base::Hash(content.hash));
            ops.push(FileOp { path, after: before, base });
        }
        for (ops, from_outside) in [(own, false), (outside, true)] {
            self.write_undo(tx, agent, &by.clone().from_outside(from_outside), ops).await?;
        }
        Ok(undone)
    }

    async fn write_undo(
        &self,
        tx: &mut TenantTx,
        agent: AgentId,
        by: &ChangeAuthor,
        ops: Vec<FileOp>,
    ) -> Result<(), Error> {
        if ops.is_empty() {
            return Ok(());
        }
        let tree = lock_tree(tx, agent).await?;
        // The contents are stored already: history keeps them.
        let edits = PreparedEdits { ops, contents: BTreeMap::new() };
        self.write_changes(tx, &tree, (by, Sha256::digest(b"\0undo").into()), edits).await?;
        Ok(())
    }
}

type ChangeRow = (String, String, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>, Option<i64>);

/// The first content before and the last one after the changes, by path.
async fn changes_of_run(
    tx: &mut TenantTx,
    (agent, run): (AgentId, RunId),
    is_undone: &(dyn Fn(&str) -> bool + Sync),
) -> Result<BTreeMap<TreePath, RunContents>, Error> {
    const SQL: &str = "
        select r.idem_key, h.path, h.old_hash, h.old_size, h.new_hash, h.new_size
        from (select revision, idem_key from workspace.revisions
              where tenant_id = $1 and agent_id = $2 and run_id = $3 and idem_key is not null) r
        cross join lateral (
            select * from workspace.changes c
            where c.tenant_id = $1 and c.agent_id = $2 and c.revision = r.revision) h
        order by r.revision, h.path";
    let tenant = tx.tenant();
    let rows: Vec<ChangeRow> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(run.as_uuid())
        .fetch_all(tx.conn())
        .await?;
    let mut changed: BTreeMap<TreePath, RunContents> = BTreeMap::new();
    for (key, path, old_hash, old_size, new_hash, new_size) in rows {
        if !is_undone(&key) {
            continue;
        }
        let before = ContentRef::from_stored(old_hash, old_size)?;
        let after = ContentRef::from_stored(new_hash, new_size)?;
        let of_path = changed.entry(parse_stored_path(&path)?);
        of_path.or_insert(RunContents { before, after }).after = after;
    }
    Ok(changed)
}

async fn current_files(
    tx: &mut TenantTx,
    agent: AgentId,
    changed: &BTreeMap<TreePath, RunContents>,
) -> Result<BTreeMap<TreePath, Current>, Error> {
    const SQL: &str = "
        select path, hash, size, outside from workspace.files
        where tenant_id = $1 and agent_id = $2 and path = any($3)";
    let tenant = tx.tenant();
    let rows: Vec<(String, Vec<u8>, i64, bool)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(changed.keys().map(TreePath::as_str).collect::<Vec<_>>())
        .fetch_all(tx.conn())
        .await?;
    let mut files = BTreeMap::new();
    for (path, hash, size, outside) in rows {
        if let Some(content) = ContentRef::from_stored(Some(hash), Some(size))? {
            files.insert(parse_stored_path(&path)?, Current { content, outside });
        }
    }
    Ok(files)
}
