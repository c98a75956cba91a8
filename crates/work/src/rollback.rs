//! Rollback of a step: its operations on todos, and its record in worklog and ledger.
//!
//! The log of operations is never changed. A rollback logs one more operation that names the calls
//! which do not count any more; the list is then what the log gives without them. What others have
//! changed since is made again, and refused where it needs what is undone.

use std::collections::HashSet;

use holdfast_pg::TenantTx;
use holdfast_types::TodoOperation;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{FromRow, types::Json};

use crate::{
    Actor, Change, Error, Place, TodoList,
    apply::{Results, announce, lock_list, save},
    ledger::{self, LedgerKind, NewEntry},
    members::ListId,
    todo::counted,
    worklog::{self, NewRecord},
};

/// Characters of a refused operation that are told.
const MAX_REFUSED_CHARS: usize = 200;

/// Names the calls whose operations do not count any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum UndoOperation {
    Undo { op_ids: Vec<String> },
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum LoggedOperation {
    Undo(UndoOperation),
    Todo(TodoOperation),
}

/// A call as it is logged.
#[derive(Debug, FromRow)]
struct LoggedCall {
    op_id: String,
    actor: Json<Actor>,
    ops: Json<Vec<LoggedOperation>>,
    results: Json<Results>,
    at: jiff_sqlx::Timestamp,
}

/// What the rollback of a step's operations has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoneTodos {
    /// Number of operations that do not count any more.
    pub operations: u32,
    /// Operations of others that do not count any more either: they need what is undone.
    pub refused: Vec<String>,
}

/// Undoes the operations of the calls whose ids `is_undone` accepts; `place` is the step's.
///
/// # Errors
///
/// [`Error::Corrupt`] if the log has operations that this version does not know.
pub async fn undo_todos(
    tx: &mut TenantTx,
    place: &Place,
    actor: &Actor,
    op_id: &str,
    is_undone: &(dyn Fn(&str) -> bool + Sync),
) -> Result<UndoneTodos, Error> {
    let (list_id, head) = lock_list(tx, place).await?;
    let log = load_log(tx, list_id).await?;
    let before = undone_ids(&log);
    let is_new = |call: &&LoggedCall| {
        is_undone(&call.op_id) && !before.contains(call.op_id.as_str()) && !call.ops.0.is_empty()
    };
    let calls: Vec<&LoggedCall> = log.iter().filter(is_new).collect();
    if calls.is_empty() {
        return Ok(UndoneTodos::default());
    }
    let op_ids: Vec<String> = calls.iter().map(|call| call.op_id.clone()).collect();
    let applied = calls.iter().flat_map(|call| &call.results.0).filter(|result| result.is_ok());
    let operations = u32::try_from(applied.count()).unwrap_or(u32::MAX);
    let undone = before.iter().copied().chain(op_ids.iter().map(String::as_str)).collect();
    let (mut list, refused) = replay(&log, &undone);
    list.replace_stored();
    let (at, logged) = (head.at.to_jiff(), [UndoOperation::Undo { op_ids }]);
    let saved = (place, list_id, &list);
    save(tx, saved, (actor, at), op_id, (&logged[..], &vec![Ok(())])).await?;
    let change = Change {
        codes: list.todos().take(32).map(crate::Todo::code).collect(),
        text: format!("{} of a step undone", counted(operations as usize, "change")),
    };
    let outside = Place { run: None, ..place.clone() };
    announce(tx, (&outside, list_id), actor, &[&change]).await?;
    Ok(UndoneTodos { operations, refused })
}

async fn load_log(tx: &mut TenantTx, list: ListId) -> Result<Vec<LoggedCall>, Error> {
    const SQL: &str = "
        select op_id, actor, ops, results, at from work.todo_ops
        where tenant_id = $1 and list_id = $2 order by seq";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_as(SQL).bind(tenant).bind(list.as_uuid());
    query.fetch_all(tx.conn()).await.map_err(|error| match error {
        sqlx::Error::ColumnDecode { .. } => Error::Corrupt("operations on todos"),
        error => error.into(),
    })
}

/// Ids of the calls that were undone before.
fn undone_ids(log: &[LoggedCall]) -> HashSet<&str> {
    let operations = log.iter().flat_map(|call| &call.ops.0);
    let undone = operations.filter_map(|operation| match operation {
        LoggedOperation::Undo(UndoOperation::Undo { op_ids }) => Some(op_ids),
        LoggedOperation::Todo(_) => None,
    });
    undone.flatten().map(String::as_str).collect()
}

/// Makes the list from its log without some calls. Returns the operations of others that were
/// applied before and cannot be without these.
fn replay(log: &[LoggedCall], undone: &HashSet<&str>) -> (TodoList, Vec<String>) {
    let (mut list, mut refused) = (TodoList::default(), Vec::new());
    for call in log.iter().filter(|call| !undone.contains(call.op_id.as_str())) {
        let at: Timestamp = call.at.to_jiff();
        for (operation, first) in call.ops.0.iter().zip(&call.results.0) {
            let LoggedOperation::Todo(operation) = operation else { continue };
            if let (Err(error), Ok(())) = (list.apply(&call.actor.0, operation, at), first) {
                let text = format!("by {}: {error}", call.actor.0.name);
                refused.push(text.chars().take(MAX_REFUSED_CHARS).collect());
            }
        }
    }
    (list, refused)
}

/// Record of a rollback.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollback {
    /// Who rolled the step back.
    pub by: String,
    /// One line for people and prompts.
    pub digest: String,
    /// What was restored and what was not, for people.
    pub report: Value,
}

/// Records in worklog and ledger that a step is rolled back; `place` is the step's.
pub async fn record_rollback(
    tx: &mut TenantTx,
    place: &Place,
    rollback: &Rollback,
) -> Result<(), Error> {
    let payload = json!({ "by": rollback.by, "report": rollback.report });
    let digest = crate::todo::shown(&rollback.digest);
    let record =
        NewRecord { is_saved: true, ..NewRecord::new(worklog::STEP_ROLLED_BACK, payload, digest) };
    worklog::append(tx, place, &[record]).await?;
    let entry = NewEntry {
        kind: LedgerKind::Rollback,
        name: place.behavior.clone(),
        outcome: "rolled_back".to_owned(),
        steps: 1,
        amount: None,
        ..NewEntry::of_amount(LedgerKind::Rollback, "", "", 0)
    };
    ledger::insert(tx, place, &[entry]).await
}
