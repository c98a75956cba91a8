//! The part of a list that prompts show (spec TDO-009).

use std::fmt::Write as _;

use holdfast_types::{TodoKind, TodoStatus};

use super::{
    list::{TodoList, note_name, shown},
    model::{Todo, TodoCounts, code_number, code_of},
    rules::status_name,
};

/// Newest notes that the details of a todo have.
const SHOWN_NOTES: usize = 8;

/// What a prompt needs of a list, whatever the list's size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TodoView {
    pub counts: TodoCounts,
    /// The first todos of each status, in the order of the list.
    pub(crate) todos: Vec<Todo>,
    /// Task of the agent itself that can be worked on.
    pub(crate) next: Option<String>,
    /// Bench whose tasks are finished.
    pub(crate) bench: Option<String>,
}

/// Estimates the tokens of a text: one for four ASCII characters, or for one other.
pub(crate) fn tokens(text: &str) -> usize {
    let quarters: usize = text.chars().map(|c| if c.is_ascii() { 1 } else { 4 }).sum();
    quarters / 4 + 1
}

impl TodoView {
    /// View of a list that is not stored; of a stored one [`todo_view`](crate::todo_view) reads what
    /// is needed.
    #[must_use]
    pub fn of(list: &TodoList) -> Self {
        let is_unblocked = |todo: &&Todo| {
            let is_open = |other: &Todo| {
                !other.is_finished()
                    && match todo.kind {
                        TodoKind::Task => todo.deps.contains(&other.number),
                        TodoKind::Bench => {
                            other.kind == TodoKind::Task && other.number < todo.number
                        }
                    }
            };
            !list.todos().any(is_open)
        };
        let first = |kind: TodoKind, status: TodoStatus| {
            let of_status = list.todos().filter(|todo| todo.kind == kind && todo.status == status);
            let ready = of_status.filter(|todo| todo.assignee.is_none()).filter(is_unblocked);
            ready.min_by_key(|todo| (todo.priority, todo.number)).map(Todo::code)
        };
        let statuses = [TodoStatus::InProgress, TodoStatus::CheckFailed, TodoStatus::Wait];
        Self {
            counts: list.counts,
            todos: list.todos().cloned().collect(),
            next: statuses.into_iter().find_map(|status| first(TodoKind::Task, status)),
            bench: first(TodoKind::Bench, TodoStatus::Wait),
        }
    }

    /// The list for a prompt, within a budget; empty if there are no todos. If not all fit, those
    /// that are being worked on come first, and finished ones are left out.
    #[must_use]
    pub fn render(&self, budget_tokens: usize) -> String {
        if self.counts.total() == 0 {
            return String::new();
        }
        let mut text = format!("Todos: {}.", self.counts);
        if let Some(next) = &self.next {
            _ = write!(text, " To do next: {next}.");
        }
        if let Some(bench) = &self.bench {
            _ = write!(text, " Bench to be checked: {bench}.");
        }
        let mut by_urgency: Vec<&Todo> = self.todos.iter().collect();
        by_urgency.sort_by_key(|todo| {
            let is_next = self.next.as_deref().and_then(code_number) == Some(todo.number);
            (!is_next, urgency(todo.status), todo.number)
        });
        // Room for the line that says how many are left out.
        let mut left = budget_tokens.saturating_sub(tokens(&text) + 12);
        let mut lines: Vec<(u32, String)> = Vec::new();
        for todo in by_urgency {
            let line = line_of(todo);
            let Some(rest) = left.checked_sub(tokens(&line) + 1) else { break };
            left = rest;
            lines.push((todo.number, line));
        }
        lines.sort();
        let omitted = (self.counts.total() as usize).saturating_sub(lines.len());
        for (_, line) in lines {
            text.push('\n');
            text.push_str(&line);
        }
        if omitted > 0 {
            _ = write!(text, "\n({omitted} more are not shown)");
        }
        text
    }

    /// Everything about one todo, for the input of a step; `None` if there is no such todo, or if it
    /// is not among the first of its status.
    #[must_use]
    pub fn details(&self, code: &str) -> Option<String> {
        self.find(code).map(details_of)
    }

    /// Skills that a todo names; empty if there is no such todo, or if it is not among the first of
    /// its status.
    #[must_use]
    pub fn skills(&self, code: &str) -> &[String] {
        self.find(code).map_or(&[], |todo| &todo.skills)
    }

    /// Subagents whose unfinished todos this one waits for.
    #[must_use]
    pub fn awaited_subagents(&self, code: &str) -> Vec<&str> {
        let Some(todo) = self.find(code) else { return Vec::new() };
        let is_awaited = |other: &&Todo| {
            todo.deps.contains(&other.number)
                && matches!(other.status, TodoStatus::Wait | TodoStatus::InProgress)
        };
        let awaited = self.todos.iter().filter(is_awaited);
        awaited.filter_map(|other| other.assignee.as_deref()).collect()
    }

    fn find(&self, code: &str) -> Option<&Todo> {
        let number = code_number(code)?;
        self.todos.iter().find(|todo| todo.number == number)
    }

