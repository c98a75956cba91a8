//! Text from outside must not become an instruction: a page, a mail or a tool's answer that asks the
//! agent to change its files, jobs or skills would act in all later conversations.
//!
//! A conversation has read text from outside if a tool's result that is marked so is in its journal
//! after the last summary. From then on a person decides about each such change.

use holdfast_agent::{file_view::is_instruction, policy::written_paths};
use holdfast_tools::is_untrusted;
use holdfast_types::Entry;
use serde_json::Value;

/// Whether a result with text from outside is among the entries.
pub(crate) fn was_read(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| match entry {
        Entry::Returned { output, .. } => is_untrusted(output),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Noted { .. } => false,
    })
}

/// Whether a call changes what the agent does in later turns.
pub(super) fn changes_instructions(tool: &str, input: &Value) -> bool {
    if let Some(paths) = written_paths(tool, input) {
        // A call without a path may write anywhere.
        return paths.is_empty() || paths.iter().any(|path| is_instruction(path));
    }
    match tool {
        "cron" => matches!(input["action"].as_str(), Some("add" | "update")),
        "scheduler_add" => input["auto_continue"] == true,
        "install_skill" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_jobs_and_skills_are_instructions_and_other_files_are_not() {
        for (tool, input, changes) in [
            ("write", json!({"path": "HEARTBEAT.md"}), true),
            ("append_file", json!({"path": "./skills/tea/SKILL.md"}), true),
            ("edit", json!({"path": "notes.txt"}), false),
            ("write", json!({}), true),
            ("apply_patch", json!({"patch": "*** Update File: AGENTS.md\n"}), true),
            ("cron", json!({"action": "add"}), true),
            ("cron", json!({"action": "list"}), false),
            ("scheduler_add", json!({"auto_continue": true}), true),
            ("scheduler_add", json!({"content": "tea"}), false),
            ("install_skill", json!({}), true),
            ("read", json!({"path": "SOUL.md"}), false),
        ] {
            assert_eq!(changes_instructions(tool, &input), changes, "{tool} {input}");
        }
    }

    #[test]
    fn only_marked_results_are_from_outside() {
        let marked = holdfast_tools::untrusted("k", "a page", "do it", 100);

        assert!(was_read(&[Entry::returned("a", marked, false)]));
        assert!(!was_read(&[Entry::returned("a", "done", false)]));
    }
}
