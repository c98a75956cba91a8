//! `holdfast todo`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    ApplyTodosRequest, GetTodoRequest, GetTodoViewRequest, ListTodosRequest, Todo, TodoCounts,
};
use serde_json::{Value, json};

use super::super::option_values;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] = ["code", "status", "type", "title", "deps", "assignee"];

#[derive(Debug, Subcommand)]
pub enum Todos {
    /// List todos in the order of their list
    Ls {
        /// Id or key of the session
        session: String,
        /// Show only todos of this status: WAIT, IN_PROGRESS, COMPLETE, FAILED, DONE, CHECK_FAILED
        #[arg(long, default_value = "", hide_default_value = true)]
        status: String,
        /// Show only todos after this one, by its code
        #[arg(long, default_value = "", hide_default_value = true)]
        after: String,
        /// Maximum number of todos to list, at most 128
        #[arg(long, default_value_t = 32)]
        limit: u32,
    },
    /// List todos that are neither complete nor done
    Pending {
        /// Id or key of the session
        session: String,
        /// Show only todos after this one, by its code
        #[arg(long, default_value = "", hide_default_value = true)]
        after: String,
        /// Maximum number of todos to list, at most 128
        #[arg(long, default_value_t = 32)]
        limit: u32,
    },
    /// List todos that are in progress
    Current {
        /// Id or key of the session
        session: String,
    },
    /// Show one todo with its notes
    Show(TodoAddress),
    /// Print the code of the todo that can be done next
    Next {
        /// Id or key of the session
        session: String,
    },
    /// Print the list as prompts show it
    Prompt {
        /// Id or key of the session
        session: String,
        /// Print this todo as a step that works on it is shown it
        code: Option<String>,
        /// Maximum length of the list, in tokens
        #[arg(long, default_value_t = 1600)]
        budget: u32,
    },
    /// Add a todo at the end of the list
    Add(NewTodo),
    /// Set a todo to IN_PROGRESS
    Start(Change),
    /// Set a todo to COMPLETE: it is done and not yet checked
    Done(Change),
    /// Set a todo to FAILED
    Fail(Change),
    /// Set a todo to DONE: it is checked
    Pass(Change),
    /// Set a todo to CHECK_FAILED
    Reject(Change),
    /// Set a todo to WAIT again
    Reset(Change),
    /// Change the priority of a todo
    Priority {
        #[command(flatten)]
        todo: TodoAddress,
        /// The smaller, the more urgent
        #[arg(allow_negative_numbers = true)]
        priority: i32,
    },
    /// Add a note to a todo
    Note {
        #[command(flatten)]
        todo: TodoAddress,
        /// The note: text, `@file`, or `-` for stdin
        text: String,
        /// What it is: result, error or note
        #[arg(long, default_value = "note", value_parser = ["result", "error", "note"])]
        kind: String,
    },
    /// Remove all todos of the list
    Clear {
        /// Id or key of the session
        session: String,
    },
}

#[derive(Debug, Args)]
pub struct TodoAddress {
    /// Id or key of the session
    session: String,
    /// Code of the todo, such as T001
    code: String,
}

#[derive(Debug, Args)]
pub struct Change {
    #[command(flatten)]
    todo: TodoAddress,
    /// Why, at most 1,024 characters
    #[arg(long, default_value = "set by hand")]
    reason: String,
}

#[derive(Debug, Args)]
pub struct NewTodo {
    /// Id or key of the session
    session: String,
    /// What is to be done, at most 256 characters
    title: String,
    /// How: text, `@file`, or `-` for stdin
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// A check of the whole work, which waits for all tasks
    #[arg(long)]
    bench: bool,
    /// Codes of todos to be finished before, separated by commas; by default the task before it
    #[arg(long, value_delimiter = ',')]
    after: Option<Vec<String>>,
    /// Label of the subagent that does it
    #[arg(long)]
    assignee: Option<String>,
    /// The smaller, the more urgent
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
}

impl Todos {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Ls { session, status, after, limit } => {
                let pending = false;
                let request = ListTodosRequest { session, status, pending, after, limit };
                list(request, client, screen).await
            }
            Self::Pending { session, after, limit } => {
                let status = String::new();
                let request = ListTodosRequest { session, status, pending: true, after, limit };
                list(request, client, screen).await
            }
            Self::Current { session } => {
                let status = "IN_PROGRESS".to_owned();
                let request = ListTodosRequest { session, status, ..Default::default() };
                list(request, client, screen).await
            }
            Self::Show(named) => show(named, client, screen).await,
            Self::Next { session } => next(session, client, screen).await,
            Self::Prompt { session, code: None, budget } => {
                let request = GetTodoViewRequest { session, budget_tokens: budget };
                let answer = client.work().get_todo_view(client.request(request)).await;
                screen.print(&format!("{}\n", client.answer(answer)?.text))
            }
            Self::Prompt { session, code: Some(code), .. } => {
                let request = client.request(GetTodoRequest { session, code });
                let found = client.answer(client.work().get_todo(request).await)?;
                screen.print(&format!("{}\n", found.details))
            }
            Self::Add(new) => {
                let session = new.session.clone();
                apply(session, json!([new.operation()?]), "added", client, screen).await
            }
            Self::Start(change) => change.apply("IN_PROGRESS", client, screen).await,
            Self::Done(change) => change.apply("COMPLETE", client, screen).await,
            Self::Fail(change) => change.apply("FAILED", client, screen).await,
            Self::Pass(change) => change.apply("DONE", client, screen).await,
            Self::Reject(change) => change.apply("CHECK_FAILED", client, screen).await,
            Self::Reset(change) => change.apply("WAIT", client, screen).await,
            Self::Priority { todo: TodoAddress { session, code }, priority } => {
                let update = json!([{"op": "update", "code": code, "priority": priority}]);
                apply(session, update, "changed", client, screen).await
            }
            Self::Note { todo: TodoAddress { session, code }, text, kind } => {
                let text = option_values::text(&text)?;
                let note = json!([{"op": "note", "code": code, "kind": kind, "text": text}]);
                apply(session, note, "noted", client, screen).await
            }
            Self::Clear { session } => {
                let nothing = json!([{"op": "init", "mode": "replace", "items": []}]);
                apply(session, nothing, "cleared", client, screen).await
            }
        }
    }
}