    /// Code of the task that the agent itself can work on: one that it has begun, or else the first
    /// by priority that waits for no other.
    #[must_use]
    pub fn next_ready(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Code of the first bench whose tasks are all finished.
    #[must_use]
    pub fn ready_bench(&self) -> Option<&str> {
        self.bench.as_deref()
    }

    /// Whether one of its todos may repeat text from outside.
    #[must_use]
    pub fn has_outside_text(&self) -> bool {
        self.todos.iter().any(|todo| todo.outside)
    }

    /// Number of todos that are not `DONE`.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.counts.unfinished() as usize
    }
}

const fn urgency(status: TodoStatus) -> u8 {
    match status {
        TodoStatus::InProgress => 0,
        TodoStatus::CheckFailed => 1,
        TodoStatus::Failed => 2,
        TodoStatus::Complete => 3,
        TodoStatus::Wait => 4,
        TodoStatus::Done => 5,
    }
}

fn line_of(todo: &Todo) -> String {
    let mut line = format!("- {} {}", todo.code(), status_name(todo.status));
    if todo.kind == TodoKind::Bench {
        line.push_str(" bench");
    }
    _ = write!(line, ": {}", shown(&todo.title));
    let mut facts: Vec<String> = Vec::new();
    if !todo.deps.is_empty() && !todo.is_finished() {
        let codes: Vec<String> = todo.deps.iter().take(4).map(|dep| code_of(*dep)).collect();
        facts.push(format!("after {}", codes.join(", ")));
    }
    if let Some(assignee) = &todo.assignee {
        facts.push(format!("assigned to {}", shown(assignee)));
    }
    if matches!(todo.status, TodoStatus::Failed | TodoStatus::CheckFailed) {
        facts.push(shown(&todo.last_error));
    }
    if !facts.is_empty() {
        _ = write!(line, " ({})", facts.join("; "));
    }
    line
}

/// All that is known of a todo.
#[must_use]
pub fn details_of(todo: &Todo) -> String {
    let mut text = format!("{} {}: {}", todo.code(), status_name(todo.status), shown(&todo.title));
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            _ = write!(text, "\n{name}: {value}");
        }
    };
    field("Type", if todo.kind == TodoKind::Bench { "bench" } else { "task" });
    field("Description", &todo.description);
    field("Skills", &todo.skills.join(", "));
    field("Labels", &todo.labels.join(", "));
    field("Assigned to", todo.assignee.as_deref().unwrap_or_default());
    let deps: Vec<String> = todo.deps.iter().map(|dep| code_of(*dep)).collect();
    field("After", &deps.join(", "));
    if todo.attempts > 0 {
        field("Attempts", &todo.attempts.to_string());
    }
    field("Last error", &todo.last_error);
    let first = todo.notes.len().saturating_sub(SHOWN_NOTES);
    for note in &todo.notes[first..] {
        let by = format!("{} by {}", note_name(note.kind), shown(&note.by));
        field(&by, &note.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn todo(number: u32, status: TodoStatus) -> Todo {
        Todo {
            number,
            title: format!("step {number} {}", "word ".repeat(10)),
            description: "how".to_owned(),
            kind: TodoKind::Task,
            status,
            priority: 0,
            labels: Vec::new(),
            skills: vec!["pdf".to_owned()],
            assignee: None,
            deps: Vec::new(),
            estimate: holdfast_types::TodoEstimate::default(),
            attempts: 1,
            last_error: String::new(),
            notes: Vec::new(),
            created_by: "ada".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            outside: false,
        }
    }

    #[test]
    fn a_long_list_keeps_to_its_budget_and_shows_what_is_being_done() {
        let mut todos: Vec<Todo> = (1..=200).map(|n| todo(n, TodoStatus::Wait)).collect();
        todos[149].status = TodoStatus::InProgress;
        let counts = TodoCounts { wait: 199, in_progress: 1, ..TodoCounts::default() };
        let next = Some("T150".to_owned());
        let view = TodoView { counts, todos, next, bench: None };

        for budget in [100, 400, 1_600] {
            let text = view.render(budget);
            assert!(tokens(&text) <= budget, "{} of {budget}", tokens(&text));
            assert!(text.contains("- T150 IN_PROGRESS: step 150"), "{text}");
            assert!(text.contains("more are not shown"), "{text}");
        }
        assert_eq!(TodoView::default().render(1_600), "");
    }

    #[test]
    fn a_todo_waits_for_the_subagents_whose_todos_come_before_it() {
        let assigned = |number, status, assignee: Option<&str>| Todo {
            assignee: assignee.map(str::to_owned),
            ..todo(number, status)
        };
        let view = TodoView {
            todos: vec![
                assigned(1, TodoStatus::InProgress, Some("painter")),
                assigned(2, TodoStatus::Complete, Some("digger")),
                assigned(3, TodoStatus::Wait, None),
                assigned(4, TodoStatus::Failed, Some("cook")),
                Todo { deps: vec![1, 2, 3, 4], ..todo(5, TodoStatus::Wait) },
            ],
            ..TodoView::default()
        };

        assert_eq!(view.awaited_subagents("T005"), ["painter"]);
        assert!(view.awaited_subagents("T001").is_empty());
        assert_eq!(view.skills("T005"), ["pdf"]);
    }

    #[test]
    fn the_details_tell_how_and_with_what_it_is_done() {
        let view = TodoView { todos: vec![todo(1, TodoStatus::Wait)], ..TodoView::default() };

        let details = view.details("T001").unwrap();

        assert!(details.contains("Description: how\nSkills: pdf\nAttempts: 1"), "{details}");
        assert_eq!(view.details("T002"), None);
    }
}
