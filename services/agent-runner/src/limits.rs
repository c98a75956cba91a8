//! Limits of a turn on tools and files, besides the policy.
//!
//! | | tools | files |
//! |---|---|---|
//! | every turn | those that its agent's prompt may offer | all |
//! | agent chosen by a model | those that the model named, if it did | all |
//! | subagent | those it was given; no commands if its files are restricted | the folders it was given |
//! | memory flush | four that read and write files | read all, write `memory` |

use holdfast_agent::bundle::UNSCOPED_TOOLS;
use holdfast_types::AgentId;

use crate::{agents::AgentSnapshot, files::FileScope, turn::Turn};

impl Turn<'_> {
    /// Folders that the file tools may read and write.
    pub(crate) fn file_scope(&self) -> FileScope {
        if self.is_flushing() {
            return Self::flush_scope();
        }
        self.task.as_ref().map_or_else(FileScope::default, |task| FileScope {
            read: task.given.fs_read.clone(),
            write: task.given.fs_write.clone(),
        })
    }

    /// The copy of the requester's workspace that a subagent works on, if it has one.
    pub(crate) fn workspace_branch(&self) -> Option<AgentId> {
        self.task.as_ref().and_then(|task| task.given.branch)
    }

    /// Lists of tools; a tool must be in each of them.
    pub(crate) fn tool_limits(&self, brief: &AgentSnapshot) -> Vec<Vec<String>> {
        let mut lists = Vec::new();
        lists.extend(brief.context.include_tools.clone());
        if let Some(excluded) = &brief.context.exclude_tools {
            lists.push(self.tools_without(|name| excluded.iter().any(|one| one == name)));
        }
        lists.extend(self.task.as_ref().and_then(|task| task.given.tools.clone()));
        lists.extend(self.routed_tools().cloned());
        if self.is_flushing() {
            lists.push(Self::flush_tools());
        }
        // A command can read all files.
        if self.file_scope().is_restricted() {
            lists.push(self.tools_without(|name| UNSCOPED_TOOLS.contains(&name)));
        }
        lists
    }

    fn tools_without(&self, is_out: impl Fn(&str) -> bool) -> Vec<String> {
        let registry = self.tools.registry();
        let names = registry.specs().into_iter().map(|spec| spec.name);
        names.filter(|name| !is_out(name)).collect()
    }
}
