//! A list of todos, and how operations change it.
//!
//! The list may hold a part of the todos only: those that the operations name, and what these wait
//! for. Whatever an operation needs is then there, and the result is that of the whole list.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::{NewTodo, TodoInit, TodoKind, TodoNoteKind, TodoOperation, TodoStatus};
use jiff::Timestamp;

use super::{
    model::{
        MAX_DEPS, MAX_NOTE_CHARS, MAX_NOTES, MAX_REASON_CHARS, MAX_TODOS, Todo, TodoCounts,
        TodoError, TodoErrorKind, TodoNote, check_chars, check_new, check_number, code_number,
        code_of,
    },
    rules::{check_assignee, check_init, check_priority, check_transition, is_bound, status_name},
};
use crate::Actor;

/// Characters of a reason or a note that a change shows.
const SHOWN_CHARS: usize = 200;

/// What an operation has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Codes of the todos; of a new list the first 32.
    pub codes: Vec<String>,
    /// One line for people and prompts.
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TodoList {
    todos: BTreeMap<u32, Todo>,
    /// Highest number; all numbers from 1 are in use.
    pub(crate) last_number: u32,
    /// Number of the last todo that is a task; 0 if there is none.
    pub(crate) last_task: u32,
    pub(crate) counts: TodoCounts,
    /// Numbers of the todos that differ from what was loaded.
    pub(crate) changed: BTreeSet<u32>,
    /// Whether the loaded todos are no longer part of the list.
    pub(crate) is_replaced: bool,
}

impl TodoList {
    /// A part of a list.
    pub(crate) fn partial(
        (last_number, last_task): (u32, u32),
        counts: TodoCounts,
        todos: Vec<Todo>,
    ) -> Self {
        let todos = todos.into_iter().map(|todo| (todo.number, todo)).collect();
        Self { todos, last_number, last_task, counts, ..Self::default() }
    }

    /// Todos in their order.
    pub fn todos(&self) -> impl Iterator<Item = &Todo> {
        self.todos.values()
    }

    /// Writes the whole list anew when it is stored.
    pub(crate) fn replace_stored(&mut self) {
        self.is_replaced = true;
        self.changed = self.todos.keys().copied().collect();
    }

    pub(crate) fn changed_todos(&self) -> impl Iterator<Item = &Todo> {
        self.changed.iter().filter_map(|number| self.todos.get(number))
    }

    /// Applies an operation, or leaves the list as it is.
    pub fn apply(
        &mut self,
        actor: &Actor,
        operation: &TodoOperation,
        at: Timestamp,
    ) -> Result<Change, TodoError> {
        match operation {
            TodoOperation::Init { mode, items } => self.init(actor, *mode, items, at),
            TodoOperation::Update { code, to_status, priority, reason } => {
                self.update(actor, code, (*to_status, *priority, reason.trim()), at)
            }
            TodoOperation::Note { code, kind, text } => {
                self.note(actor, code, (*kind, text.trim()), at)
            }
        }
    }

    fn init(
        &mut self,
        actor: &Actor,
        mode: TodoInit,
        items: &[NewTodo],
        at: Timestamp,
    ) -> Result<Change, TodoError> {
        check_init(actor)?;
        let (first, mut last_task) = match mode {
            TodoInit::Replace => (1, 0),
            TodoInit::Merge => (self.last_number + 1, self.last_task),
        };
        let before = (first - 1) as usize;
        check_number("items", before + items.len(), MAX_TODOS as usize)?;
        let mut added = Vec::with_capacity(items.len());
        for (number, new) in (first..).zip(items) {
            check_new(new)?;
            let deps = self.dependencies(new, number, last_task)?;
            if new.kind == TodoKind::Task {
                last_task = number;
            }
            added.push(new_todo(new, (number, deps), actor, at));
        }
        if mode == TodoInit::Replace {
            *self = Self { is_replaced: true, ..Self::default() };
        }
        let done = match mode {
            TodoInit::Replace => "planned",
            TodoInit::Merge => "added",
        };
        let text = format!("{} {done}", counted(added.len(), "todo"));
        let codes = added.iter().take(32).map(Todo::code).collect();
        self.last_task = last_task;
        self.counts.wait += u32::try_from(added.len()).unwrap_or(MAX_TODOS);
        for todo in added {
            self.last_number = todo.number;
            self.changed.insert(todo.number);
            self.todos.insert(todo.number, todo);
        }
        Ok(Change { codes, text })
    }

