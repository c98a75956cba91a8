//! Branches: copies of an agent's tree on which a subagent works in isolation (spec SUB-021).
//!
//! A branch is a tree with an id of its own. Its first revision is a copy of the agent's tree, and
//! all operations on trees work on it. Its patch is the difference from that revision. The
//! requester [merges](Workspaces::merge) the patch once, or discards it.
//!
//! | state | files can change | until |
//! |---|---|---|
//! | open | yes | merged, discarded, or eight days old |
//! | merged, discarded | no | an hour later; the files can be read until then |
//! | gone | no | a week later; only the row is left |
//!
//! ## What can go wrong
//!
//! A command of the subagent may outlive it and write while the patch is merged. Both lock the
//! branch's row, so the write is either part of the patch or refused. A merge whose answer was lost
//! is repeated with its key. The key is looked up in the agent's own history, so the branch's state
//! does not matter.

use std::collections::BTreeSet;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TenantId, TreePath};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{
    Base, BranchState, ChangeAuthor, CommitOutcome, Diff, Error, FileChange, Revision, Workspaces,
    commit::{FileOp, PreparedEdits, current_contents, repeated_outcome},
    diff::differing_files,
    workspaces::{CONTENTS_LOCK_SEED, ClearMode, branch_state, clear_tree, head, lock_tree},
};

/// Maximum number of open branches of one agent's tree.
pub const MAX_OPEN_BRANCHES: i64 = 64;

/// Revision of a branch that is the copy of its agent's tree.
const BRANCH_BASE_REVISION: Revision = Revision::from_number(1);

/// Maximum number of paths that an error lists.
const MAX_NAMED_CONFLICTS: usize = 20;

/// Changes made in a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Revision of the agent's tree from which the branch was copied.
    pub base: Revision,
    pub state: BranchState,
    /// Difference from the base; empty in state [`BranchState::Gone`].
    pub diff: Diff,
}

