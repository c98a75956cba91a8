//! First revision of a new agent's tree: its bootstrap files.

use holdfast_types::{AgentId, TenantId, TreePath};

use crate::{
    Base, ChangeAuthor, CommitOutcome, Edit, Error, Revision, TEMPLATES, Workspaces,
    commit::edits_digest, workspaces::lock_tree,
};

const TEMPLATE_AUTHOR: &str = "holdfast";

impl Workspaces {
    /// Writes a new agent's bootstrap files as revision 1.
    ///
    /// A tree that was ever written to stays as it is, so the call can be repeated at any time: a
    /// file that the agent deleted does not come back.
    pub async fn seed(&self, tenant: TenantId, agent: AgentId) -> Result<CommitOutcome, Error> {
        let mut edits = Vec::with_capacity(TEMPLATES.len());
        for (name, text) in TEMPLATES {
            let path: TreePath = name.parse()?;
            edits.push(Edit::Put { path, content: text.into(), base: Base::Absent });
        }
        let wanted = self.prepare_edits(edits).await?;
        let request = edits_digest(&wanted.ops);
        let by = ChangeAuthor::new(TEMPLATE_AUTHOR, "the files that a new agent begins with");

        let mut tx = self.pools.tenant(tenant).await?;
        let tree = lock_tree(&mut tx, agent).await?;
        if tree.head != Revision::EMPTY {
            tx.finish_reading();
            return Ok(CommitOutcome { revision: tree.head, changed: 0, repeated: true });
        }
        self.write_commit(tx, tree, &by, request, wanted).await
    }
}
