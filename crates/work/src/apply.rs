//! Changes of stored todo lists.

use holdfast_pg::TenantTx;
use holdfast_types::{TodoKind, TodoOperation};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{
    Actor, Change, Error, Place, Todo, TodoCounts, TodoError, TodoList, code_number,
    members::ListId,
    worklog::{self, NewRecord},
};

/// Results of the operations of one call, in their order.
pub(crate) type Results = Vec<Result<(), TodoError>>;

/// Codes that an event names.
const MAX_CODES_PER_EVENT: usize = 32;

/// Tasks before a bench that an error names.
const BLOCKING_TASKS: i64 = 5;

#[derive(FromRow)]
pub(crate) struct Head {
    list_id: Uuid,
    last_number: i32,
    last_task: i32,
    counts: Json<TodoCounts>,
    pub at: jiff_sqlx::Timestamp,
}

/// Todos that a call needs, and its results if it was made before.
#[derive(FromRow)]
struct CallInput {
    /// Results of an earlier call with the same id.
    results: Option<Json<Results>>,
    todos: Vec<Json<Todo>>,
}

/// Applies operations to the list of a place in their order; each is applied or refused as a whole.
///
/// The list is changed once for each `op_id`: a repeated call returns the results of the first.
///
/// # Errors
///
/// [`Error::InvalidOperationId`] if `op_id` is empty or too long. The list's session must exist.
pub async fn apply_todos(
    tx: &mut TenantTx,
    place: &Place,
    actor: &Actor,
    op_id: &str,
    ops: &[TodoOperation],
) -> Result<Vec<Result<(), TodoError>>, Error> {
    if !(1..=256).contains(&op_id.len()) {
        return Err(Error::InvalidOperationId(op_id.len()));
    }
    if ops.is_empty() {
        return Ok(Vec::new());
    }
    let (list_id, head) = lock_list(tx, place).await?;
    let input = load(tx, list_id, &head, (op_id, ops)).await?;
    if let Some(Json(results)) = input.results {
        return Ok(results);
    }
    let at = head.at.to_jiff();
    let todos = input.todos.into_iter().map(|Json(todo)| todo).collect();
    let last = (head.last_number.unsigned_abs(), head.last_task.unsigned_abs());
    let mut list = TodoList::partial(last, head.counts.0, todos);
    let (mut results, mut changes) = (Results::new(), Vec::new());
    for op in ops {
        match list.apply(actor, op, at) {
            Ok(change) => {
                changes.push((op, change));
                results.push(Ok(()));
            }
            Err(error) => results.push(Err(error)),
        }
    }
    save(tx, (place, list_id, &list), (actor, at), op_id, (ops, &results)).await?;
    if !changes.is_empty() {
        let records: Vec<NewRecord> =
            changes.iter().map(|(op, change)| todo_record(actor, op, change)).collect();
        worklog::append(tx, place, &records).await?;
        let changes: Vec<&Change> = changes.iter().map(|(_, change)| change).collect();
        announce(tx, (place, list_id), actor, &changes).await?;
    }
    Ok(results)
}

/// Locks the list that the place's root session works on, which is made by its first change.
pub(crate) async fn lock_list(tx: &mut TenantTx, place: &Place) -> Result<(ListId, Head), Error> {
    const SQL: &str = "
        insert into work.lists as l (tenant_id, list_id, agent_id)
        select $1, coalesce((select m.list_id from work.list_members m
                             where m.tenant_id = $1 and m.session_id = $2), $2), $3
        on conflict (tenant_id, list_id) do update set list_id = l.list_id
        returning list_id, last_number, last_task, counts, clock_timestamp() as at";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_as(SQL).bind(tenant).bind(place.list.as_uuid());
    let head: Head = query.bind(place.agent.as_uuid()).fetch_one(tx.conn()).await?;
    Ok((ListId::new(head.list_id), head))
}

/// Loads the todos that operations name or that new todos wait for, and those that these wait for;
/// and the results of the first call with this id.
async fn load(
    tx: &mut TenantTx,
    list: ListId,
    head: &Head,
    (op_id, ops): (&str, &[TodoOperation]),
) -> Result<CallInput, Error> {
    const SQL: &str = "
        with named as materialized (
            select number, kind, deps, body from work.todos
            where tenant_id = $1 and list_id = $2 and number = any($3)),
        wanted as (select distinct unnest(deps) as number from named)
        select (
            select results from work.todo_ops
            where tenant_id = $1 and list_id = $2 and op_id = $6) as results,
        array(
            select body from named
            union all
            -- With its limit it is looked up for each, whatever the size of the list.
            select awaited.body from wanted, lateral (
                select t.body from work.todos t
                where t.tenant_id = $1 and t.list_id = $2 and t.number = wanted.number
                limit 1) awaited
            where wanted.number <> all($3)
            union all
            select before.body from (
                select case when $5 then 2147483647
                            else (select max(number) from named where kind = 'bench') end
                    as number) bench,
                lateral (
                    select body from work.todos
                    where tenant_id = $1 and list_id = $2 and number < bench.number
                      and number <> all($3) and kind = 'task'
                      and status not in ('COMPLETE', 'DONE')
                    order by number limit $4) before) as todos";

    let to_column = |code: &String| code_number(code).and_then(|code| i32::try_from(code).ok());
    let (mut numbers, mut has_new_bench) = (Vec::new(), false);
    for op in ops {
        match op {
            TodoOperation::Init { items, .. } => {
                // A new task waits for the last one, if it names nothing else.
                numbers.push(head.last_task);
                numbers.extend(
                    items.iter().flat_map(|item| &item.deps).flatten().filter_map(to_column),
                );
                has_new_bench |= items.iter().any(|item| item.kind == TodoKind::Bench);
            }
            TodoOperation::Update { code, .. } | TodoOperation::Note { code, .. } => {
                numbers.extend(to_column(code));
            }
        }
    }
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_as(SQL).bind(tenant).bind(list.as_uuid()).bind(numbers);
    let query = query.bind(BLOCKING_TASKS).bind(has_new_bench).bind(op_id);
    Ok(query.fetch_one(tx.conn()).await?)
}