impl Workspaces {
    /// Makes a branch of an agent's current tree. A branch that exists is left as it is.
    ///
    /// The cost grows with the number of files; contents are not copied.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyBranches`].
    pub async fn branch(
        &self,
        tenant: TenantId,
        agent: AgentId,
        branch: AgentId,
        by: &ChangeAuthor,
    ) -> Result<(), Error> {
        const COUNT_OPEN: &str = "
            select count(*) filter (where closed is null),
                   coalesce(bool_or(agent_id = $3), false)
            from workspace.trees where tenant_id = $1 and branch_of = $2";
        // The lock keeps `clear` from deleting contents that the new branch refers to.
        const SHARED_LOCK: &str =
            "select pg_advisory_xact_lock_shared(hashtextextended($1::text, $2))";
        const SQL: &str = "
            with source as (
                select head, files, bytes from workspace.trees
                where tenant_id = $1 and agent_id = $2),
            tree as (
                insert into workspace.trees
                    (tenant_id, agent_id, head, files, bytes, branch_of, base)
                select $1, $3, 1, coalesce((select files from source), 0),
                       coalesce((select bytes from source), 0), $2,
                       coalesce((select head from source), 0)
                on conflict do nothing
                returning files),
            revision as (
                insert into workspace.revisions
                    (tenant_id, agent_id, revision, author, run_id, reason, request, changed)
                select $1, $3, 1, $4, $5, $6, ''::bytea, files from tree
                returning created_at),
            change as (
                insert into workspace.changes
                    (tenant_id, agent_id, revision, path, new_hash, new_size)
                select $1, $3, 1, f.path, f.hash, f.size
                from workspace.files f cross join tree
                where f.tenant_id = $1 and f.agent_id = $2)
            insert into workspace.files
                (tenant_id, agent_id, path, hash, size, revision, changed_at, outside)
            select $1, $3, f.path, f.hash, f.size, 1, r.created_at, f.outside
            from workspace.files f cross join revision r
            where f.tenant_id = $1 and f.agent_id = $2";

        by.check()?;
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SHARED_LOCK)
            .bind(tenant.as_uuid())
            .bind(CONTENTS_LOCK_SEED)
            .execute(tx.conn())
            .await?;
        let (open, is_there): (i64, bool) = holdfast_pg::query_as(COUNT_OPEN)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(branch.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        if is_there {
            tx.finish_reading();
            return Ok(());
        }
        if open >= MAX_OPEN_BRANCHES {
            return Err(Error::TooManyBranches { limit: MAX_OPEN_BRANCHES });
        }
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(branch.as_uuid())
            .bind(&by.author)
            .bind(by.run.map(|run| run.as_uuid()))
            .bind(&by.reason)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Changes made in a branch so far, or in one file or folder of it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the agent's tree has no such branch.
    pub async fn patch(
        &self,
        tenant: TenantId,
        agent: AgentId,
        branch: AgentId,
        within: Option<&TreePath>,
    ) -> Result<Patch, Error> {
        const SQL: &str = "
            select base, closed from workspace.trees
            where tenant_id = $1 and agent_id = $2 and branch_of = $3";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<(i64, Option<String>)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(branch.as_uuid())
            .bind(agent.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        let (base, closed) = row.ok_or_else(branch_not_found)?;
        let newest = head(&mut tx, branch).await?;
        tx.finish_reading();
        let (base, state) = (base.into(), branch_state(closed.as_deref())?);
        let diff = match state {
            BranchState::Gone => Diff { files: Vec::new(), more: 0 },
            BranchState::Open | BranchState::Merged | BranchState::Discarded => {
                self.diff(tenant, branch, BRANCH_BASE_REVISION, newest, within).await?
            }
        };
        Ok(Patch { base, state, diff })
    }

    /// Files that were changed in an open branch, ordered by path.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the agent's tree has no such branch, [`Error::Closed`] if it is not
    /// open.
    pub async fn patched_files(
        &self,
        tenant: TenantId,
        agent: AgentId,
        branch: AgentId,
    ) -> Result<Vec<FileChange>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let newest = lock_branch(&mut tx, agent, branch).await?;
        let files = differing_files(&mut tx, branch, BRANCH_BASE_REVISION, newest, None).await?;
        tx.finish_reading();
        Ok(files)
    }

    /// Applies a branch's patch to its agent's tree as one revision and closes the branch. The
    /// files in `except` are left out; the others are applied all or none.
    ///
    /// The merge is three-way per file: a file changed only in the branch gets the branch's
    /// content, a file changed equally on both sides stays, and a file changed differently is a
    /// conflict. `by` must have a key. `refuse` returns the reason why a file may not be changed.
    ///
    /// # Errors
    ///
    /// [`Error::Conflicts`], [`Error::Closed`], [`Error::Invalid`] with the reason of `refuse`,
    /// [`Error::NotFound`], an exceeded limit, or [`Error::KeyReused`]; nothing was changed then.
    /// After any other error it is unknown whether the merge was made: repeat it with the same key.
    pub async fn merge(
        &self,
        tenant: TenantId,
        agent: AgentId,
        branch: AgentId,
        by: &ChangeAuthor,
        except: &[TreePath],
        refuse: impl Fn(&TreePath) -> Option<String> + Send,
    ) -> Result<CommitOutcome, Error> {
        by.check()?;
        if by.key.is_none() {
            return Err(Error::Invalid("a merge needs a key: give one".to_owned()));
        }
        let except: BTreeSet<&TreePath> = except.iter().collect();
        let request = merge_digest(branch, &except);

        let mut tx = self.pools.tenant(tenant).await?;
        // Lock order, to avoid deadlocks: the agent's tree before the branch.
        let tree = lock_tree(&mut tx, agent).await?;
        if let Some(known) = repeated_outcome(&mut tx, agent, by, &request).await? {
            tx.finish_reading();
            return Ok(known);
        }
        let newest = lock_branch(&mut tx, agent, branch).await?;
        let mut patch =
            differing_files(&mut tx, branch, BRANCH_BASE_REVISION, newest, None).await?;
        if let Some(stray) = except.iter().find(|path| !patch.iter().any(|f| f.path == ***path)) {
            return Err(Error::not_found("change in the patch to", stray));
        }
        patch.retain(|file| !except.contains(&file.path));
        if let Some(reason) = patch.iter().find_map(|file| refuse(&file.path)) {
            return Err(Error::Invalid(reason));
        }
        let ops = merge_ops(&mut tx, agent, patch).await?;
        close_branch(&mut tx, branch, "merged").await?;
        // The contents are stored already: the branch refers to them.
        let wanted = PreparedEdits { ops, contents: std::collections::BTreeMap::new() };
        self.write_commit(tx, tree, by, request, wanted).await
    }

    /// Closes a branch without merging it. Discarding it again changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if it was merged; [`Error::NotFound`] if the agent's tree has no such
    /// branch.
    pub async fn discard_branch(
        &self,
        tenant: TenantId,
        agent: AgentId,
        branch: AgentId,
    ) -> Result<(), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        match lock_branch(&mut tx, agent, branch).await {
            Ok(_) => {}
            Err(Error::Closed(BranchState::Discarded | BranchState::Gone)) => {
                tx.finish_reading();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        close_branch(&mut tx, branch, "discarded").await?;
        tx.commit().await?;
        Ok(())
    }

    /// Deletes the files of branches that were closed an hour ago or opened eight days ago, and the
    /// rows of branches that are gone for a week, of all tenants. Returns how many branches, at
    /// most 100 per call.
    pub async fn sweep_branches(&self) -> Result<usize, Error> {
        const SQL: &str = "
            select tenant_id, agent_id, coalesce(closed = 'gone', false) from workspace.trees
            where branch_of is not null and case
                when closed is null then created_at < clock_timestamp() - interval '8 days'
                when closed = 'gone' then closed_at < clock_timestamp() - interval '7 days'
                else closed_at < clock_timestamp() - interval '1 hour' end
            limit 100";
        let mut once = self.pools.system_connection().await?;
        let old: Vec<(Uuid, Uuid, bool)> =
            holdfast_pg::query_as(SQL).fetch_all(once.conn()).await?;
        once.done();
        for (tenant, branch, is_gone) in &old {
            let keeps = if *is_gone { ClearMode::DeleteAll } else { ClearMode::KeepRow };
            clear_tree(&self.pools, (*tenant).into(), (*branch).into(), keeps).await?;
        }
        Ok(old.len())
    }
}

/// Changes that a patch makes in a tree, or the files in conflict.
async fn merge_ops(
    tx: &mut TenantTx,
    agent: AgentId,
    patch: Vec<FileChange>,
) -> Result<Vec<FileOp>, Error> {
    let mut before = Vec::with_capacity(patch.len());
    let mut ops = Vec::with_capacity(patch.len());
    for file in patch {
        before.push(file.before);
        ops.push(FileOp { path: file.path, after: file.after, base: Base::Any });
    }
    let now = current_contents(tx, agent, &ops).await?;
    let (mut all, mut conflicts) = (Vec::with_capacity(ops.len()), Vec::new());
    for (op, before) in ops.into_iter().zip(before) {
        let now = now.get(&op.path).copied();
        if now == before {
            all.push(op);
        } else if now != op.after {
            conflicts.push(op.path);
        }
    }
    if conflicts.is_empty() {
        return Ok(all);
    }
    let more = conflicts.len().saturating_sub(MAX_NAMED_CONFLICTS);
    conflicts.truncate(MAX_NAMED_CONFLICTS);
    Err(Error::Conflicts { paths: conflicts, more })
}

/// Locks the row of an open branch and returns its newest revision.
async fn lock_branch(
    tx: &mut TenantTx,
    agent: AgentId,
    branch: AgentId,
) -> Result<Revision, Error> {
    const SQL: &str = "
        select head, closed from workspace.trees
        where tenant_id = $1 and agent_id = $2 and branch_of = $3
        for update";
    let tenant = tx.tenant();
    let row: Option<(i64, Option<String>)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(branch.as_uuid())
        .bind(agent.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    let (head, closed) = row.ok_or_else(branch_not_found)?;
    match branch_state(closed.as_deref())? {
        BranchState::Open => Ok(head.into()),
        closed => Err(Error::Closed(closed)),
    }
}

async fn close_branch(tx: &mut TenantTx, branch: AgentId, how: &str) -> Result<(), Error> {
    const SQL: &str = "
        update workspace.trees set closed = $3, closed_at = clock_timestamp()
        where tenant_id = $1 and agent_id = $2";
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(branch.as_uuid())
        .bind(how)
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn branch_not_found() -> Error {
    Error::not_found("copy of these files", "the subagent's")
}

fn merge_digest(branch: AgentId, except: &BTreeSet<&TreePath>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // No path begins with a NUL, so this cannot equal the digest of a commit.
    hasher.update(b"\0merge");
    hasher.update(branch.as_uuid().as_bytes());
    for path in except {
        hasher.update((path.as_str().len() as u64).to_be_bytes());
        hasher.update(path.as_str());
    }
    hasher.finalize().into()
}
