//! The `todo` tool: the list of what a conversation has to do (spec TDO-011).

use std::{future::Future, sync::Arc};

use holdfast_types::{
    Effect, NewTodo, TodoInit, TodoKind, TodoNoteKind, TodoOperation, TodoStatus,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Call, Tool, ToolError};

/// Access of the tool to the list. An error is an internal failure: the turn ends and may be
/// retried.
pub trait Todos: Send + Sync + 'static {
    /// Executes the request, once for the same `call.key`. The inner error is a reason for the
    /// model.
    fn todo(
        &self,
        call: &Call,
        request: TodoRequest,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TodoRequest {
    List,
    /// One todo with its notes, by its code.
    Show(String),
    Change(TodoOperation),
}

/// The todo list of this conversation, for work with several steps. `list` and `show` it; `plan`
/// makes it anew and `add` appends, both with `items`; `set` changes a todo's status with a
/// reason, or its priority; `note` adds a result, an error or a note to one. A todo goes from WAIT to IN_PROGRESS to COMPLETE,
/// and a check makes it DONE or CHECK_FAILED. Begin a todo before you work on it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TodoInput {
    action: Action,
    /// `plan`, `add`: the todos, in their order.
    #[serde(default)]
    items: Vec<Item>,
    /// Which todo, as `T001`.
    #[serde(default, alias = "id")]
    code: Option<String>,
    /// `set`: the new status; without it, the status stays.
    #[serde(default)]
    status: Option<Status>,
    /// `set`: the new priority; the smaller, the more urgent.
    #[serde(default)]
    priority: Option<i32>,
    /// `set`: why the status changes.
    #[serde(default)]
    reason: String,
    /// `note`: what to keep.
    #[serde(default)]
    text: String,
    /// `note`: what it is.
    #[serde(default)]
    kind: Option<NoteKind>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    List,
    Show,
    Plan,
    Add,
    Set,
    Note,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Item {
    title: String,
    #[serde(default)]
    description: String,
    /// `bench` is a check of the whole work, after all tasks.
    #[serde(default, rename = "type")]
    kind: Option<Kind>,
    /// Codes of todos to be finished before; without it, the task before.
    #[serde(default)]
    deps: Option<Vec<String>>,
    /// Names of skills to use.
    #[serde(default)]
    skills: Vec<String>,
    /// Label of the subagent that does it.
    #[serde(default)]
    assignee: Option<String>,
    /// The smaller, the more urgent.
    #[serde(default)]
    priority: i32,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Kind {
    Task,
    Bench,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
enum Status {
    Wait,
    InProgress,
    Complete,
    Failed,
    Done,
    CheckFailed,
}

impl From<Status> for TodoStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Wait => Self::Wait,
            Status::InProgress => Self::InProgress,
            Status::Complete => Self::Complete,
            Status::Failed => Self::Failed,
            Status::Done => Self::Done,
            Status::CheckFailed => Self::CheckFailed,
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum NoteKind {
    Result,
    Error,
    Note,
}

#[derive(Debug)]
pub struct TodoTool<S>(pub Arc<S>);

impl<S: Todos> Tool for TodoTool<S> {
    const NAME: &'static str = "todo";
    const EFFECT: Effect = Effect::Writes;
    type Input = TodoInput;

    async fn call(&self, call: Call, input: TodoInput) -> Result<String, ToolError> {
        let request = parse_request(input).map_err(ToolError::Tell)?;
        self.0.todo(&call, request).await?.map_err(ToolError::Tell)
    }
}

/// Converts an input to a request, or explains what is missing.
fn parse_request(input: TodoInput) -> Result<TodoRequest, String> {
    let TodoInput { action, items, code, status, priority, reason, text, kind } = input;
    let code = || code.filter(|code| !code.trim().is_empty()).ok_or("`code` says which todo");
    let init = |mode: TodoInit| {
        if items.is_empty() {
            return Err("`items` are the todos".to_owned());
        }
        let items = items.into_iter().map(new_todo).collect();
        Ok(TodoRequest::Change(TodoOperation::Init { mode, items }))
    };
    match action {
        Action::List => Ok(TodoRequest::List),
        Action::Show => Ok(TodoRequest::Show(code()?)),
        Action::Plan => init(TodoInit::Replace),
        Action::Add => init(TodoInit::Merge),
        Action::Set => {
            if status.is_none() && priority.is_none() {
                return Err("`status` is what it becomes, or `priority`".to_owned());
            }
            let to_status = status.map(TodoStatus::from);
            let code = code()?;
            Ok(TodoRequest::Change(TodoOperation::Update { code, to_status, priority, reason }))
        }
        Action::Note => {
            let kind = match kind {
                Some(NoteKind::Result) => TodoNoteKind::Result,
                Some(NoteKind::Error) => TodoNoteKind::Error,
                Some(NoteKind::Note) | None => TodoNoteKind::Note,
            };
            let code = code()?;
            Ok(TodoRequest::Change(TodoOperation::Note { code, kind, text }))
        }
    }
}

fn new_todo(item: Item) -> NewTodo {
    NewTodo {
        title: item.title,
        description: item.description,
        kind: match item.kind {
            Some(Kind::Bench) => TodoKind::Bench,
            Some(Kind::Task) | None => TodoKind::Task,
        },
        priority: item.priority,
        skills: item.skills,
        assignee: item.assignee,
        deps: item.deps,
        ..NewTodo::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(input: serde_json::Value) -> Result<TodoRequest, String> {
        parse_request(serde_json::from_value(input).unwrap())
    }

    #[test]
    fn each_action_becomes_its_operation() {
        let item = NewTodo { title: "a".to_owned(), kind: TodoKind::Bench, ..NewTodo::default() };
        let init = |mode| TodoOperation::Init { mode, items: vec![item.clone()] };
        let items = json!([{"title": "a", "type": "bench"}]);
        for (input, wanted) in [
            (json!({"action": "plan", "items": items}), init(TodoInit::Replace)),
            (json!({"action": "add", "items": items}), init(TodoInit::Merge)),
            (
                json!({"action": "set", "code": "T001", "status": "CHECK_FAILED", "reason": "r"}),
                TodoOperation::Update {
                    code: "T001".to_owned(),
                    to_status: Some(TodoStatus::CheckFailed),
                    priority: None,
                    reason: "r".to_owned(),
                },
            ),
            (
                json!({"action": "set", "code": "T001", "priority": -1}),
                TodoOperation::Update {
                    code: "T001".to_owned(),
                    to_status: None,
                    priority: Some(-1),
                    reason: String::new(),
                },
            ),
            (
                json!({"action": "note", "id": "T001", "text": "x", "kind": "result"}),
                TodoOperation::Note {
                    code: "T001".to_owned(),
                    kind: TodoNoteKind::Result,
                    text: "x".to_owned(),
                },
            ),
        ] {
            assert_eq!(parse(input), Ok(TodoRequest::Change(wanted)));
        }
        assert_eq!(parse(json!({"action": "list"})), Ok(TodoRequest::List));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (input, told) in [
            (json!({"action": "show"}), "`code`"),
            (json!({"action": "plan"}), "`items`"),
            (json!({"action": "set", "code": "T001"}), "`status`"),
            (json!({"action": "note", "text": "x"}), "`code`"),
        ] {
            assert!(parse(input).unwrap_err().contains(told), "{told}");
        }
    }
}
