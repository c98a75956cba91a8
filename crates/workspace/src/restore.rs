//! Restoration of an earlier state by a new revision. History is never rewritten.

pub(crate) mod undo;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::{AgentId, TenantId, TreePath};
use sha2::{Digest as _, Sha256};

use crate::{
    Base, ChangeAuthor, CommitOutcome, ContentRef, Error, FileEntry, Revision, Workspaces,
    commit::{FileOp, PreparedEdits, repeated_outcome},
    read::{list_at, list_now},
    workspaces::lock_tree,
};

impl Workspaces {
    /// Restores a tree to a revision, or only one file or folder.
    ///
    /// Later changes are overwritten without a comparison. They stay in the history, so a
    /// restoration can be undone by another.
    ///
    /// # Errors
    ///
    /// [`Error::NoRevision`] if there is no such revision, [`Error::NotFound`] if `within` exists
    /// neither then nor now, [`Error::KeyReused`], or an exceeded limit, if it was lowered since.
    pub async fn restore(
        &self,
        tenant: TenantId,
        agent: AgentId,
        by: &ChangeAuthor,
        within: Option<&TreePath>,
        to: Revision,
    ) -> Result<CommitOutcome, Error> {
        by.check()?;
        let request = restore_digest(within, to);

        let mut tx = self.pools.tenant(tenant).await?;
        let tree = lock_tree(&mut tx, agent).await?;
        if let Some(known) = repeated_outcome(&mut tx, agent, by, &request).await? {
            tx.finish_reading();
            return Ok(known);
        }
        let then = content_refs(list_at(&mut tx, agent, to, within).await?);
        let now = content_refs(list_now(&mut tx, agent, within).await?);
        if let Some(within) = within
            && then.is_empty()
            && now.is_empty()
        {
            return Err(Error::not_found("file or folder", within));
        }
        let paths: BTreeSet<&TreePath> = then.keys().chain(now.keys()).collect();
        let ops = paths
            .into_iter()
            .filter(|path| then.get(path) != now.get(path))
            .map(|path| FileOp {
                path: path.clone(),
                after: then.get(path).copied(),
                base: Base::Any,
            })
            .collect();
        // The contents are stored already: history keeps them.
        self.write_commit(tx, tree, by, request, PreparedEdits { ops, contents: BTreeMap::new() })
            .await
    }
}

fn content_refs(files: Vec<FileEntry>) -> BTreeMap<TreePath, ContentRef> {
    files
        .into_iter()
        .map(|file| (file.path, ContentRef { hash: file.hash, size: file.size }))
        .collect()
}

fn restore_digest(within: Option<&TreePath>, to: Revision) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // No path begins with a NUL, so this cannot equal the digest of a commit.
    hasher.update(b"\0restore");
    hasher.update(to.number().to_be_bytes());
    if let Some(within) = within {
        hasher.update(within.as_str());
    }
    hasher.finalize().into()
}
