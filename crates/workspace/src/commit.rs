//! Commits: changes of a tree that are applied whole or not at all, and once per key.
//!
//! The tree's row is locked from the first read to the commit, so that the state that is compared
//! is the state that is changed. An edit names the content it is based on ([`Base`]). If the file
//! has another content, nothing is changed, and the error says who changed it.
//!
//! ## What can go wrong
//!
//! Two trees of a tenant may insert the same new contents at once and deadlock. So contents are
//! always inserted in the order of their hashes.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TenantId, TreePath};
use sha2::{Digest as _, Sha256};

use crate::{
    Base, ChangeAuthor, Clash, CommitOutcome, ContentHash, ContentRef, Edit, Error, FileChange,
    Revision, Workspaces,
    limits::TreeSize,
    model::{bytes_from_db, parse_stored_path},
    read::batches,
    record::{check_folders, record_revision, size_after, store_contents},
    workspaces::{LockedTree, StorageLimit, lock_tree},
};

/// Up to this many bytes are hashed on the calling thread, more on a blocking one.
const MAX_INLINE_HASH_BYTES: usize = 256 << 10;

impl Workspaces {
    /// Changes files, all of them or none.
    ///
    /// An edit that leaves a file's content as it is is not recorded. A change without any recorded
    /// edit makes no revision, unless it has a key, which must be stored.
    ///
    /// # Errors
    ///
    /// [`Error::Clash`] if a file differs from an edit's base, [`Error::KeyReused`], an exceeded
    /// limit, or an invalid edit; nothing was changed then. After any other error it is unknown
    /// whether the change was made: send it again with the same key.
    pub async fn commit(
        &self,
        tenant: TenantId,
        agent: AgentId,
        by: &ChangeAuthor,
        edits: Vec<Edit>,
    ) -> Result<CommitOutcome, Error> {
        by.check()?;
        let wanted = self.prepare_edits(edits).await?;
        let request = edits_digest(&wanted.ops);

        let mut tx = self.pools.tenant(tenant).await?;
        let tree = lock_tree(&mut tx, agent).await?;
        if let Some(known) = repeated_outcome(&mut tx, agent, by, &request).await? {
            tx.finish_reading();
            return Ok(known);
        }
        self.write_commit(tx, tree, by, request, wanted).await
    }

