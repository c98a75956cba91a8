//! Limits of a turn on tools and files, besides the policy.
//!
//! | | tools | files |
//! |---|---|---|
//! | every turn | those that its agent's prompt may offer | all |
//! | agent chosen by a model | those that the model named, if it did | all |
//! | subagent | those it was given; no commands if its files are restricted | the folders it was given |
//! | step of a behaviour | those of its toolbox | reads all; writes none if it only reads, and commands lose what they write |
//! | memory flush | four that read and write files | read all, write `memory` |

use holdfast_agent::{Limits, behavior::makes_result, bundle::UNSCOPED_TOOLS};
use holdfast_session::Subagent;
use holdfast_types::{AgentId, Entry};

use crate::{
    agents::snapshots::AgentSnapshot,
    tools::files::FileScope,
    turn::{
        behavior::RESULT_MEMORY_TOOLS, context::flush, reply::replies::TaskLimit, state::TurnState,
    },
};

impl TurnState<'_> {
    /// Folders that the file tools may read and write.
    pub(crate) fn file_scope(&self) -> FileScope {
        let given = self.given_file_scope();
        match self.is_read_only() {
            true => FileScope { write: Some(Vec::new()), ..given },
            false => given,
        }
    }

    /// Whether the step belongs to a behaviour that only reads files.
    pub(crate) fn is_read_only(&self) -> bool {
        self.behavior.as_ref().is_some_and(|run| run.is_read_only())
    }

    fn given_file_scope(&self) -> FileScope {
        if self.is_flushing() {
            return flush::flush_scope();
        }
        self.task.as_ref().map_or_else(FileScope::default, |task| FileScope {
            read: task.given.fs_read.clone(),
            write: task.given.fs_write.clone(),
        })
    }

    /// Limits on the calls of a turn. A behaviour has limits of its own.
    pub(crate) fn limits(&self) -> Limits {
        match self.behavior {
            Some(_) => Limits { calls: usize::MAX, at_once: usize::MAX },
            None => self.worker.config.limits(),
        }
    }

    /// Tools that a subagent was given, by its bundle and its list; `None` is all.
    pub(crate) fn given_tools(&self) -> Option<&Vec<String>> {
        self.task.as_ref().and_then(|task| task.given.tools.as_ref())
    }

    /// The copy of the requester's workspace that a subagent works on, if it has one.
    pub(crate) fn workspace_branch(&self) -> Option<AgentId> {
        self.task.as_ref().and_then(|task| task.given.branch)
    }
}

/// Lists of tools; a tool must be in each of them.
pub(crate) fn tool_limits(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Vec<Vec<String>> {
    let mut lists = Vec::new();
    lists.extend(snapshot.context.include_tools.clone());
    if let Some(excluded) = &snapshot.context.exclude_tools {
        lists.push(tools_without(turn, |name| excluded.iter().any(|one| one == name)));
    }
    lists.extend(turn.given_tools().cloned());
    lists.extend(turn.routed_tools().cloned());
    if let Some(toolbox) = turn.behavior.as_ref().and_then(|run| run.toolbox()) {
        // What a result remembers and asks the memory is no tool of the model's choice.
        let remembers = makes_result(turn.journal.entries());
        let is_offered =
            |name: &str| toolbox.offers(name) || (remembers && RESULT_MEMORY_TOOLS.contains(&name));
        lists.push(tools_without(turn, |name| !is_offered(name)));
    }
    if turn.is_flushing() {
        lists.push(flush::flush_tools());
    }
    // A command can read all files. Those of a behaviour that only reads may, and lose what they
    // write.
    if turn.given_file_scope().is_restricted() {
        lists.push(tools_without(turn, |name| UNSCOPED_TOOLS.contains(&name)));
    }
    lists
}

fn tools_without(turn: &TurnState<'_>, is_out: impl Fn(&str) -> bool) -> Vec<String> {
    let registry = turn.tools.registry();
    let names = registry.specs().into_iter().map(|spec| spec.name);
    names.filter(|name| !is_out(name)).collect()
}

/// Returns the limit that a subagent has reached; `None` if it may continue.
pub(crate) fn reached_limit(task: &Subagent, turn: &[Entry]) -> Option<TaskLimit> {
    let (mut steps, mut tokens) = (0_i32, 0_i64);
    for entry in turn {
        if let Entry::Thought { usage, .. } = entry {
            steps += 1;
            let used = usage.input.saturating_add(usage.output);
            tokens = tokens.saturating_add(i64::try_from(used).unwrap_or(i64::MAX));
        }
    }
    if task.max_steps.is_some_and(|most| steps >= most) {
        Some(TaskLimit::Steps)
    } else if task.max_tokens.is_some_and(|most| tokens >= most) {
        Some(TaskLimit::Tokens)
    } else if task.left.is_zero() {
        Some(TaskLimit::Time)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdfast_types::Usage;

    use super::*;
    use crate::tools::subagents::tests::task;

    fn thought(tokens: u64) -> Entry {
        Entry::Thought {
            text: String::new(),
            calls: Vec::new(),
            usage: Usage { input: tokens, output: 1, ..Usage::default() },
            model: String::new(),
            carry: None,
            record: None,
        }
    }

    #[test]
    fn what_is_used_up_is_said_and_at_the_limit_not_after_it() {
        let task = task();
        assert_eq!(reached_limit(&task, &[thought(10)]), None);
        assert_eq!(reached_limit(&task, &[thought(10), thought(10)]), Some(TaskLimit::Steps));
        assert_eq!(reached_limit(&task, &[thought(99)]), Some(TaskLimit::Tokens));
        let late = Subagent { left: Duration::ZERO, ..task };
        assert_eq!(reached_limit(&late, &[]), Some(TaskLimit::Time));
    }
}
