//! Erasure of a folder with its history, in all trees of a tenant.

use holdfast_types::{TenantId, TreePath};
use uuid::Uuid;

use crate::{
    ChangeAuthor, Error, Workspaces,
    workspaces::{delete_unused_contents, lock_contents},
};

impl Workspaces {
    /// Deletes a folder from all trees of a tenant and from their history, with the contents that
    /// nothing else has ever had. Returns the number of deleted versions of files. Cannot be undone.
    ///
    /// Each changed tree gets a new revision, so that copies on the disks of runners are brought up
    /// to date before their next use.
    ///
    /// # Errors
    ///
    /// If the database fails; nothing was deleted then.
    pub async fn erase_folder(
        &self,
        tenant: TenantId,
        folder: &TreePath,
        by: &ChangeAuthor,
    ) -> Result<u64, Error> {
        const TREES: &str = "
            select agent_id from workspace.trees t
            where t.tenant_id = $1 and exists (
                select from workspace.changes c
                where c.tenant_id = $1 and c.agent_id = t.agent_id and starts_with(c.path, $2))
            order by agent_id
            for update";
        const FILES: &str = "
            with gone as (
                delete from workspace.files
                where tenant_id = $1 and agent_id = any($2) and starts_with(path, $3)
                returning agent_id, size),
            counts as (
                select agent_id, count(*) as files, sum(size)::bigint as bytes from gone
                group by agent_id),
            tree as (
                update workspace.trees t
                set head = t.head + 1, files = t.files - coalesce(c.files, 0),
                    bytes = t.bytes - coalesce(c.bytes, 0)
                from workspace.trees before left join counts c using (agent_id)
                where t.tenant_id = $1 and t.agent_id = any($2) and before.tenant_id = $1
                  and before.agent_id = t.agent_id
                returning t.agent_id, t.head)
            insert into workspace.revisions
                (tenant_id, agent_id, revision, author, run_id, reason, request, changed)
            select $1, agent_id, head, $4, null, $5, ''::bytea, 0 from tree";
        const NAMED: &str = "
            delete from workspace.named where tenant_id = $1 and starts_with(folder, $2)";
        const CHANGES: &str = "
            delete from workspace.changes
            where tenant_id = $1 and agent_id = any($2) and starts_with(path, $3)
            returning new_hash";

        by.check()?;
        let prefix = format!("{folder}/");
        let mut tx = self.pools.tenant(tenant).await?;
        lock_contents(&mut tx).await?;
        let trees: Vec<Uuid> = holdfast_pg::query_scalar(TREES)
            .bind(tenant.as_uuid())
            .bind(&prefix)
            .fetch_all(tx.conn())
            .await?;
        holdfast_pg::query(FILES)
            .bind(tenant.as_uuid())
            .bind(&trees)
            .bind(&prefix)
            .bind(&by.author)
            .bind(&by.reason)
            .execute(tx.conn())
            .await?;
        // With their todos.
        holdfast_pg::query(NAMED).bind(tenant.as_uuid()).bind(&prefix).execute(tx.conn()).await?;
        let hashes: Vec<Option<Vec<u8>>> = holdfast_pg::query_scalar(CHANGES)
            .bind(tenant.as_uuid())
            .bind(&trees)
            .bind(&prefix)
            .fetch_all(tx.conn())
            .await?;
        let hashes: Vec<Vec<u8>> = hashes.into_iter().flatten().collect();
        let versions = hashes.len() as u64;
        delete_unused_contents(&mut tx, hashes).await?;
        tx.commit().await?;
        Ok(versions)
    }
}
