//! What a rollback has done, for people and for the session's next turn.

use std::fmt::Write as _;

use holdfast_work::AbortedRecord;
use serde::{Deserialize, Serialize};

/// Tools whose changes are undone.
const UNDONE_TOOLS: [&str; 8] =
    ["write", "append_file", "edit", "apply_patch", "delete_file", "self", "todo", "memory_set"];

/// Things that a text names one by one.
const MAX_NAMED: usize = 10;

/// Whether a rollback is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollbackMode {
    Make,
    /// Nothing is changed; the report says what would be.
    Look,
}

/// What a rollback has done. Stored as JSON: fields are only ever added, with a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RollbackReport {
    /// Id of the step.
    pub step_id: String,
    /// Behaviour with its parameters, and the step in it.
    pub behavior: String,
    pub step: u32,
    /// Paths of files with the content that they had before.
    pub files: Vec<String>,
    /// Files that somebody has changed since, and which stay as they are.
    pub file_conflicts: Vec<FileConflict>,
    /// Number of operations on todos that do not count any more.
    pub todo_operations: u32,
    /// Later operations of others that do not count any more either, with the reason.
    pub refused_todo_operations: Vec<String>,
    /// Keys of values with the value that they had before.
    pub values: Vec<String>,
    /// Keys of values that somebody has set since, and which stay as they are.
    pub value_conflicts: Vec<String>,
    /// What the step did besides, and which is not undone.
    pub not_undone: Vec<NotUndone>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileConflict {
    pub path: String,
    pub changed_by: String,
}

/// Something that a step did and a rollback does not undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotUndone {
    /// Tool; `reply` for a text for people.
    pub what: String,
    /// One line.
    pub text: String,
}

impl NotUndone {
    /// Reads a record of the step's worklog; `None` if the rollback undoes what it is about.
    pub(crate) fn of_record(record: AbortedRecord) -> Option<Self> {
        let AbortedRecord { r#type, impact_level, tool, digest, failed } = record;
        let is_outside = impact_level == "external";
        let is_other_change = impact_level == "internal"
            && !tool.is_empty()
            && !failed
            && !UNDONE_TOOLS.contains(&tool.as_str());
        let what = match tool.as_str() {
            "" if r#type == "ReplyMessage.v1" => "reply".to_owned(),
            "" => r#type,
            _ => tool,
        };
        (is_outside || is_other_change).then_some(Self { what, text: digest })
    }
}

impl RollbackReport {
    /// One line for the worklog.
    pub(crate) fn digest(&self, by: &str) -> String {
        let Self { behavior, step, .. } = self;
        format!("step {step} of {behavior} rolled back by {by}; {}", self.summary())
    }

    /// Text for the session's next turn.
    pub(crate) fn note(&self, by: &str) -> String {
        let Self { behavior, step, .. } = self;
        format!(
            "{by} has rolled back your last step, step {step} of `{behavior}`: what you said and \
             planned in it does not hold any more. {}. Look at the files before you go on.",
            self.summary()
        )
    }

    /// What was restored, and what was not, without what was said.
    fn summary(&self) -> String {
        let counts = [
            (self.files.len(), "file", "files"),
            (self.todo_operations as usize, "change of todos", "changes of todos"),
            (self.values.len(), "value", "values"),
        ];
        let restored = counts.into_iter().filter(|(number, ..)| *number > 0);
        let restored: Vec<String> = restored
            .map(|(number, one, many)| format!("{number} {}", if number == 1 { one } else { many }))
            .collect();
        let mut text = match restored.is_empty() {
            true => "nothing was to be restored".to_owned(),
            false => format!("restored: {}", restored.join(", ")),
        };
        let conflicts = self.file_conflicts.iter().map(|conflict| conflict.path.as_str());
        let conflicts: Vec<&str> =
            conflicts.chain(self.value_conflicts.iter().map(String::as_str)).collect();
        // Writing to a `String` cannot fail.
        if !conflicts.is_empty() {
            let _ = write!(text, "; changed by others since and left: {}", named(&conflicts));
        }
        let kept: Vec<&str> = self.not_undone.iter().map(|one| one.what.as_str()).collect();
        if !kept.is_empty() {
            let _ = write!(text, "; done and not undone: {}", named(&kept));
        }
        text
    }
}

/// A list of the first names, with the number of the others.
fn named(names: &[&str]) -> String {
    let mut shown = names[..names.len().min(MAX_NAMED)].join(", ");
    if names.len() > MAX_NAMED {
        let _ = write!(shown, " and {} more", names.len() - MAX_NAMED);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: &str, level: &str, tool: &str, failed: bool) -> AbortedRecord {
        AbortedRecord {
            r#type: kind.to_owned(),
            impact_level: level.to_owned(),
            tool: tool.to_owned(),
            digest: "what it was".to_owned(),
            failed,
        }
    }

    #[test]
    fn what_acts_outside_and_other_changes_are_named_and_what_is_undone_is_not() {
        let cases = [
            (record("ActionRecord.v1", "external", "exec", true), Some("exec")),
            (record("FunctionRecord.v1", "internal", "message", false), Some("message")),
            (record("ReplyMessage.v1", "external", "", false), Some("reply")),
            (record("Payment.v1", "external", "", false), Some("Payment.v1")),
            (record("FunctionRecord.v1", "internal", "cron", true), None),
            (record("FunctionRecord.v1", "internal", "write", false), None),
            (record("FunctionRecord.v1", "none", "read", false), None),
            (record("TodoChange.v1", "internal", "", false), None),
            (record("StepSummary.v1", "none", "", false), None),
        ];
        for (record, wanted) in cases {
            let shown = format!("{record:?}");
            let found = NotUndone::of_record(record).map(|one| one.what);
            assert_eq!(found.as_deref(), wanted, "{shown}");
        }
    }

    #[test]
    fn a_note_says_what_is_restored_what_is_left_and_what_is_not_undone() {
        let kept = |what: &str| NotUndone { what: what.to_owned(), text: "secret".to_owned() };
        let report = RollbackReport {
            behavior: "DO:todo=T001".to_owned(),
            step: 3,
            files: vec!["a.txt".to_owned()],
            todo_operations: 2,
            file_conflicts: vec![FileConflict { path: "b.txt".into(), changed_by: "ben".into() }],
            not_undone: (0..12).map(|_| kept("exec")).collect(),
            ..RollbackReport::default()
        };

        let note = report.note("anna");

        assert!(note.starts_with("anna has rolled back your last step, step 3 of `DO:todo=T001`"));
        let summary = "restored: 1 file, 2 changes of todos; changed by others since and left: \
                       b.txt; done and not undone: exec, ";
        assert!(note.contains(summary), "{note}");
        assert!(note.contains(" and 2 more. ") && !note.contains("secret"), "{note}");
    }
}
