//! The files that a new agent begins with: who it is, whom it is for, how it works.
//!
//! They are an agent's own from then on. Whoever has a better idea of their agent changes them;
//! a later version of this binary does not.

use holdfast_types::{AgentId, TenantId, TreePath};

use crate::{
    Base, By, Committed, Edit, Error, Revision, Workspaces, commit::request, workspaces::lock,
};

/// The bootstrap files by their names (spec BST-001), in the order in which they are best read.
pub const TEMPLATES: [(&str, &str); 8] = [
    ("SOUL.md", include_str!("../templates/SOUL.md")),
    ("IDENTITY.md", include_str!("../templates/IDENTITY.md")),
    ("USER.md", include_str!("../templates/USER.md")),
    ("AGENTS.md", include_str!("../templates/AGENTS.md")),
    ("TOOLS.md", include_str!("../templates/TOOLS.md")),
    ("HEARTBEAT.md", include_str!("../templates/HEARTBEAT.md")),
    ("MEMORY.md", include_str!("../templates/MEMORY.md")),
    ("BOOTSTRAP.md", include_str!("../templates/BOOTSTRAP.md")),
];

/// Who wrote them.
const AUTHOR: &str = "holdfast";

impl Workspaces {
    /// Gives a new agent its first files, as revision 1.
    ///
    /// A tree that anybody has written to stays as it is, so this may be done again at any time:
    /// a file that its agent deleted does not come back.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn seed(&self, tenant: TenantId, agent: AgentId) -> Result<Committed, Error> {
        let mut edits = Vec::with_capacity(TEMPLATES.len());
        for (name, text) in TEMPLATES {
            let path: TreePath = name.parse()?;
            edits.push(Edit::Put { path, content: text.into(), base: Base::Absent });
        }
        let wanted = self.prepare(edits).await?;
        let request = request(&wanted.ops);
        let by = By::author(AUTHOR, "the files that a new agent begins with");

        let mut tx = self.pools.tenant(tenant).await?;
        let tree = lock(&mut tx, agent).await?;
        if tree.head != Revision::EMPTY {
            tx.finish_reading();
            return Ok(Committed { revision: tree.head, changed: 0, repeated: true });
        }
        self.write(tx, tree, &by, request, wanted).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one file may say in a prompt before it is cut (spec BST-002).
    const PROMPT_LIMIT: usize = 20_000;

    #[test]
    fn every_template_is_named_as_the_spec_says_and_fits_in_a_prompt_with_the_others() {
        let names: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).collect();

        assert_eq!(
            names,
            [
                "SOUL.md",
                "IDENTITY.md",
                "USER.md",
                "AGENTS.md",
                "TOOLS.md",
                "HEARTBEAT.md",
                "MEMORY.md",
                "BOOTSTRAP.md"
            ]
        );
        let all: usize = TEMPLATES.iter().map(|(_, text)| text.chars().count()).sum();
        assert!(all < PROMPT_LIMIT, "{all} characters");
        assert!(TEMPLATES.iter().all(|(_, text)| text.ends_with('\n') && !text.contains('\r')));
    }

    #[test]
    fn the_heartbeat_asks_for_nothing_until_somebody_writes_into_it() {
        let (_, heartbeat) = TEMPLATES[5];

        let comment = heartbeat.trim();
        assert!(comment.starts_with("<!--") && comment.ends_with("-->"));
        assert_eq!(comment.matches("-->").count(), 1);
    }
}
