//! Workspace access of the tools `find_skills` and `install_skill`.
//!
//! An installed skill appears in all conversations of the agent, so it can only be installed in its
//! owner's conversation, like every file that defines the agent.

use std::sync::Arc;

use anyhow::anyhow;
use holdfast_agent::bootstrap::Audience;
use holdfast_skills::{Installation, Library, Origin, Policy, tell};
use holdfast_tools::{Call, ToolError};
use holdfast_types::{AgentId, TreePath};
use holdfast_workspace::By;

use crate::{fail, held::Held};

#[derive(Debug)]
pub(crate) struct Home {
    library: Library,
    held: Arc<Held>,
}

impl Home {
    pub(crate) const fn new(library: Library, held: Arc<Held>) -> Self {
        Self { library, held }
    }

    /// The workspace that the call works on: its agent's own, or a copy.
    fn tree(&self, call: &Call) -> anyhow::Result<AgentId> {
        let hold = self.held.get(call.session);
        let hold = hold.ok_or_else(|| anyhow!("the session is not held here"))?;
        let branch = hold.desk().branch;
        Ok(branch.unwrap_or(call.agent))
    }
}

impl holdfast_skills::Home for Home {
    fn check(&self, call: &Call) -> Result<(), ToolError> {
        let hold = self.held.get(call.session);
        let hold = hold.ok_or_else(|| anyhow!("the session is not held here"))?;
        match hold.desk().audience {
            Audience::Owner => Ok(()),
            Audience::Others => Err(ToolError::Tell(
                "a skill is installed in a conversation with your owner only, and this is none"
                    .to_owned(),
            )),
        }
    }

    async fn policy(&self, call: &Call) -> anyhow::Result<Policy> {
        Ok(self.library.policy(call.tenant).await?)
    }

    async fn present(&self, call: &Call) -> anyhow::Result<Vec<TreePath>> {
        Ok(self.library.present(call.tenant, self.tree(call)?).await?)
    }

    async fn made(&self, call: &Call) -> anyhow::Result<Option<Origin>> {
        Ok(self.library.installed(call.tenant, self.tree(call)?, &call.key).await?)
    }

    async fn keep(&self, call: &Call, installation: Installation) -> Result<(), ToolError> {
        self.check(call)?;
        fail::point("runner.before_install").await;
        let reason = format!("installed the skill `{}`", installation.origin.slug);
        let by = By { run: Some(call.run), ..By::author(call.agent_name.as_str(), &reason) };
        let by = by.with_key(&call.key);
        let tree = self.tree(call)?;
        self.library.keep(call.tenant, tree, &by, &installation).await.map_err(tell)?;
        fail::point("runner.after_install").await;
        if let Some(hold) = self.held.get(call.session) {
            hold.desk().is_brief_outdated = true;
        }
        Ok(())
    }
}