    /// Outcome of the change with this key; `None` if there was none.
    ///
    /// A step that is repeated after a crash uses the first outcome, and reads and decides nothing
    /// again.
    pub async fn outcome_by_key(
        &self,
        tenant: TenantId,
        agent: AgentId,
        key: &str,
    ) -> Result<Option<CommitOutcome>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let found = find_by_key(&mut tx, agent, key).await?;
        tx.finish_reading();
        Ok(found.map(|(known, _request)| known))
    }

    /// Checks the edits' sizes and hashes their contents.
    pub(crate) async fn prepare_edits(&self, edits: Vec<Edit>) -> Result<PreparedEdits, Error> {
        if edits.is_empty() {
            return Err(Error::Invalid("a change has one edit at least: say which".to_owned()));
        }
        for edit in &edits {
            if let Edit::Put { path, content, .. } = edit {
                self.limits.check_file(path, content.len() as u64)?;
            }
        }
        let bytes: usize = edits.iter().map(content_len).sum();
        if bytes <= MAX_INLINE_HASH_BYTES {
            return PreparedEdits::new(edits);
        }
        match tokio::task::spawn_blocking(|| PreparedEdits::new(edits)).await {
            Ok(wanted) => wanted,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// Compares the edits' bases with the tree, checks the limits, writes, and commits.
    pub(crate) async fn write_commit(
        &self,
        mut tx: TenantTx,
        tree: LockedTree,
        by: &ChangeAuthor,
        request: [u8; 32],
        wanted: PreparedEdits,
    ) -> Result<CommitOutcome, Error> {
        let written = self.write_changes(&mut tx, &tree, (by, request), wanted).await?;
        match written.revision == tree.head {
            true => tx.finish_reading(),
            false => tx.commit().await?,
        }
        Ok(written)
    }

    /// Compares the edits' bases with the tree, checks the limits, and writes.
    pub(crate) async fn write_changes(
        &self,
        tx: &mut TenantTx,
        tree: &LockedTree,
        (by, request): (&ChangeAuthor, [u8; 32]),
        wanted: PreparedEdits,
    ) -> Result<CommitOutcome, Error> {
        let now = current_contents(tx, tree.agent, &wanted.ops).await?;
        let mut steps = Vec::with_capacity(wanted.ops.len());
        for op in wanted.ops {
            let before = now.get(&op.path).copied();
            check_base(tx, tree.agent, &op, before).await?;
            if before != op.after {
                steps.push(FileChange { path: op.path, before, after: op.after });
            }
        }
        if steps.is_empty() && by.key.is_none() {
            return Ok(CommitOutcome { revision: tree.head, changed: 0, repeated: false });
        }
        let size = size_after(tree.size, &steps);
        self.limits.check_tree(tree.size, size)?;
        check_storage(tree, size)?;

        let needed: BTreeSet<ContentHash> =
            steps.iter().filter_map(|step| step.after.map(|after| after.hash)).collect();
        // The map is ordered by hash: see "What can go wrong".
        let new: Vec<(ContentHash, Vec<u8>)> =
            wanted.contents.into_iter().filter(|(hash, _)| needed.contains(hash)).collect();
        for part in batches(&new, |(_, content)| content.len() as u64) {
            store_contents(tx, part).await?;
        }
        let revision = tree.head.next();
        record_revision(tx, tree, by, &request, &steps, size).await?;
        check_folders(tx, tree.agent, &steps).await?;
        let changed = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        Ok(CommitOutcome { revision, changed, repeated: false })
    }
}

/// Refuses growth beyond the storage of the tenant's plan.
fn check_storage(tree: &LockedTree, size: TreeSize) -> Result<(), Error> {
    let Some(StorageLimit { limit, used }) = tree.storage else { return Ok(()) };
    let bytes = used - tree.size.bytes + size.bytes;
    if size.bytes > tree.size.bytes && bytes > limit {
        return Err(Error::StorageFull { bytes, limit });
    }
    Ok(())
}

fn content_len(edit: &Edit) -> usize {
    match edit {
        Edit::Put { content, .. } => content.len(),
        Edit::Delete { .. } => 0,
    }
}

/// Edits in the order of their paths, with their new contents by hash.
pub(crate) struct PreparedEdits {
    pub ops: Vec<FileOp>,
    /// New contents by hash. Contents that the tenant has already may be left out.
    pub contents: BTreeMap<ContentHash, Vec<u8>>,
}

/// Change of one file: its new content (`None` deletes the file) and the content that it must have
/// before.
pub(crate) struct FileOp {
    pub path: TreePath,
    pub after: Option<ContentRef>,
    pub base: Base,
}

impl PreparedEdits {
    fn new(edits: Vec<Edit>) -> Result<Self, Error> {
        let mut ops = Vec::with_capacity(edits.len());
        let mut contents = BTreeMap::new();
        for edit in edits {
            ops.push(match edit {
                Edit::Delete { path, base } => FileOp { path, after: None, base },
                Edit::Put { path, content, base } => {
                    let hash = ContentHash::of(&content);
                    let after = Some(ContentRef { hash, size: content.len() as u64 });
                    contents.insert(hash, content);
                    FileOp { path, after, base }
                }
            });
        }
        ops.sort_by(|a, b| a.path.cmp(&b.path));
        if let Some(twice) = ops.windows(2).find(|pair| pair[0].path == pair[1].path) {
            return Err(Error::Invalid(format!(
                "a change has one edit of a file at most, and this one has two of `{}`: send them \
                 one after the other",
                twice[0].path
            )));
        }
        Ok(Self { ops, contents })
    }
}

/// Digest of the paths and new contents, by which two changes under one key are told apart.
///
/// Bases are left out: a change that is repeated after a crash has read its own first write.
pub(crate) fn edits_digest(ops: &[FileOp]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for op in ops {
        hasher.update((op.path.as_str().len() as u64).to_be_bytes());
        hasher.update(op.path.as_str());
        match op.after {
            Some(after) => hasher.update(after.hash.as_bytes()),
            None => hasher.update([0]),
        }
    }
    hasher.finalize().into()
}

/// Returns the first outcome of a change whose key is known.
pub(crate) async fn repeated_outcome(
    tx: &mut TenantTx,
    agent: AgentId,
    by: &ChangeAuthor,
    request: &[u8; 32],
) -> Result<Option<CommitOutcome>, Error> {
    let Some(key) = &by.key else { return Ok(None) };
    match find_by_key(tx, agent, key).await? {
        Some((known, first)) if first == request => Ok(Some(known)),
        Some(_) => Err(Error::KeyReused(key.clone())),
        None => Ok(None),
    }
}

async fn find_by_key(
    tx: &mut TenantTx,
    agent: AgentId,
    key: &str,
) -> Result<Option<(CommitOutcome, Vec<u8>)>, Error> {
    const SQL: &str = "
        select revision, changed, request from workspace.revisions
        where tenant_id = $1 and agent_id = $2 and idem_key = $3";
    let tenant = tx.tenant();
    let row: Option<(i64, i32, Vec<u8>)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(key)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(|(revision, changed, request)| {
        let changed = u32::try_from(changed).unwrap_or(0);
        (CommitOutcome { revision: revision.into(), changed, repeated: true }, request)
    }))
}