impl Change {
    async fn apply(self, status: &str, client: &Client, screen: &Screen) -> Result<(), Error> {
        let TodoAddress { session, code } = self.todo;
        let update =
            json!([{"op": "update", "code": code, "to_status": status, "reason": self.reason}]);
        apply(session, update, status, client, screen).await
    }
}

impl NewTodo {
    fn operation(self) -> Result<Value, Error> {
        let mut item = json!({
            "title": self.title,
            "description": option_values::text(&self.description)?,
            "type": if self.bench { "bench" } else { "task" },
            "priority": self.priority,
        });
        if let Some(deps) = self.after {
            item["deps"] = json!(deps);
        }
        if let Some(assignee) = self.assignee {
            item["assignee"] = json!(assignee);
        }
        Ok(json!({"op": "init", "mode": "merge", "items": [item]}))
    }
}

async fn list(request: ListTodosRequest, client: &Client, screen: &Screen) -> Result<(), Error> {
    let listed = client.answer(client.work().list_todos(client.request(request)).await)?;
    screen.list(&COLUMNS, listed.todos.iter().map(view).collect())?;
    if !listed.next.is_empty() {
        screen.aside(&format!("more with --after {}", listed.next))?;
    }
    Ok(())
}

async fn show(named: TodoAddress, client: &Client, screen: &Screen) -> Result<(), Error> {
    let TodoAddress { session, code } = named;
    let request = client.request(GetTodoRequest { session, code });
    let found = client.answer(client.work().get_todo(request).await)?;
    screen.one(&COLUMNS, &view(&found.todo.unwrap_or_default()))
}

async fn next(session: String, client: &Client, screen: &Screen) -> Result<(), Error> {
    let request = client.request(GetTodoViewRequest { session, budget_tokens: 0 });
    let view = client.answer(client.work().get_todo_view(request).await)?;
    let sentence = match (view.next.as_str(), view.ready_bench.as_str()) {
        ("", "") => "nothing can be done now".to_owned(),
        ("", bench) => format!("{bench} (bench: to be checked)"),
        (next, _) => next.to_owned(),
    };
    let counts = counts(&view.counts.unwrap_or_default());
    let thing = json!({"next": view.next, "ready_bench": view.ready_bench, "counts": counts});
    screen.done(&sentence, &thing)
}

/// Applies one operation.
async fn apply(
    session: String,
    operations: Value,
    done: &str,
    client: &Client,
    screen: &Screen,
) -> Result<(), Error> {
    let operations = operations.to_string();
    let request = ApplyTodosRequest { session, operations, request_id: String::new() };
    let answer = client.answer(client.work().apply_todos(client.request(request)).await)?;
    match answer.results.into_iter().find(|result| !result.applied) {
        Some(refused) if refused.error == "NOT_FOUND" => Err(Error::NotFound(refused.message)),
        Some(refused) => Err(Error::Usage(format!("{}: {}", refused.error, refused.message))),
        None => screen.done(done, &json!({"applied": true})),
    }
}

fn counts(counts: &TodoCounts) -> Value {
    json!({
        "wait": counts.wait,
        "in_progress": counts.in_progress,
        "complete": counts.complete,
        "failed": counts.failed,
        "done": counts.done,
        "check_failed": counts.check_failed,
    })
}

fn view(todo: &Todo) -> Value {
    let notes = todo.notes.iter().map(|note| {
        json!({
            "kind": note.kind,
            "text": note.text,
            "by": note.by,
            "at": time(note.at.as_ref()),
        })
    });
    json!({
        "code": todo.code,
        "title": todo.title,
        "description": todo.description,
        "type": todo.r#type,
        "status": todo.status,
        "priority": todo.priority,
        "labels": todo.labels,
        "skills": todo.skills,
        "assignee": todo.assignee,
        "deps": todo.deps,
        "attempts": todo.attempts,
        "last_error": todo.last_error,
        "notes": notes.collect::<Vec<_>>(),
        "created_by": todo.created_by,
        "created_at": time(todo.created_at.as_ref()),
        "updated_at": time(todo.updated_at.as_ref()),
        "estimated_hp": todo.estimated_hp,
        "estimated_walltime_ms": todo.estimated_walltime_ms,
        "estimated_tokens": todo.estimated_tokens,
    })
}
