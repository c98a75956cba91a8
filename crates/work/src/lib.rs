//! Todo lists, worklogs, tasks and the ledger.
//!
//! The crate owns the Postgres schema `work`. Its functions take the caller's transaction, so that
//! what a step of an agent changes here is saved with the step, or not at all.
//!
//! | part | purpose | file |
//! |---|---|---|
//! | [`TodoList`] | a list and the rules of its changes, without I/O | `todo/` |
//! | [`apply_todos`] | changes a stored list, once for each operation id | `apply.rs` |
//! | [`todo_view`], [`todo_page`] | reads of a list | `read.rs` |
//! | [`join_list`] | lists that the sessions of a workspace share | `members.rs` |
//! | [`record_step`], [`record_period`] | what a step or a run did: worklog, tasks, ledger | `step.rs` |
//! | [`undo_todos`], [`newest_step`], [`abort_step`], [`record_rollback`] | a step that is rolled back | `rollback.rs`, `worklog.rs` |
//! | [`worklog_text`], [`worklog_page`] | reads of the worklog | `worklog.rs` |
//! | [`tasks_of`] | steps, model calls and actions of a session | `tasks.rs` |
//! | [`charge_hit_points`] | what work costs an agent, and its recovery | `hit_points.rs` |
//! | [`Ledger`] | the chain of hashes of a tenant's ledger | `ledger.rs` |
//! | [`Wakeups`] | changes of todos that waiting sessions are told of | `wakeups.rs` |
//! | [`Wallet`] | what an agent may spend, and its payments | `wallet.rs` |
//! | [`Work`] | the same for callers without a transaction of their own | `work.rs` |
//!
//! Lists, worklogs and tasks are deleted with their session by the database, lists of workspaces with
//! the workspace. The ledger has ids,
//! names and numbers only, and is deleted with its tenant.
//!
//! ## What can go wrong
//!
//! Two sessions may change one list at a time: the list's row is locked first, by all writers.
//! Entries of the ledger get their position and hash after their transaction, from one writer, so
//! that no turn waits for another.

mod actor;
mod apply;
mod error;
mod hit_points;
mod ledger;
mod members;
mod read;
mod rollback;
mod step;
mod tasks;
mod todo;
mod wakeups;
mod wallet;
mod work;
mod worklog;

pub use actor::{Actor, ActorKind, Place};
pub use apply::apply_todos;
pub use error::Error;
pub use hit_points::{HitPoints, charge_hit_points, enable_agent, exhausted_agents, hit_points};
pub use ledger::{ChainCheck, Ledger, LedgerEntry, LedgerFilter};
pub use members::{JoinedList, join_list, leave_list};
pub use read::{TodoFilter, TodoPage, todo, todo_page, todo_view};
pub use rollback::{Rollback, UndoneTodos, record_rollback, undo_todos};
pub use step::{
    ActionKind, ActionRecord, ModelCall, Period, StepRecord, StepStatus, record_period, record_step,
};
pub use tasks::{Task, tasks_of, tokens_of_day};
pub use todo::{
    Change, MAX_TODOS, Todo, TodoCounts, TodoError, TodoErrorKind, TodoList, TodoNote, TodoView,
    code_number, code_of, details_of, note_name, status_name,
};
pub use wakeups::{Wakeup, Wakeups};
pub use wallet::{
    InternalCurrency, PaymentOrder, PaymentRecord, ProviderFuture, Receipt, Wallet, WalletProvider,
    WalletRules, payments, receive, set_wallet_rules, wallet,
};
pub use work::Work;
pub use worklog::{
    AbortedRecord, ImpactLevel, ProposalRecord, SelfUpdate, WorklogRecord, WorklogText, abort_step,
    newest_step, record_proposal, record_self_update, worklog_page, worklog_text,
};

use jiff_sqlx::ToSqlx as _;

/// A number of rows or tokens as a column.
fn to_column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn to_timestamp(at: jiff::Timestamp) -> jiff_sqlx::Timestamp {
    at.to_sqlx()
}