    /// Numbers of the todos that a new one waits for: those that it names, which have to be before
    /// it, or the task before it.
    fn dependencies(
        &self,
        new: &NewTodo,
        number: u32,
        last_task: u32,
    ) -> Result<Vec<u32>, TodoError> {
        let Some(named) = &new.deps else {
            let waits_for_last = new.kind == TodoKind::Task && last_task > 0;
            return Ok(if waits_for_last { vec![last_task] } else { Vec::new() });
        };
        let mut deps = BTreeSet::new();
        for code in named {
            let dep = code_number(code).ok_or_else(|| TodoError::not_found(code))?;
            if dep >= number {
                let message = format!(
                    "`{}` cannot wait for `{}`: only for todos before it",
                    code_of(number),
                    code_of(dep)
                );
                return Err(TodoError::new(TodoErrorKind::Invalid, message));
            }
            deps.insert(dep);
        }
        Ok(deps.into_iter().collect())
    }

    fn update(
        &mut self,
        actor: &Actor,
        code: &str,
        (to, priority, reason): (Option<TodoStatus>, Option<i32>, &str),
        at: Timestamp,
    ) -> Result<Change, TodoError> {
        let todo = self.find(code)?;
        check_assignee(actor, todo)?;
        if to.is_none() && priority.is_none() {
            let message = "an update needs a `to_status` or a `priority`";
            return Err(TodoError::new(TodoErrorKind::Invalid, message));
        }
        if priority.is_some() {
            check_priority(actor)?;
        }
        check_chars("reason", reason, MAX_REASON_CHARS)?;
        if let Some(to) = to {
            self.check_status(actor, todo, to, reason)?;
        }
        let number = todo.number;
        let Some(todo) = self.todos.get_mut(&number) else {
            return Err(TodoError::not_found(code));
        };
        let mut changes = Vec::new();
        if let Some(to) = to {
            let from = std::mem::replace(&mut todo.status, to);
            if to == TodoStatus::InProgress {
                todo.attempts += 1;
            }
            if matches!(to, TodoStatus::Failed | TodoStatus::CheckFailed) {
                reason.clone_into(&mut todo.last_error);
            }
            *self.counts.of(from) -= 1;
            *self.counts.of(to) += 1;
            changes.push(format!("is {}", status_name(to)));
        }
        if let Some(priority) = priority {
            todo.priority = priority;
            changes.push(format!("has priority {priority}"));
        }
        todo.updated_at = at;
        todo.outside |= actor.has_outside_text;
        self.changed.insert(number);
        let code = code_of(number);
        let reason = if reason.is_empty() { String::new() } else { format!(": {}", shown(reason)) };
        let text = format!("{code} {}{reason}", changes.join(" and "));
        Ok(Change { codes: vec![code], text })
    }

