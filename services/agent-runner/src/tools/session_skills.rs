//! Workspace access of the tools `find_skills` and `install_skill`.
//!
//! An installed skill appears in all conversations of the agent, so it can only be installed in its
//! owner's conversation, like every file that defines the agent.

use holdfast_agent::bootstrap::Audience;
use holdfast_skills::{Installation, Origin, Policy, SkillLibrary, tool_error};
use holdfast_tools::{Call, ToolError};
use holdfast_types::{AgentId, TreePath};
use holdfast_workspace::ChangeAuthor;

use crate::{failpoints, tools::tool_context::ToolContext};

#[derive(Debug)]
pub(crate) struct SessionSkills {
    library: SkillLibrary,
}

impl SessionSkills {
    pub(crate) const fn new(library: SkillLibrary) -> Self {
        Self { library }
    }

    /// The workspace that the call works on: its agent's own, or a copy.
    fn workspace_of(call: &Call) -> anyhow::Result<AgentId> {
        Ok(ToolContext::of(call)?.workspace_branch.unwrap_or(call.agent))
    }
}

impl holdfast_skills::SkillTarget for SessionSkills {
    fn check(&self, call: &Call) -> Result<(), ToolError> {
        match ToolContext::of(call)?.audience {
            Audience::Owner => Ok(()),
            Audience::Agent | Audience::Others => Err(ToolError::Tell(
                "a skill is installed in a conversation with your owner only, and this is none"
                    .to_owned(),
            )),
        }
    }

    async fn policy(&self, call: &Call) -> anyhow::Result<Policy> {
        Ok(self.library.policy(call.tenant).await?)
    }

    async fn present(&self, call: &Call) -> anyhow::Result<Vec<TreePath>> {
        Ok(self.library.skill_paths(call.tenant, Self::workspace_of(call)?).await?)
    }

    async fn made(&self, call: &Call) -> anyhow::Result<Option<Origin>> {
        Ok(self.library.installed_origin(call.tenant, Self::workspace_of(call)?, &call.key).await?)
    }

    async fn keep(&self, call: &Call, installation: Installation) -> Result<(), ToolError> {
        self.check(call)?;
        failpoints::point("runner.before_install").await;
        let reason = format!("installed the skill `{}`", installation.origin.slug);
        let by = ChangeAuthor {
            run: Some(call.run),
            ..ChangeAuthor::new(call.agent_name.as_str(), &reason)
        };
        let by = by.with_key(&call.key);
        let tree = Self::workspace_of(call)?;
        self.library
            .write_installation(call.tenant, tree, &by, &installation)
            .await
            .map_err(tool_error)?;
        failpoints::point("runner.after_install").await;
        ToolContext::of(call)?.invalidate_snapshot();
        Ok(())
    }
}
