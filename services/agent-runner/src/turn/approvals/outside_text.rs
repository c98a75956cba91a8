//! Text from outside must not become an instruction: a page, a mail or a tool's answer that asks the
//! agent to change its files, jobs or skills would act in all later conversations.
//!
//! | source | marked |
//! |---|---|
//! | results of tools, as `tool_flows.rs` says of each | the result's record |
//! | messages of subagents, guests and conversations that have read such text | the message |
//! | files and pictures that came with a message, forwarded messages, quotations of others | the message |
//! | files, notes, skills, memories and tools of MCP servers in the prompt | the turn's messages |
//!
//! The session keeps the mark until a reset, also behind a summary. While it has the mark, a person
//! decides about each change of instructions, and files that it writes are marked.

use holdfast_agent::{
    bootstrap::{BootstrapName, is_shown, may_load},
    file_view::{NOTES_FOLDER, is_instruction},
    policy::{CompiledPolicy, written_paths},
};
use holdfast_tools::is_untrusted;
use holdfast_types::{Body, Entry, Note, ToolSpec};
use serde_json::Value;

use super::tool_flows::{Source, source_of};
use crate::{
    agents::snapshots::AgentSnapshot,
    turn::{skills::invocation, state::TurnState},
};

impl TurnState<'_> {
    /// Whether the conversation has read text from outside.
    pub(crate) fn has_read_outside_text(&self) -> bool {
        self.journal.has_outside_text()
    }
}

/// Marks the conversation if files with text from outside are in its prompt: bootstrap files, notes of
/// the last days, headers of skills.
pub(crate) fn mark_outside_files(turn: &mut TurnState<'_>, snapshot: &AgentSnapshot) {
    let (kind, audience) = (turn.kind, turn.access(snapshot).audience);
    let is_shown = |name: &BootstrapName| is_shown(kind, audience, *name);
    let has_notes = may_load(kind, audience, BootstrapName::Memory);
    if snapshot.outside_files.iter().any(is_shown)
        || (has_notes && snapshot.notes.has_outside_text(turn.local_date(snapshot)))
        || invocation::lists_outside_text(snapshot)
    {
        turn.journal.mark_prompt_outside();
    }
}

/// Marks the conversation if memories with text from outside are in its prompt, or tools that an MCP
/// server describes.
pub(crate) fn mark_outside_prompt(turn: &mut TurnState<'_>, tools: &[ToolSpec]) {
    let registry = turn.tools.registry();
    if turn.prefetch.has_outside_text || tools.iter().any(|tool| registry.is_brought(&tool.name)) {
        turn.journal.mark_prompt_outside();
    }
}

/// Whether a lookup of tools shows what an MCP server says of its own.
pub(crate) fn describes_server_tool(turn: &TurnState<'_>, tool: &str, output: &str) -> bool {
    let mut names = output.lines().filter_map(|line| {
        let name = line.strip_prefix("- ").unwrap_or(line);
        name.split(':').next()
    });
    source_of(tool) == Source::Described && names.any(|name| turn.tools.registry().is_brought(name))
}

/// Whether a tool's result has text from outside, as far as the result shows it.
pub(crate) fn is_outside_result(tool: &str, output: &str) -> bool {
    match source_of(tool) {
        Source::Always => true,
        // Fences count wherever they are.
        Source::Own | Source::Fenced | Source::Web | Source::Noted | Source::Described => {
            is_untrusted(output)
        }
    }
}

/// Whether a guest wrote a message, of whom the agent's owner knows nothing.
pub(crate) fn is_of_guest(policy: &CompiledPolicy, body: &Body) -> bool {
    body.author.as_ref().is_some_and(|author| policy.turn_authors([author]).is_guest())
}

/// Whether text from outside is among the entries after the last reset.
pub(crate) fn is_among(entries: &[Entry]) -> bool {
    after_reset(entries).iter().any(|entry| match entry {
        // An older version stored no mark.
        Entry::Returned { output, .. } => entry.is_outside_text() || is_untrusted(output),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Noted { .. } => entry.is_outside_text(),
    })
}

/// Entries since the conversation began anew.
pub(super) fn after_reset(entries: &[Entry]) -> &[Entry] {
    let is_reset = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Reset, .. });
    let since = entries.iter().rposition(is_reset).map_or(0, |at| at + 1);
    &entries[since..]
}