    /// Refuses a change of status.
    fn check_status(
        &self,
        actor: &Actor,
        todo: &Todo,
        to: TodoStatus,
        reason: &str,
    ) -> Result<(), TodoError> {
        if reason.is_empty() {
            let message = "a change of status needs a `reason`";
            return Err(TodoError::new(TodoErrorKind::Invalid, message));
        }
        check_transition(actor, todo, to)?;
        if is_bound(actor) && begins_or_checks(todo, to) {
            self.check_unblocked(todo)?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        actor: &Actor,
        code: &str,
        (kind, text): (TodoNoteKind, &str),
        at: Timestamp,
    ) -> Result<Change, TodoError> {
        let todo = self.find(code)?;
        check_assignee(actor, todo)?;
        if text.is_empty() {
            return Err(TodoError::new(TodoErrorKind::Invalid, "a note needs a `text`"));
        }
        check_chars("text", text, MAX_NOTE_CHARS)?;
        check_number("notes", todo.notes.len() + 1, MAX_NOTES)?;
        let number = todo.number;
        let Some(todo) = self.todos.get_mut(&number) else {
            return Err(TodoError::not_found(code));
        };
        todo.notes.push(TodoNote { kind, text: text.to_owned(), by: actor.name.clone(), at });
        todo.updated_at = at;
        todo.outside |= actor.has_outside_text;
        self.changed.insert(number);
        let code = code_of(number);
        let text = format!("{code} {}: {}", note_name(kind), shown(text));
        Ok(Change { codes: vec![code], text })
    }

    fn find(&self, code: &str) -> Result<&Todo, TodoError> {
        let found = code_number(code).and_then(|number| self.todos.get(&number));
        found.ok_or_else(|| TodoError::not_found(code))
    }

    /// Refuses a todo that waits for others.
    fn check_unblocked(&self, todo: &Todo) -> Result<(), TodoError> {
        let is_before_bench = |other: &Todo| {
            todo.kind == TodoKind::Bench
                && other.kind == TodoKind::Task
                && other.number < todo.number
        };
        let blocking = self.todos().filter(|other| {
            !other.is_finished() && (todo.deps.contains(&other.number) || is_before_bench(other))
        });
        let codes: Vec<String> = blocking.take(5).map(Todo::code).collect();
        if codes.is_empty() {
            return Ok(());
        }
        let message = format!("`{}` waits for {}", todo.code(), codes.join(", "));
        Err(TodoError::new(TodoErrorKind::InvalidTransition, message))
    }
}

/// Whether a change needs what the todo waits for: its begin, or the check of a bench.
const fn begins_or_checks(todo: &Todo, to: TodoStatus) -> bool {
    match todo.kind {
        TodoKind::Task => matches!(to, TodoStatus::InProgress),
        TodoKind::Bench => matches!(to, TodoStatus::Done | TodoStatus::CheckFailed),
    }
}

fn new_todo(new: &NewTodo, (number, deps): (u32, Vec<u32>), by: &Actor, at: Timestamp) -> Todo {
    debug_assert!(deps.len() <= MAX_DEPS, "checked with the other sizes");
    Todo {
        number,
        title: new.title.trim().to_owned(),
        description: new.description.clone(),
        kind: new.kind,
        status: TodoStatus::Wait,
        priority: new.priority,
        labels: new.labels.clone(),
        skills: new.skills.clone(),
        assignee: new.assignee.clone().filter(|name| !name.is_empty()),
        deps,
        estimate: new.estimate,
        attempts: 0,
        last_error: String::new(),
        notes: Vec::new(),
        created_by: by.name.clone(),
        created_at: at,
        updated_at: at,
        outside: by.has_outside_text,
    }
}

/// Name of a kind of note, as models and people write it.
#[must_use]
pub const fn note_name(kind: TodoNoteKind) -> &'static str {
    match kind {
        TodoNoteKind::Result => "result",
        TodoNoteKind::Error => "error",
        TodoNoteKind::Note => "note",
    }
}

