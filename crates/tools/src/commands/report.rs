//! Command results as text for the model.

use std::fmt::Write as _;

use serde_json::json;

use super::{CommandResult, CommandState, FileChangeKind, StreamOutput, WorkspaceChanges};
use crate::Output;

/// Maximum size of the shown output, in bytes; a call may set a lower one.
const MAX_SHOWN_BYTES: usize = 32 * 1024;

/// Maximum number of files that are listed.
const MAX_LISTED_FILES: usize = 100;

/// Describes a command's state, output and changes.
pub(super) fn command_output(ran: &CommandResult, most: Option<u32>) -> Output {
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(MAX_SHOWN_BYTES);
    let most = most.min(MAX_SHOWN_BYTES);
    let seconds = ran.took.as_secs_f64();
    let (status, mut text) = match &ran.stands {
        CommandState::Running(id) => (
            "running",
            format!("running in the background as {id}, for {seconds:.1} s; `process` shows more"),
        ),
        CommandState::Exited(code) => {
            let status = if *code == 0 { "completed" } else { "failed" };
            (status, format!("{status}: exited with code {code} after {seconds:.1} s"))
        }
        CommandState::Ended(how) => ("failed", format!("failed: {how} after {seconds:.1} s")),
    };
    text.push('\n');
    write_output(&mut text, ran, most);
    if let Some(kept) = &ran.kept {
        write_changes(&mut text, kept);
    }
    let code = match ran.stands {
        CommandState::Exited(code) => Some(code),
        CommandState::Running(_) | CommandState::Ended(_) => None,
    };
    let changes = ran.kept.iter().flat_map(|kept| &kept.changes).take(MAX_LISTED_FILES);
    Output::from(text).record(json!({
        "status": status,
        "exit_code": code,
        "duration_ms": u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX),
        "revision": ran.kept.as_ref().and_then(|kept| kept.revision.as_ref()),
        "files_changed": changes.map(|(_, path)| path).collect::<Vec<_>>(),
    }))
}

fn write_output(text: &mut String, ran: &CommandResult, most: usize) {
    let both = ran.out.text.len() + ran.err.text.len();
    if both == 0 && ran.out.skipped + ran.err.skipped == 0 {
        text.push_str("(no output)\n");
        return;
    }
    // Standard error is reserved a quarter; the part that it does not use goes to standard output.
    let errors = ran.err.text.len().min(most / 4);
    write_stream(text, &ran.out, most - errors);
    if !ran.err.text.is_empty() {
        text.push_str("STDERR:\n");
        write_stream(text, &ran.err, most.saturating_sub(ran.out.text.len()).max(most / 4));
    }
}

/// Writes the whole text, or its beginning and its end.
fn write_stream(text: &mut String, written: &StreamOutput, most: usize) {
    let StreamOutput { text: all, skipped } = written;
    if *skipped > 0 {
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(text, "[… {skipped} bytes before this are forgotten …]");
    }
    if all.len() <= most {
        text.push_str(all);
    } else {
        let head = &all[..all.floor_char_boundary(most / 2)];
        let tail = &all[all.ceil_char_boundary(all.len() - most / 2)..];
        let left_out = all.len() - head.len() - tail.len();
        let _ = write!(text, "{head}\n[… {left_out} bytes left out …]\n{tail}");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

fn write_changes(text: &mut String, kept: &WorkspaceChanges) {
    if let Some(revision) = &kept.revision {
        let _ = writeln!(text, "Changed files, as revision {revision}:");
    }
    for (mark, path) in kept.changes.iter().take(MAX_LISTED_FILES) {
        let mark = match mark {
            FileChangeKind::Made => '+',
            FileChangeKind::Changed => '~',
            FileChangeKind::Deleted => '-',
        };
        let _ = writeln!(text, "{mark} {path}");
    }
    if kept.changes.len() > MAX_LISTED_FILES {
        let _ = writeln!(text, "[{} more]", kept.changes.len() - MAX_LISTED_FILES);
    }
    for note in &kept.notes {
        let _ = writeln!(text, "Note: {note}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ran(out: &str, err: &str) -> CommandResult {
        let written = |text: &str| StreamOutput { text: text.to_owned(), skipped: 0 };
        CommandResult {
            stands: CommandState::Exited(3),
            out: written(out),
            err: written(err),
            took: Duration::from_millis(120),
            kept: None,
        }
    }

    #[test]
    fn silence_and_a_code_are_told() {
        let output = command_output(&ran("", ""), None);

        assert_eq!(output.for_llm, "failed: exited with code 3 after 0.1 s\n(no output)\n");
        assert_eq!(output.details.unwrap()["exit_code"], 3);
    }

    #[test]
    fn a_flood_is_cut_in_its_middle_and_errors_are_seen_all_the_same() {
        let flood = format!("begin{}end", "ä".repeat(100_000));
        let errors = format!("first{}last", "x".repeat(100_000));

        let text = command_output(&ran(&flood, &errors), Some(1_000)).for_llm;

        assert!(text.len() < 1_300, "{}", text.len());
        for part in ["begin", "end\n", "STDERR:\nfirst", "last\n", "bytes left out"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(command_output(&ran(&flood, ""), Some(u32::MAX)).for_llm.len() < 33_000);
    }

    #[test]
    fn what_changed_and_what_was_not_kept_is_listed() {
        let kept = WorkspaceChanges {
            revision: Some("7".into()),
            changes: vec![
                (FileChangeKind::Made, "a".into()),
                (FileChangeKind::Deleted, "b/c".into()),
            ],
            notes: vec!["`l` is a link".into()],
        };

        let output = command_output(&CommandResult { kept: Some(kept), ..ran("x", "") }, None);

        assert!(
            output
                .for_llm
                .ends_with("x\nChanged files, as revision 7:\n+ a\n- b/c\nNote: `l` is a link\n"),
            "{}",
            output.for_llm
        );
        assert_eq!(output.details.unwrap()["files_changed"], json!(["a", "b/c"]));
    }
}
