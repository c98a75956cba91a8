//! Storage of a change: contents, the revision, the current files.

use std::collections::BTreeSet;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TreePath};
use sqlx::types::Json;

use crate::{
    ChangeAuthor, ContentHash, ContentRef, Error, FileChange, limits::TreeSize, model::bytes_to_db,
    note_index::needs_indexing, workspaces::LockedTree,
};

pub(crate) fn size_after(size: TreeSize, steps: &[FileChange]) -> TreeSize {
    let files = |said: Option<ContentRef>| i64::from(said.is_some());
    let bytes = |said: Option<ContentRef>| said.map_or(0, |said| bytes_to_db(said.size));
    steps.iter().fold(size, |size, step| TreeSize {
        files: size.files - files(step.before) + files(step.after),
        bytes: size.bytes - bytes(step.before) + bytes(step.after),
    })
}

/// Stores contents that the tenant does not have yet. The caller orders them by hash, to avoid
/// deadlocks.
pub(crate) async fn store_contents(
    tx: &mut TenantTx,
    contents: &[(ContentHash, Vec<u8>)],
) -> Result<(), Error> {
    const SQL: &str = "
        insert into workspace.contents (tenant_id, hash, content)
        select $1, n.hash, n.content
        from unnest($2::bytea[], $3::bytea[]) with ordinality as n (hash, content, place)
        order by n.place
        on conflict do nothing";
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(contents.iter().map(|(hash, _)| hash.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(contents.iter().map(|(_, content)| content.as_slice()).collect::<Vec<_>>())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Writes a revision, its changes, the current files and the tree's size, in one statement.
pub(crate) async fn record_revision(
    tx: &mut TenantTx,
    tree: &LockedTree,
    by: &ChangeAuthor,
    request: &[u8; 32],
    steps: &[FileChange],
    size: TreeSize,
) -> Result<(), Error> {
    const SQL: &str = "
        with revision as (
            insert into workspace.revisions
                (tenant_id, agent_id, revision, author, run_id, reason, idem_key, request, changed,
                 step)
            values ($1, $2, $3, $4, $5, $6, $7, $8, coalesce(array_length($9::text[], 1), 0), $19)
            returning created_at),
        change as (
            insert into workspace.changes
                (tenant_id, agent_id, revision, path, old_hash, old_size, new_hash, new_size)
            select $1, $2, $3, s.path, s.old_hash, s.old_size, s.new_hash, s.new_size
            from unnest($9::text[], $10::bytea[], $11::bigint[], $12::bytea[], $13::bigint[])
                 as s (path, old_hash, old_size, new_hash, new_size)),
        gone as (
            delete from workspace.files
            where tenant_id = $1 and agent_id = $2 and path = any($14)),
        there as (
            insert into workspace.files as f
                (tenant_id, agent_id, path, hash, size, revision, changed_at, outside)
            select $1, $2, s.path, s.new_hash, s.new_size, $3, r.created_at, $18
            from unnest($9::text[], $12::bytea[], $13::bigint[]) as s (path, new_hash, new_size)
            cross join revision r
            where s.new_hash is not null
            on conflict (agent_id, path, tenant_id) do update
                set hash = excluded.hash, size = excluded.size, revision = excluded.revision,
                    changed_at = excluded.changed_at,
                    -- A run may have changed a part of the file. A person knows what they write.
                    outside = excluded.outside or (f.outside and $5::uuid is not null))
        update workspace.trees set head = $3, files = $15, bytes = $16,
            noted = case when $17 and branch_of is null then $3 else noted end
        where tenant_id = $1 and agent_id = $2";

    let hash = |said: &Option<ContentRef>| said.map(|said| said.hash.as_bytes().to_vec());
    let bytes = |said: &Option<ContentRef>| said.map(|said| bytes_to_db(said.size));
    let gone = steps.iter().filter(|step| step.after.is_none());
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(tree.agent.as_uuid())
        .bind(tree.head.next().number())
        .bind(&by.author)
        .bind(by.run.map(|run| run.as_uuid()))
        .bind(&by.reason)
        .bind(&by.key)
        .bind(request.as_slice())
        .bind(steps.iter().map(|step| step.path.as_str()).collect::<Vec<_>>())
        .bind(steps.iter().map(|step| hash(&step.before)).collect::<Vec<_>>())
        .bind(steps.iter().map(|step| bytes(&step.before)).collect::<Vec<_>>())
        .bind(steps.iter().map(|step| hash(&step.after)).collect::<Vec<_>>())
        .bind(steps.iter().map(|step| bytes(&step.after)).collect::<Vec<_>>())
        .bind(gone.map(|step| step.path.as_str()).collect::<Vec<_>>())
        .bind(i32::try_from(size.files).unwrap_or(i32::MAX))
        .bind(size.bytes)
        .bind(needs_indexing(steps))
        .bind(by.outside)
        .bind(by.step.as_ref().map(Json))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Refuses a tree in which a new file's path is also a folder, or one of its folders is a file.
pub(crate) async fn check_folders(
    tx: &mut TenantTx,
    agent: AgentId,
    steps: &[FileChange],
) -> Result<(), Error> {
    const FILE_AS_FOLDER: &str = "
        select path from workspace.files
        where tenant_id = $1 and agent_id = $2 and path = any($3) limit 1";
    const FOLDER_AS_FILE: &str = "
        select n.path, f.path
        from unnest($3::text[], $4::text[], $5::text[]) as n (path, first, last)
        cross join lateral (
            select path from workspace.files
            where tenant_id = $1 and agent_id = $2 and path > n.first and path < n.last
            limit 1) f
        limit 1";

    let new: Vec<&TreePath> = steps
        .iter()
        .filter(|step| step.before.is_none() && step.after.is_some())
        .map(|step| &step.path)
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let folders: BTreeSet<&str> = new.iter().flat_map(|path| path.folders()).collect();
    let tenant = tx.tenant();
    if !folders.is_empty() {
        let above: Option<String> = holdfast_pg::query_scalar(FILE_AS_FOLDER)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(folders.into_iter().collect::<Vec<_>>())
            .fetch_optional(tx.conn())
            .await?;
        if let Some(folder) = above {
            let inside = new.iter().find(|path| path.folders().any(|above| above == folder));
            let file = inside.map(ToString::to_string).unwrap_or_default();
            return Err(Error::Folder { folder, file });
        }
    }
    let below: Option<(String, String)> = holdfast_pg::query_as(FOLDER_AS_FILE)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(new.iter().map(|path| path.as_str()).collect::<Vec<_>>())
        .bind(new.iter().map(|path| format!("{path}/")).collect::<Vec<_>>())
        .bind(new.iter().map(|path| format!("{path}0")).collect::<Vec<_>>())
        .fetch_optional(tx.conn())
        .await?;
    match below {
        Some((folder, file)) => Err(Error::Folder { folder, file }),
        None => Ok(()),
    }
}
