//! What a turn may use: of tools and of files, besides what policy says.
//!
//! | | tools | files |
//! |---|---|---|
//! | every turn | those that its agent's prompt may offer | all |
//! | one whose agent a model chose | those that it named, if it did | all |
//! | a subagent's | those it was given; no command where its files are bounded | where it was told |
//! | while memory is written down | four that read and write files | all to read, `memory` to write |

use holdfast_agent::bundle::UNBOUNDED;
use holdfast_types::AgentId;

use crate::{agents::Brief, files::Scope, turn::Turn};

impl Turn<'_> {
    /// Where its file tools may look and change.
    pub(crate) fn scope(&self) -> Scope {
        if self.is_flushing() {
            return Self::flush_scope();
        }
        self.task.as_ref().map_or_else(Scope::default, |task| Scope {
            read: task.given.fs_read.clone(),
            write: task.given.fs_write.clone(),
        })
    }

    /// The copy of its requester's files that it works on, if it is a subagent that does.
    pub(crate) fn branch(&self) -> Option<AgentId> {
        self.task.as_ref().and_then(|task| task.given.branch)
    }

    /// Lists of tools, each of which narrows what it has.
    pub(crate) fn bounds(&self, brief: &Brief) -> Vec<Vec<String>> {
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
        // A command sees all files.
        if self.scope().is_bounded() {
            lists.push(self.tools_without(|name| UNBOUNDED.contains(&name)));
        }
        lists
    }

    /// All tools but some.
    fn tools_without(&self, is_out: impl Fn(&str) -> bool) -> Vec<String> {
        let registry = self.tools.registry();
        let names = registry.specs().into_iter().map(|spec| spec.name);
        names.filter(|name| !is_out(name)).collect()
    }
}