/// Loads the current contents of the files that a change names.
pub(crate) async fn current_contents(
    tx: &mut TenantTx,
    agent: AgentId,
    ops: &[FileOp],
) -> Result<BTreeMap<TreePath, ContentRef>, Error> {
    const SQL: &str = "
        select path, hash, size from workspace.files
        where tenant_id = $1 and agent_id = $2 and path = any($3)";
    let tenant = tx.tenant();
    let rows: Vec<(String, Vec<u8>, i64)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(ops.iter().map(|op| op.path.as_str()).collect::<Vec<_>>())
        .fetch_all(tx.conn())
        .await?;
    rows.into_iter()
        .map(|(path, hash, size)| {
            let said = ContentRef { hash: ContentHash::stored(&hash)?, size: bytes_from_db(size) };
            Ok((parse_stored_path(&path)?, said))
        })
        .collect()
}

async fn check_base(
    tx: &mut TenantTx,
    agent: AgentId,
    op: &FileOp,
    now: Option<ContentRef>,
) -> Result<(), Error> {
    let clash = match (op.base, now) {
        (Base::Any, None) if op.after.is_none() => {
            return Err(Error::not_found("file", &op.path));
        }
        (Base::Any, _) | (Base::Absent, None) => return Ok(()),
        (Base::Hash(base), Some(now)) if base == now.hash => return Ok(()),
        (Base::Absent, Some(_)) => Clash::Created,
        (Base::Hash(_), Some(_)) => Clash::Changed,
        (Base::Hash(_), None) => Clash::Deleted,
    };
    match last_change(tx, agent, &op.path).await? {
        Some((author, revision)) => {
            Err(Error::Clash { path: op.path.clone(), clash, author, revision })
        }
        // The path has no history: the file that the author claims to have read never existed.
        None => Err(Error::not_found("file", &op.path)),
    }
}

/// Author and revision of a file's last change.
pub(crate) async fn last_change(
    tx: &mut TenantTx,
    agent: AgentId,
    path: &TreePath,
) -> Result<Option<(String, Revision)>, Error> {
    const SQL: &str = "
        select r.author, h.revision
        from (select revision from workspace.changes
              where tenant_id = $1 and agent_id = $2 and path = $3
              order by revision desc limit 1) h
        cross join lateral (
            select author from workspace.revisions
            where tenant_id = $1 and agent_id = $2 and revision = h.revision limit 1) r";
    let tenant = tx.tenant();
    let row: Option<(String, i64)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(path.as_str())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(|(author, revision)| (author, revision.into())))
}
