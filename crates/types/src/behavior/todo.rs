//! Changes to a todo list (spec TDO-007).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TodoStatus {
    /// Not begun.
    #[default]
    Wait,
    InProgress,
    /// Finished by the behaviour that did it, and not checked.
    Complete,
    Failed,
    /// Checked.
    Done,
    CheckFailed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoKind {
    #[default]
    #[serde(alias = "Task")]
    Task,
    /// A check of the whole work, after all tasks.
    #[serde(alias = "Bench")]
    Bench,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoNoteKind {
    Result,
    Error,
    #[default]
    Note,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoInit {
    /// The list has these todos only.
    #[default]
    Replace,
    /// They are added behind the existing ones.
    Merge,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TodoEstimate {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walltime_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTodo {
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, rename = "type")]
    pub kind: TodoKind,
    /// The smaller, the more urgent.
    #[serde(default)]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Subagent that does it; none for the agent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Codes of todos to be finished before; none given means the todo before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deps: Option<Vec<String>>,
    #[serde(default)]
    pub estimate: TodoEstimate,
}

/// A change to a todo list. Todos are named by codes such as `T001`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum TodoOperation {
    Init {
        #[serde(default)]
        mode: TodoInit,
        items: Vec<NewTodo>,
    },
    Update {
        #[serde(alias = "id")]
        code: String,
        /// The new status; `None` keeps the present one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_status: Option<TodoStatus>,
        /// The smaller, the more urgent; `None` keeps it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<i32>,
        /// Of a change of status, for which it is required.
        #[serde(default)]
        reason: String,
    },
    Note {
        #[serde(alias = "id")]
        code: String,
        #[serde(default)]
        kind: TodoNoteKind,
        text: String,
    },
}
