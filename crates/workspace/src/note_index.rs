//! Index queue of notes: the trees whose notes must be indexed for search.
//!
//! Notes are `MEMORY.md` and the files below `memory/`. A change of a note marks its tree in the
//! same statement. An indexer claims the tree for a limited time and reports the revision it
//! indexed. If it crashes, the claim expires and the tree is claimed again. A change made meanwhile
//! leaves the tree marked.

use std::time::Duration;

use holdfast_types::{AgentId, TenantId, TreePath};
use uuid::Uuid;

use crate::{ContentHash, Error, FileChange, Revision, TEMPLATES, Workspaces};

/// File of an agent's long-term notes.
pub const LONG_TERM_NOTES_FILE: &str = "MEMORY.md";

/// Folder of an agent's notes.
pub const NOTES_FOLDER: &str = "memory";

#[must_use]
pub fn is_note(path: &TreePath) -> bool {
    path.as_str() == LONG_TERM_NOTES_FILE
        || path.as_str().strip_prefix(NOTES_FOLDER).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a file is an unchanged bootstrap file.
#[must_use]
pub fn is_unchanged_template(path: &TreePath, hash: ContentHash) -> bool {
    let template = TEMPLATES.iter().find(|(name, _)| *name == path.as_str());
    template.is_some_and(|(_, text)| hash == ContentHash::of(text.as_bytes()))
}

/// Whether a change makes something to index. The creation of an unchanged bootstrap file does not.
pub(crate) fn needs_indexing(steps: &[FileChange]) -> bool {
    steps.iter().filter(|step| is_note(&step.path)).any(|step| {
        let is_first =
            step.after.is_some_and(|after| is_unchanged_template(&step.path, after.hash));
        !(step.before.is_none() && is_first)
    })
}

impl Workspaces {
    /// Agents whose notes must be indexed and are not claimed, at most `limit`.
    pub async fn agents_to_index(&self, limit: i64) -> Result<Vec<(TenantId, AgentId)>, Error> {
        const SQL: &str = "
            select tenant_id, agent_id from workspace.trees
            where noted > indexed
              and (index_until is null or index_until < clock_timestamp())
            limit $1";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid)> =
            holdfast_pg::query_as(SQL).bind(limit).fetch_all(once.conn()).await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, agent)| (tenant.into(), agent.into())).collect())
    }

    /// Claims an agent's notes for `lease` and returns the revision to index up to. `None` if there
    /// is nothing to index, or another indexer has the claim.
    pub async fn claim_index(
        &self,
        tenant: TenantId,
        agent: AgentId,
        lease: Duration,
    ) -> Result<Option<Revision>, Error> {
        const SQL: &str = "
            update workspace.trees
            set index_until = clock_timestamp() + $3 * interval '1 millisecond'
            where tenant_id = $1 and agent_id = $2 and noted > indexed
              and (index_until is null or index_until < clock_timestamp())
            returning noted";
        let mut tx = self.pools.tenant(tenant).await?;
        let noted: Option<i64> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(noted.map(Revision::from))
    }

    /// Records that an agent's notes are indexed up to a revision, and ends the claim.
    ///
    /// # Errors
    ///
    /// If the database fails; the notes are indexed again then.
    pub async fn finish_index(
        &self,
        tenant: TenantId,
        agent: AgentId,
        upto: Revision,
    ) -> Result<(), Error> {
        const SQL: &str = "
            update workspace.trees
            set indexed = greatest(indexed, $3), index_until = null
            where tenant_id = $1 and agent_id = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(upto.number())
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentRef;

    fn step(path: &str, before: Option<&str>, after: Option<&str>) -> FileChange {
        let said = |text: &str| ContentRef { hash: ContentHash::of(text.as_bytes()), size: 1 };
        FileChange { path: path.parse().unwrap(), before: before.map(said), after: after.map(said) }
    }

    #[test]
    fn a_change_of_a_note_marks_its_tree_and_the_first_template_does_not() {
        let (_, template) = TEMPLATES[6];

        for (path, before, after, expected) in [
            ("MEMORY.md", None, Some(template), false),
            ("MEMORY.md", Some(template), Some("x"), true),
            ("MEMORY.md", Some("x"), Some(template), true),
            ("MEMORY.md", Some("x"), None, true),
            ("memory/202612/20261201.md", None, Some("x"), true),
            ("memory.md", None, Some("x"), false),
            ("notes/MEMORY.md", None, Some("x"), false),
            ("SOUL.md", Some("x"), Some("y"), false),
        ] {
            assert_eq!(needs_indexing(&[step(path, before, after)]), expected, "{path} {before:?}");
        }
    }
}
