//! Which actor may make which change (spec TDO-004, TDO-008).
//!
//! | role | changes of status |
//! |---|---|
//! | plan | none; it makes the list, whose todos are `WAIT` |
//! | do | tasks: `WAIT`, `IN_PROGRESS`, `CHECK_FAILED` to `IN_PROGRESS`; `IN_PROGRESS` to `COMPLETE`, `FAILED` |
//! | check | tasks: `COMPLETE` to `DONE`, `CHECK_FAILED`; benches: `WAIT` to `DONE`, `CHECK_FAILED` |
//! | adjust | `FAILED`, `CHECK_FAILED` to `WAIT` |
//!
//! Those that plan or adjust change priorities, too.
//!
//! An agent without behaviours has all of these roles, its subagents that of doing. People and the
//! system make any change.

use holdfast_types::{BehaviorRole, TodoKind, TodoStatus};

use super::model::{Todo, TodoError, TodoErrorKind};
use crate::{Actor, ActorKind};

/// Attempts after which a todo may be given up as `FAILED` (spec TDO-005).
const MIN_ATTEMPTS_TO_FAIL: u32 = 2;

const ALL_ROLES: &[BehaviorRole] = &[BehaviorRole::Do, BehaviorRole::Check, BehaviorRole::Adjust];

/// Whether the actor's changes are bound by roles, dependencies and attempts.
pub(super) const fn is_bound(actor: &Actor) -> bool {
    match actor.kind {
        ActorKind::RootAgent | ActorKind::SubAgent => true,
        ActorKind::User | ActorKind::System => false,
    }
}

/// Refuses an actor that may not make or replace the list.
pub(super) fn check_init(actor: &Actor) -> Result<(), TodoError> {
    let may = match actor.kind {
        ActorKind::User | ActorKind::System => true,
        ActorKind::RootAgent => matches!(actor.role, None | Some(BehaviorRole::Plan)),
        ActorKind::SubAgent => false,
    };
    if may {
        return Ok(());
    }
    let message = "only a planning behaviour of the agent makes or replaces the list: add a note";
    Err(TodoError::new(TodoErrorKind::Forbidden, message))
}

/// Refuses an actor that may not change priorities.
pub(super) fn check_priority(actor: &Actor) -> Result<(), TodoError> {
    let may = match actor.kind {
        ActorKind::User | ActorKind::System => true,
        ActorKind::RootAgent => {
            matches!(actor.role, None | Some(BehaviorRole::Plan | BehaviorRole::Adjust))
        }
        ActorKind::SubAgent => false,
    };
    if may {
        return Ok(());
    }
    let message = "only a planning or an adjusting behaviour of the agent changes a priority: add a \
                   note";
    Err(TodoError::new(TodoErrorKind::Forbidden, message))
}

/// Refuses a subagent that touches a todo which is not assigned to it.
pub(super) fn check_assignee(actor: &Actor, todo: &Todo) -> Result<(), TodoError> {
    let is_free = actor.kind != ActorKind::SubAgent;
    if is_free || todo.assignee.as_deref() == Some(actor.name.as_str()) {
        return Ok(());
    }
    let message = format!("`{}` is not assigned to you", todo.code());
    Err(TodoError::new(TodoErrorKind::Forbidden, message))
}

/// Refuses a change of status that the actor's role does not make.
pub(super) fn check_transition(
    actor: &Actor,
    todo: &Todo,
    to: TodoStatus,
) -> Result<(), TodoError> {
    let roles: &[BehaviorRole] = match (&actor.role, actor.kind) {
        (_, ActorKind::User | ActorKind::System) => {
            return if todo.status == to { Err(invalid(todo, to)) } else { Ok(()) };
        }
        (Some(role), _) => std::slice::from_ref(role),
        (None, ActorKind::RootAgent) => ALL_ROLES,
        (None, ActorKind::SubAgent) => &[BehaviorRole::Do],
    };
    if !roles.iter().any(|role| makes(*role, todo.kind, todo.status, to)) {
        return Err(invalid(todo, to));
    }
    if to == TodoStatus::Failed && todo.attempts < MIN_ATTEMPTS_TO_FAIL {
        let message = format!(
            "`{}` was tried {} time, and fails after {MIN_ATTEMPTS_TO_FAIL}: set it to \
             IN_PROGRESS again and try another way",
            todo.code(),
            todo.attempts
        );
        return Err(TodoError::new(TodoErrorKind::InvalidTransition, message));
    }
    Ok(())
}

/// Whether a behaviour of this role makes this change.
const fn makes(role: BehaviorRole, kind: TodoKind, from: TodoStatus, to: TodoStatus) -> bool {
    use TodoStatus as S;
    match (role, kind) {
        (BehaviorRole::Do, TodoKind::Task) => matches!(
            (from, to),
            (S::Wait | S::InProgress | S::CheckFailed, S::InProgress)
                | (S::InProgress, S::Complete | S::Failed)
        ),
        (BehaviorRole::Check, TodoKind::Task) => {
            matches!((from, to), (S::Complete, S::Done | S::CheckFailed))
        }
        (BehaviorRole::Check, TodoKind::Bench) => {
            matches!((from, to), (S::Wait, S::Done | S::CheckFailed))
        }
        (BehaviorRole::Adjust, _) => matches!((from, to), (S::Failed | S::CheckFailed, S::Wait)),
        (BehaviorRole::Do | BehaviorRole::Route | BehaviorRole::Plan | BehaviorRole::Other, _) => {
            false
        }
    }
}

fn invalid(todo: &Todo, to: TodoStatus) -> TodoError {
    let message = format!(
        "`{}` is {} and cannot become {} now",
        todo.code(),
        status_name(todo.status),
        status_name(to)
    );
    TodoError::new(TodoErrorKind::InvalidTransition, message)
}

/// Name of a status, as models and people write it.
#[must_use]
pub const fn status_name(status: TodoStatus) -> &'static str {
    match status {
        TodoStatus::Wait => "WAIT",
        TodoStatus::InProgress => "IN_PROGRESS",
        TodoStatus::Complete => "COMPLETE",
        TodoStatus::Failed => "FAILED",
        TodoStatus::Done => "DONE",
        TodoStatus::CheckFailed => "CHECK_FAILED",
    }
}