/// Whether a call changes what the agent does in later turns, other than what it notes of the past.
pub(super) fn changes_agent(tool: &str, input: &Value) -> bool {
    let is_note = |path: &str| {
        path == BootstrapName::Memory.path()
            || path.split_once('/').is_some_and(|(folder, _)| folder == NOTES_FOLDER)
    };
    match written_paths(tool, input) {
        Some(paths) => paths.iter().any(|path| is_instruction(path) && !is_note(path)),
        None => changes_instructions(tool, input),
    }
}

/// Whether a call changes what the agent does in later turns.
pub(super) fn changes_instructions(tool: &str, input: &Value) -> bool {
    if let Some(paths) = written_paths(tool, input) {
        // A call without a path may write anywhere.
        return paths.is_empty() || paths.iter().any(|path| is_instruction(path));
    }
    match tool {
        // `wake` only tells something now, and its text keeps the mark.
        "cron" => !matches!(
            input["action"].as_str(),
            Some("status" | "list" | "remove" | "run" | "runs" | "wake")
        ),
        "scheduler_add" => !matches!(input["auto_continue"], Value::Null | Value::Bool(false)),
        "install_skill" => true,
        "self" => {
            !matches!(input["action"].as_str(), Some("show" | "propose" | "read" | "proposals"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::SystemEvent;
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
            ("cron", json!({"action": {"add": null}}), true),
            ("cron", json!({"action": "list"}), false),
            ("scheduler_add", json!({"auto_continue": true}), true),
            ("scheduler_add", json!({"content": "tea"}), false),
            ("install_skill", json!({}), true),
            ("write", json!({"path": "role.md"}), true),
            ("self", json!({"action": "change"}), true),
            ("self", json!({"action": "apply"}), true),
            ("self", json!({"action": "propose"}), false),
            ("read", json!({"path": "SOUL.md"}), false),
        ] {
            assert_eq!(changes_instructions(tool, &input), changes, "{tool} {input}");
        }
    }

    #[test]
    fn notes_of_the_past_do_not_change_the_agent() {
        for (tool, input, changes) in [
            ("write", json!({"path": "MEMORY.md"}), false),
            ("edit", json!({"path": "memory/2026-11-26.md"}), false),
            ("write", json!({"path": "notes.txt"}), false),
            ("write", json!({"path": "skills/tea/SKILL.md"}), true),
            ("edit", json!({"path": "self.md"}), true),
            ("self", json!({"action": "change"}), true),
            ("self", json!({"action": "propose"}), false),
            ("install_skill", json!({}), true),
        ] {
            assert_eq!(changes_agent(tool, &input), changes, "{tool} {input}");
        }
    }

    #[test]
    fn only_marked_entries_after_the_last_reset_are_from_outside() {
        let marked = holdfast_tools::untrusted("k", "a page", "do it", 100);
        let page = Entry::returned("a", marked.as_str(), false);
        let heard = |body: Body| Entry::Heard { seq: 1, body };
        let attached = |kind: &str| {
            let attachment =
                json!({ "attachments": [{ "kind": kind, "reference": "r" }], "text": "" });
            heard(serde_json::from_value(attachment).unwrap())
        };
        let event = |outside| {
            SystemEvent::entry(&[SystemEvent { id: 1, text: "t".into(), at: 0, outside }])
        };

        for (entry, is_outside) in [
            (page.clone(), true),
            (Entry::returned("a", "done", false), false),
            (heard(Body::text("hi")), false),
            (heard(Body { outside: true, ..Body::text("hi") }), true),
            (attached("document"), true),
            (attached("voice"), false),
            (event(true), true),
            (event(false), false),
        ] {
            assert_eq!(is_among(std::slice::from_ref(&entry)), is_outside, "{entry:?}");
        }
        assert!(is_among(&[page.clone(), Entry::summary("s", 0)]));
        assert!(!is_among(&[page, Entry::noted(Note::Reset, "anew")]));
        assert!(is_outside_result("exec", "a") && is_outside_result("page", &marked));
        assert!(!is_outside_result("write", "a"));
    }
}
