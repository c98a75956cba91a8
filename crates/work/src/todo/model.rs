//! A todo, its code and its limits (spec TDO-010).

use std::fmt;

use holdfast_types::{NewTodo, TodoEstimate, TodoKind, TodoNoteKind, TodoStatus};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum number of todos in a list.
pub const MAX_TODOS: u32 = 10_000;

const MAX_TITLE_CHARS: usize = 256;
const MAX_DESCRIPTION_CHARS: usize = 4_096;
pub(super) const MAX_REASON_CHARS: usize = 1_024;
pub(super) const MAX_NOTE_CHARS: usize = 4_096;
/// Maximum number of notes of one todo.
pub(super) const MAX_NOTES: usize = 64;
/// Maximum number of labels, and of skills.
const MAX_LABELS: usize = 32;
const MAX_LABEL_CHARS: usize = 64;
pub(super) const MAX_DEPS: usize = 128;

/// Why an operation was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TodoErrorKind {
    NotFound,
    InvalidTransition,
    Forbidden,
    /// A field is missing, or exceeds its limit.
    Invalid,
}

impl TodoErrorKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "NOT_FOUND",
            Self::InvalidTransition => "INVALID_TRANSITION",
            Self::Forbidden => "FORBIDDEN",
            Self::Invalid => "INVALID",
        }
    }
}

/// An operation that was not applied; its text is for the model or the person who asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}: {message}", .kind.as_str())]
pub struct TodoError {
    pub kind: TodoErrorKind,
    pub message: String,
}

impl TodoError {
    pub(super) fn new(kind: TodoErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(super) fn not_found(code: &str) -> Self {
        let code: String = code.chars().take(80).collect();
        Self::new(TodoErrorKind::NotFound, format!("there is no todo `{code}` in the list"))
    }
}

/// Refuses a text that is longer than its limit.
pub(super) fn check_chars(field: &str, text: &str, limit: usize) -> Result<(), TodoError> {
    let chars = text.chars().count();
    if chars <= limit {
        return Ok(());
    }
    let message = format!("`{field}` has {chars} characters, and {limit} are the most");
    Err(TodoError::new(TodoErrorKind::Invalid, message))
}

pub(super) fn check_number(field: &str, number: usize, limit: usize) -> Result<(), TodoError> {
    if number <= limit {
        return Ok(());
    }
    let message = format!("`{field}` has {number} entries, and {limit} are the most");
    Err(TodoError::new(TodoErrorKind::Invalid, message))
}

/// Checks the sizes of a new todo.
pub(super) fn check_new(new: &NewTodo) -> Result<(), TodoError> {
    if new.title.trim().is_empty() {
        return Err(TodoError::new(TodoErrorKind::Invalid, "a todo needs a `title`"));
    }
    check_chars("title", &new.title, MAX_TITLE_CHARS)?;
    check_chars("description", &new.description, MAX_DESCRIPTION_CHARS)?;
    check_number("labels", new.labels.len(), MAX_LABELS)?;
    check_number("skills", new.skills.len(), MAX_LABELS)?;
    for label in new.labels.iter().chain(&new.skills).chain(&new.assignee) {
        check_chars("labels, skills and assignee", label, MAX_LABEL_CHARS)?;
    }
    check_number("deps", new.deps.as_ref().map_or(0, Vec::len), MAX_DEPS)
}

/// Code of a todo, such as `T001`.
#[must_use]
pub fn code_of(number: u32) -> String {
    format!("T{number:03}")
}

/// Number of the todo that a code names, such as 1 for `T001`; `None` if it is no code.
#[must_use]
pub fn code_number(code: &str) -> Option<u32> {
    let digits = code.trim().strip_prefix(['T', 't'])?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number > 0)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoNote {
    pub kind: TodoNoteKind,
    pub text: String,
    /// Name of the author.
    pub by: String,
    pub at: Timestamp,
}

/// A todo of a list. Stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    /// Position in the list, from 1.
    pub number: u32,
    pub title: String,
    #[serde(default)]
    pub description: String,
    #[serde(rename = "type")]
    pub kind: TodoKind,
    pub status: TodoStatus,
    pub priority: i32,
    #[serde(default)]
    pub labels: Vec<String>,
    #[serde(default)]
    pub skills: Vec<String>,
    /// Subagent that does it; none for the agent itself.
    #[serde(default)]
    pub assignee: Option<String>,
    /// Numbers of todos to be finished before. A bench waits for all tasks before it, too.
    #[serde(default)]
    pub deps: Vec<u32>,
    #[serde(default)]
    pub estimate: TodoEstimate,
    /// How often it was begun.
    #[serde(default)]
    pub attempts: u32,
    /// Reason of the newest failure.
    #[serde(default)]
    pub last_error: String,
    #[serde(default)]
    pub notes: Vec<TodoNote>,
    pub created_by: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// A conversation that had read text from outside wrote some of its texts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

impl Todo {
    #[must_use]
    pub fn code(&self) -> String {
        code_of(self.number)
    }

    /// Whether those that depend on this todo may begin.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.status, TodoStatus::Complete | TodoStatus::Done)
    }
}

/// Number of todos of a list in each status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TodoCounts {
    pub wait: u32,
    pub in_progress: u32,
    pub complete: u32,
    pub failed: u32,
    pub done: u32,
    pub check_failed: u32,
}

impl TodoCounts {
    pub(super) const fn of(&mut self, status: TodoStatus) -> &mut u32 {
        match status {
            TodoStatus::Wait => &mut self.wait,
            TodoStatus::InProgress => &mut self.in_progress,
            TodoStatus::Complete => &mut self.complete,
            TodoStatus::Failed => &mut self.failed,
            TodoStatus::Done => &mut self.done,
            TodoStatus::CheckFailed => &mut self.check_failed,
        }
    }

    #[must_use]
    pub const fn total(&self) -> u32 {
        self.unfinished() + self.done
    }

    /// Number of todos that are not `DONE`.
    #[must_use]
    pub const fn unfinished(&self) -> u32 {
        self.wait + self.in_progress + self.complete + self.failed + self.check_failed
    }
}

impl fmt::Display for TodoCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} done", self.done, self.total())?;
        let others = [
            (self.in_progress, "in progress"),
            (self.complete, "to be checked"),
            (self.failed, "failed"),
            (self.check_failed, "failed the check"),
            (self.wait, "waiting"),
        ];
        for (number, what) in others.into_iter().filter(|(number, _)| *number > 0) {
            write!(f, ", {number} {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_was_written_and_nothing_else_is() {
        for number in [1, 42, 999, 1_000, MAX_TODOS] {
            assert_eq!(code_number(&code_of(number)), Some(number));
        }
        assert_eq!(code_number(" t7 "), Some(7));
        for text in ["", "T", "T0", "T-1", "T+1", "1", "T99999999999", "Tx", "TT1"] {
            assert_eq!(code_number(text), None, "{text}");
        }
    }
}