/// A number of things, in words: `1 todo`, `2 todos`.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A text on one line, shortened.
pub(crate) fn shown(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let line = line.join(" ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::BehaviorRole;
    use proptest::prelude::*;

    use super::*;
    use crate::ActorKind;

    const STATUSES: [TodoStatus; 6] = [
        TodoStatus::Wait,
        TodoStatus::InProgress,
        TodoStatus::Complete,
        TodoStatus::Failed,
        TodoStatus::Done,
        TodoStatus::CheckFailed,
    ];

    fn actor(kind: ActorKind, role: Option<BehaviorRole>) -> Actor {
        Actor { kind, name: "ada".to_owned(), role, has_outside_text: false }
    }

    fn agent(role: BehaviorRole) -> Actor {
        actor(ActorKind::RootAgent, Some(role))
    }

    fn new(title: &str) -> NewTodo {
        NewTodo { title: title.to_owned(), ..NewTodo::default() }
    }

    fn bench() -> NewTodo {
        NewTodo { kind: TodoKind::Bench, ..new("check all") }
    }

    fn init(items: Vec<NewTodo>) -> TodoOperation {
        TodoOperation::Init { mode: TodoInit::Replace, items }
    }

    fn update(code: &str, to_status: TodoStatus) -> TodoOperation {
        TodoOperation::Update {
            code: code.to_owned(),
            to_status: Some(to_status),
            priority: None,
            reason: "because".to_owned(),
        }
    }

    fn prioritize(code: &str, priority: i32) -> TodoOperation {
        TodoOperation::Update {
            code: code.to_owned(),
            to_status: None,
            priority: Some(priority),
            reason: String::new(),
        }
    }

    fn list(items: Vec<NewTodo>) -> TodoList {
        let mut list = TodoList::default();
        list.apply(&agent(BehaviorRole::Plan), &init(items), Timestamp::UNIX_EPOCH).unwrap();
        list
    }

    fn set(list: &mut TodoList, number: u32, status: TodoStatus, attempts: u32) {
        let todo = list.todos.get_mut(&number).unwrap();
        *list.counts.of(todo.status) -= 1;
        (todo.status, todo.attempts) = (status, attempts);
        *list.counts.of(status) += 1;
    }

    fn kind_of(result: Result<Change, TodoError>) -> Option<TodoErrorKind> {
        result.err().map(|error| error.kind)
    }

    /// The table of the specification (TDO-004), as it is written there.
    fn is_in_table(role: BehaviorRole, kind: TodoKind, from: TodoStatus, to: TodoStatus) -> bool {
        use TodoStatus as S;
        let allowed: &[(S, S)] = match (role, kind) {
            (BehaviorRole::Do, TodoKind::Task) => &[
                (S::Wait, S::InProgress),
                (S::InProgress, S::InProgress),
                (S::CheckFailed, S::InProgress),
                (S::InProgress, S::Complete),
                (S::InProgress, S::Failed),
            ],
            (BehaviorRole::Check, TodoKind::Task) => {
                &[(S::Complete, S::Done), (S::Complete, S::CheckFailed)]
            }
            (BehaviorRole::Check, TodoKind::Bench) => {
                &[(S::Wait, S::Done), (S::Wait, S::CheckFailed)]
            }
            (BehaviorRole::Adjust, _) => &[(S::Failed, S::Wait), (S::CheckFailed, S::Wait)],
            _ => &[],
        };
        allowed.contains(&(from, to))
    }

    #[test]
    fn each_role_makes_the_changes_of_its_table_and_no_others() {
        for role in [
            BehaviorRole::Route,
            BehaviorRole::Plan,
            BehaviorRole::Do,
            BehaviorRole::Check,
            BehaviorRole::Adjust,
            BehaviorRole::Other,
        ] {
            for (kind, new) in [(TodoKind::Task, new("a")), (TodoKind::Bench, bench())] {
                for from in STATUSES {
                    for to in STATUSES {
                        let mut list = list(vec![new.clone()]);
                        set(&mut list, 1, from, 2);
                        let before = list.clone();

                        let result =
                            list.apply(&agent(role), &update("T001", to), Timestamp::UNIX_EPOCH);

                        let wanted = (!is_in_table(role, kind, from, to))
                            .then_some(TodoErrorKind::InvalidTransition);
                        assert_eq!(kind_of(result), wanted, "{role:?} {kind:?} {from:?} {to:?}");
                        assert_eq!(wanted.is_some(), list == before);
                    }
                }
            }
        }
    }

    #[test]
    fn a_person_sets_any_todo_to_any_other_status_even_if_it_waits() {
        let user = actor(ActorKind::User, None);
        for from in STATUSES {
            for to in STATUSES {
                let mut list = list(vec![new("a"), new("b"), bench()]);
                for number in [2, 3] {
                    set(&mut list, number, from, 0);
                    let code = code_of(number);
                    let result = list.apply(&user, &update(&code, to), Timestamp::UNIX_EPOCH);
                    assert_eq!(result.is_ok(), from != to, "{from:?} {to:?}");
                }
            }
        }
    }

    #[test]
    fn a_task_waits_for_the_one_before_it_and_a_bench_for_all_tasks() {
        let mut list = list(vec![new("a"), new("b"), bench()]);
        let (doing, checking) = (agent(BehaviorRole::Do), agent(BehaviorRole::Check));
        let at = Timestamp::UNIX_EPOCH;

        let early = list.apply(&doing, &update("T002", TodoStatus::InProgress), at).unwrap_err();
        let bench = list.apply(&checking, &update("T003", TodoStatus::Done), at).unwrap_err();
        assert_eq!(early.to_string(), "INVALID_TRANSITION: `T002` waits for T001");
        assert_eq!(bench.to_string(), "INVALID_TRANSITION: `T003` waits for T001, T002");

        for number in [1, 2] {
            for to in [TodoStatus::InProgress, TodoStatus::Complete] {
                list.apply(&doing, &update(&code_of(number), to), at).unwrap();
            }
        }
        list.apply(&checking, &update("T003", TodoStatus::Done), at).unwrap();
        assert_eq!(list.counts, TodoCounts { complete: 2, done: 1, ..TodoCounts::default() });
    }

    #[test]
    fn a_todo_fails_after_several_attempts_only_and_keeps_why() {
        let mut list = list(vec![new("a")]);
        let (doing, at) = (agent(BehaviorRole::Do), Timestamp::UNIX_EPOCH);

        list.apply(&doing, &update("T001", TodoStatus::InProgress), at).unwrap();
        let early = list.apply(&doing, &update("T001", TodoStatus::Failed), at);
        list.apply(&doing, &update("T001", TodoStatus::InProgress), at).unwrap();
        list.apply(&doing, &update("T001", TodoStatus::Failed), at).unwrap();

        assert_eq!(kind_of(early), Some(TodoErrorKind::InvalidTransition));
        let todo = list.todos().next().unwrap();
        assert_eq!((todo.attempts, todo.last_error.as_str()), (2, "because"));
    }

    #[test]
    fn a_priority_is_changed_by_who_plans_or_adjusts_and_no_other() {
        let at = Timestamp::UNIX_EPOCH;
        for (actor, may) in [
            (actor(ActorKind::User, None), true),
            (actor(ActorKind::RootAgent, None), true),
            (agent(BehaviorRole::Plan), true),
            (agent(BehaviorRole::Adjust), true),
            (agent(BehaviorRole::Do), false),
            (agent(BehaviorRole::Check), false),
            (actor(ActorKind::SubAgent, None), false),
        ] {
            let assigned = NewTodo { assignee: Some("ada".to_owned()), ..new("a") };
            let mut list = list(vec![assigned, new("b")]);

            let changed = list.apply(&actor, &prioritize("T001", -3), at);

            let wanted = may.then(|| "T001 has priority -3".to_owned());
            assert_eq!(changed.ok().map(|change| change.text), wanted, "{actor:?}");
            let todo = list.todos().next().unwrap();
            let expected = (if may { -3 } else { 0 }, TodoStatus::Wait);
            assert_eq!((todo.priority, todo.status), expected);
        }
        let (mut list, user) = (list(vec![new("a")]), actor(ActorKind::User, None));
        let both = TodoOperation::Update {
            code: "T001".to_owned(),
            to_status: Some(TodoStatus::Done),
            priority: Some(2),
            reason: "as agreed".to_owned(),
        };
        let text = list.apply(&user, &both, at).unwrap().text;
        assert_eq!(text, "T001 is DONE and has priority 2: as agreed");
    }

    #[test]
    fn what_a_conversation_with_text_from_outside_writes_is_marked_and_stays_so() {
        let clean = agent(BehaviorRole::Plan);
        let marked = Actor { has_outside_text: true, ..clean.clone() };
        let at = Timestamp::UNIX_EPOCH;
        let mut list = list(vec![new("dig"), new("plant"), new("water")]);
        let note = |code: &str| TodoOperation::Note {
            code: code.to_owned(),
            kind: TodoNoteKind::Note,
            text: "as the page says".to_owned(),
        };

        list.apply(&marked, &note("T001"), at).unwrap();
        list.apply(&clean, &note("T001"), at).unwrap();
        list.apply(&clean, &note("T002"), at).unwrap();
        list.apply(&marked, &prioritize("T003", 1), at).unwrap();
        let added = TodoOperation::Init { mode: TodoInit::Merge, items: vec![new("rest")] };
        list.apply(&marked, &added, at).unwrap();

        let outside: Vec<bool> = list.todos().map(|todo| todo.outside).collect();
        assert_eq!(outside, [true, false, true, true]);
        list.apply(&clean, &init(vec![new("anew")]), at).unwrap();
        assert!(list.todos().all(|todo| !todo.outside));
    }

    #[test]
    fn the_text_of_a_plan_counts_its_todos() {
        let merge = |items| TodoOperation::Init { mode: TodoInit::Merge, items };
        let (mut list, user) = (list(vec![]), actor(ActorKind::User, None));
        for (operation, told) in [
            (init(vec![]), "0 todos planned"),
            (init(vec![new("a"), new("b")]), "2 todos planned"),
            (merge(vec![new("c")]), "1 todo added"),
        ] {
            let change = list.apply(&user, &operation, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(change.text, told);
        }
    }

    #[test]
    fn a_subagent_touches_only_what_is_assigned_to_it() {
        let assigned = NewTodo { assignee: Some("ada".to_owned()), ..new("hers") };
        let mut list = list(vec![assigned, new("not hers")]);
        let subagent = actor(ActorKind::SubAgent, None);
        let note = |code: &str| TodoOperation::Note {
            code: code.to_owned(),
            kind: TodoNoteKind::Note,
            text: "seen".to_owned(),
        };
        let at = Timestamp::UNIX_EPOCH;

        list.apply(&subagent, &update("T001", TodoStatus::InProgress), at).unwrap();
        list.apply(&subagent, &note("T001"), at).unwrap();
        for operation in [update("T002", TodoStatus::InProgress), note("T002"), init(vec![])] {
            let refused = kind_of(list.apply(&subagent, &operation, at));
            assert_eq!(refused, Some(TodoErrorKind::Forbidden), "{operation:?}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_with_its_size_and_the_limit() {
        let (at, planner) = (Timestamp::UNIX_EPOCH, agent(BehaviorRole::Plan));
        let mut list = list(vec![new("a")]);
        let many = |count: usize| vec!["x".to_owned(); count];
        let deps = Some(vec!["T001".to_owned(); 129]);
        let merge =
            |item: NewTodo| TodoOperation::Init { mode: TodoInit::Merge, items: vec![item] };
        let cases = [
            (merge(new(&"語".repeat(257))), "257 characters, and 256"),
            (
                merge(NewTodo { description: "x".repeat(4_097), ..new("b") }),
                "4097 characters, and 4096",
            ),
            (merge(NewTodo { labels: many(33), ..new("b") }), "33 entries, and 32"),
            (merge(NewTodo { deps, ..new("b") }), "129 entries, and 128"),
            (merge(new(" ")), "needs a `title`"),
            (
                TodoOperation::Note {
                    code: "T001".to_owned(),
                    kind: TodoNoteKind::Note,
                    text: "x".repeat(4_097),
                },
                "4097 characters, and 4096",
            ),
            (
                TodoOperation::Update {
                    code: "T001".to_owned(),
                    to_status: Some(TodoStatus::Done),
                    priority: None,
                    reason: "x".repeat(1_025),
                },
                "1025 characters, and 1024",
            ),
            (
                TodoOperation::Update {
                    code: "T001".to_owned(),
                    to_status: Some(TodoStatus::Done),
                    priority: None,
                    reason: " ".to_owned(),
                },
                "needs a `reason`",
            ),
            (
                TodoOperation::Update {
                    code: "T001".to_owned(),
                    to_status: None,
                    priority: None,
                    reason: "x".to_owned(),
                },
                "needs a `to_status` or a `priority`",
            ),
        ];
        for (operation, told) in cases {
            let error = list.apply(&planner, &operation, at).unwrap_err();
            assert_eq!(error.kind, TodoErrorKind::Invalid);
            assert!(error.message.contains(told), "{error}");
        }
        let at_limit = NewTodo {
            title: "語".repeat(256),
            description: "x".repeat(4_096),
            labels: many(32),
            deps: Some(vec!["T001".to_owned(); 128]),
            ..NewTodo::default()
        };
        list.apply(&planner, &merge(at_limit), at).unwrap();
    }

    #[test]
    fn a_todo_cannot_wait_for_itself_or_a_later_one_or_for_none() {
        let waits_for = |code: &str| NewTodo { deps: Some(vec![code.to_owned()]), ..new("b") };
        for (code, kind) in [
            ("T002", TodoErrorKind::Invalid),
            ("T003", TodoErrorKind::Invalid),
            ("nothing", TodoErrorKind::NotFound),
        ] {
            let mut list = TodoList::default();
            let items = vec![new("a"), waits_for(code), new("c")];
            let result =
                list.apply(&agent(BehaviorRole::Plan), &init(items), Timestamp::UNIX_EPOCH);
            assert_eq!(kind_of(result), Some(kind), "{code}");
            assert_eq!(list, TodoList::default());
        }
    }

    proptest! {
        /// Whatever is asked, each todo's attempts and the counts are those of its history.
        #[test]
        fn counts_are_those_of_the_todos(
            steps in prop::collection::vec((0_usize..7, 1_u32..5, 0_usize..6), 0..60),
        ) {
            let mut list = list(vec![new("a"), new("b"), bench()]);
            for (who, number, status) in steps {
                let actor = match who {
                    0 => actor(ActorKind::User, None),
                    1 => actor(ActorKind::SubAgent, None),
                    2 => actor(ActorKind::RootAgent, None),
                    3 => agent(BehaviorRole::Do),
                    4 => agent(BehaviorRole::Check),
                    5 => agent(BehaviorRole::Adjust),
                    _ => agent(BehaviorRole::Plan),
                };
                let operation = if who == 6 {
                    TodoOperation::Init { mode: TodoInit::Merge, items: vec![new("more")] }
                } else {
                    update(&code_of(number), STATUSES[status])
                };
                drop(list.apply(&actor, &operation, Timestamp::UNIX_EPOCH));

                let mut counted = TodoCounts::default();
                list.todos().for_each(|todo| *counted.of(todo.status) += 1);
                prop_assert_eq!(list.counts, counted);
                prop_assert_eq!(list.last_number, counted.total());
            }
        }
    }
}