/// Stores what a call has changed, and the call in the log of operations.
pub(crate) async fn save<T: Serialize + Sync>(
    tx: &mut TenantTx,
    (place, list, changed): (&Place, ListId, &TodoList),
    (actor, at): (&Actor, Timestamp),
    op_id: &str,
    (ops, results): (&[T], &Results),
) -> Result<(), Error> {
    const DELETE: &str = "delete from work.todos where tenant_id = $1 and list_id = $2";
    const SAVE: &str = "
        with stored as (
            insert into work.todos as t
                (tenant_id, list_id, number, kind, status, priority, assignee, deps, body)
            select $1, $2, (b->>'number')::int, b->>'type', b->>'status', (b->>'priority')::int,
                   b->>'assignee', array(select jsonb_array_elements(b->'deps')::int), b
            from unnest($3::jsonb[]) b
            on conflict (tenant_id, list_id, number) do update
                set status = excluded.status, priority = excluded.priority, body = excluded.body),
        head as (
            update work.lists
            set last_number = $4, last_task = $5, counts = $6, op_seq = op_seq + 1
            where tenant_id = $1 and list_id = $2
            returning op_seq)
        insert into work.todo_ops
            (tenant_id, list_id, seq, op_id, session_id, actor, ops, results, at)
        select $1, $2, op_seq, $7, $8, $9, $10, $11, $12 from head";

    let (tenant, list) = (tx.tenant().as_uuid(), list.as_uuid());
    if changed.is_replaced {
        holdfast_pg::query(DELETE).bind(tenant).bind(list).execute(tx.conn()).await?;
    }
    holdfast_pg::query(SAVE)
        .bind(tenant)
        .bind(list)
        .bind(changed.changed_todos().map(Json).collect::<Vec<_>>())
        .bind(i32::try_from(changed.last_number).unwrap_or(i32::MAX))
        .bind(i32::try_from(changed.last_task).unwrap_or(i32::MAX))
        .bind(Json(changed.counts))
        .bind(op_id)
        .bind(place.session.as_uuid())
        .bind(Json(actor))
        .bind(Json(ops))
        .bind(Json(results))
        .bind(crate::to_timestamp(at))
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn todo_record(actor: &Actor, op: &TodoOperation, change: &Change) -> NewRecord {
    let payload = match op {
        TodoOperation::Init { mode, items } => {
            json!({"op": "init", "mode": mode, "items": items.len()})
        }
        TodoOperation::Update { .. } | TodoOperation::Note { .. } => json!(op),
    };
    let payload = json!({"by": actor, "change": payload});
    NewRecord {
        todo: change.codes.first().filter(|_| change.codes.len() == 1).cloned(),
        ..NewRecord::new(worklog::TODO_CHANGE, payload, change.text.clone())
    }
}

/// Writes the event `todo.changed` to the outbox of events, and what waiting sessions are told.
pub(crate) async fn announce(
    tx: &mut TenantTx,
    (place, list): (&Place, ListId),
    actor: &Actor,
    changes: &[&Change],
) -> Result<(), Error> {
    const SQL: &str = "
        with told as (
            insert into work.wakeups (tenant_id, list_id, changed_by, text, outside)
            values ($1, $4, $5, $6, $7))
        insert into session.events (tenant_id, family, session_id, name, payload)
        values ($1, 'todos', $2, 'TodoChanged', $3)";

    let (tenant, root) = (tx.tenant().as_uuid(), place.list.as_uuid());
    let mut codes: Vec<&str> =
        changes.iter().flat_map(|change| &change.codes).map(String::as_str).collect();
    codes.dedup();
    codes.truncate(MAX_CODES_PER_EVENT);
    let event: Value =
        json!({"todos": codes.join(","), "changes": changes.len(), "by": actor.kind.as_str()});
    let lines: Vec<&str> = changes.iter().take(10).map(|change| change.text.as_str()).collect();
    let changed_by = place.run.map(|_| place.session.as_uuid());
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(root)
        .bind(Json(event))
        .bind(list.as_uuid())
        .bind(changed_by)
        .bind(lines.join("\n"))
        .bind(actor.has_outside_text)
        .execute(tx.conn())
        .await?;
    Ok(())
}
