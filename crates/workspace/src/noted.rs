//! Which agents' notes are to be indexed, so that they are found by a search.
//!
//! Notes are `MEMORY.md` and what is under `memory/`. A change of one marks its tree in the same
//! statement; whoever indexes claims the tree for a while, and says how far it came. What is lost in
//! between is claimed again, and a change that is made meanwhile leaves the tree marked.

use std::time::Duration;

use holdfast_types::{AgentId, TenantId, TreePath};
use uuid::Uuid;

use crate::{ContentHash, Error, Revision, TEMPLATES, Workspaces, record::Step};

/// What an agent knows for good.
pub const LONG_TERM: &str = "MEMORY.md";

/// Where its notes are.
pub const NOTES: &str = "memory";

/// Whether a file is one of an agent's notes.
#[must_use]
pub fn is_note(path: &TreePath) -> bool {
    path.as_str() == LONG_TERM
        || path.as_str().strip_prefix(NOTES).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a file says only what every agent begins with.
#[must_use]
pub fn is_template(path: &TreePath, hash: ContentHash) -> bool {
    let template = TEMPLATES.iter().find(|(name, _)| *name == path.as_str());
    template.is_some_and(|(_, text)| hash == ContentHash::of(text.as_bytes()))
}

/// Whether a change makes something to index: a note that is only the one that every agent begins
/// with says nothing yet.
pub(crate) fn marks(steps: &[Step]) -> bool {
    steps.iter().filter(|step| is_note(&step.path)).any(|step| {
        let is_first = step.after.is_some_and(|after| is_template(&step.path, after.hash));
        !(step.before.is_none() && is_first)
    })
}

impl Workspaces {
    /// Some agents whose notes are to be indexed and that nobody is at.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn to_index(&self, limit: i64) -> Result<Vec<(TenantId, AgentId)>, Error> {
        const SQL: &str = "
            select tenant_id, agent_id from workspace.trees
            where noted > indexed
              and (index_until is null or index_until < clock_timestamp())
            limit $1";
        let mut once = self.pools.once().await?;
        let rows: Vec<(Uuid, Uuid)> =
            sqlx::query_as(SQL).bind(limit).fetch_all(once.conn()).await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, agent)| (tenant.into(), agent.into())).collect())
    }

    /// Takes an agent's notes to index them, for so long; up to which revision. `None` if there is
    /// nothing to do, or somebody else is at it.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
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
        let noted: Option<i64> = sqlx::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(noted.map(Revision::from))
    }

    /// Says that an agent's notes are indexed up to a revision.
    ///
    /// # Errors
    ///
    /// If the database does not answer; then they are indexed again.
    pub async fn indexed(
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
        sqlx::query(SQL)
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
    use crate::Said;

    fn step(path: &str, before: Option<&str>, after: Option<&str>) -> Step {
        let said = |text: &str| Said { hash: ContentHash::of(text.as_bytes()), size: 1 };
        Step { path: path.parse().unwrap(), before: before.map(said), after: after.map(said) }
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
            assert_eq!(marks(&[step(path, before, after)]), expected, "{path} {before:?}");
        }
    }
}
