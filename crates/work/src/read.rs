//! Reads of todo lists. Each reads a bounded number of rows, whatever the list's size.

use holdfast_pg::TenantTx;
use holdfast_types::{SessionId, TodoStatus};
use sqlx::{FromRow, types::Json};

use crate::{
    Error, Todo, TodoCounts, TodoList, TodoView, code_number, members::list_of, todo::code_of,
};

/// Todos of each status that a view has.
const TODOS_PER_STATUS: i64 = 48;

/// Which todos a page has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TodoFilter {
    /// All, in the order of the list.
    #[default]
    All,
    /// Those that are neither `COMPLETE` nor `DONE`, in the order of the list.
    Pending,
    /// Those of one status, the most urgent first.
    Status(TodoStatus),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TodoPage {
    pub todos: Vec<Todo>,
    /// Counts of the whole list.
    pub counts: TodoCounts,
}

#[derive(FromRow)]
struct ViewRow {
    counts: Json<TodoCounts>,
    todos: Vec<Json<Todo>>,
    next: Option<i32>,
    bench: Option<i32>,
}

/// Reads what a prompt needs of the list that a root session works on.
pub async fn todo_view(tx: &mut TenantTx, root: SessionId) -> Result<TodoView, Error> {
    const SQL: &str = "
        select l.counts,
            array(
                select shown.body
                from unnest(array['IN_PROGRESS', 'CHECK_FAILED', 'FAILED', 'COMPLETE', 'WAIT', 'DONE'])
                     s (status),
                lateral (
                    select t.number, t.body from work.todos t
                    where t.tenant_id = $1 and t.list_id = l.list_id and t.status = s.status
                    order by t.priority, t.number limit $3) shown
                order by shown.number) as todos,
            (
                select ready.number
                from unnest(array['IN_PROGRESS', 'CHECK_FAILED', 'WAIT'])
                     with ordinality s (status, place),
                lateral (
                    select t.number from work.todos t
                    where t.tenant_id = $1 and t.list_id = l.list_id and t.status = s.status
                      and t.kind = 'task' and t.assignee is null
                      -- Each is looked up, whatever the size of the list.
                      and not exists (
                          select from unnest(t.deps) dep (number)
                          where (
                              select d.status not in ('COMPLETE', 'DONE') from work.todos d
                              where d.tenant_id = $1 and d.list_id = l.list_id
                                and d.number = dep.number))
                    order by t.priority, t.number limit 1) ready
                order by s.place limit 1) as next,
            (
                select t.number from work.todos t
                where t.tenant_id = $1 and t.list_id = l.list_id and t.status = 'WAIT'
                  and t.kind = 'bench'
                  and not exists (
                      select from work.todos d
                      where d.tenant_id = $1 and d.list_id = l.list_id and d.kind = 'task'
                        and d.number < t.number and d.status not in ('COMPLETE', 'DONE'))
                order by t.priority, t.number limit 1) as bench
        from work.lists l
        where l.tenant_id = $1
          and l.list_id = coalesce((select m.list_id from work.list_members m
                                    where m.tenant_id = $1 and m.session_id = $2), $2)";

    let query = holdfast_pg::query_as(SQL).bind(tx.tenant().as_uuid()).bind(root.as_uuid());
    let row: Option<ViewRow> = query.bind(TODOS_PER_STATUS).fetch_optional(tx.conn()).await?;
    let Some(row) = row else { return Ok(TodoView::default()) };
    let code = |number: i32| code_of(number.unsigned_abs());
    Ok(TodoView {
        counts: row.counts.0,
        todos: row.todos.into_iter().map(|Json(todo)| todo).collect(),
        next: row.next.map(code),
        bench: row.bench.map(code),
    })
}

/// Reads one todo of the list that a root session works on.
///
/// # Errors
///
/// [`Error::NotFound`] if the list has no such todo.
pub async fn todo(tx: &mut TenantTx, root: SessionId, code: &str) -> Result<Todo, Error> {
    const SQL: &str = "
        select body from work.todos where tenant_id = $1 and list_id = $2 and number = $3";
    let number = code_number(code).and_then(|number| i32::try_from(number).ok());
    let number = number.ok_or_else(|| Error::not_found(code))?;
    let (tenant, list) = (tx.tenant().as_uuid(), list_of(tx, root).await?);
    let query = holdfast_pg::query_scalar(SQL).bind(tenant).bind(list.as_uuid()).bind(number);
    let found: Option<Json<Todo>> = query.fetch_optional(tx.conn()).await?;
    found.map(|Json(todo)| todo).ok_or_else(|| Error::not_found(code))
}

/// Reads todos behind the one called `after`, at most `limit`, of the list that a root session works
/// on.
pub async fn todo_page(
    tx: &mut TenantTx,
    root: SessionId,
    filter: TodoFilter,
    (after, limit): (Option<&str>, u32),
) -> Result<TodoPage, Error> {
    const COUNTS: &str = "select counts from work.lists where tenant_id = $1 and list_id = $2";
    const ALL: &str = "
        select body from work.todos
        where tenant_id = $1 and list_id = $2 and number > $3
        order by number limit $4";
    const PENDING: &str = "
        select body from work.todos
        where tenant_id = $1 and list_id = $2 and number > $3 and status not in ('COMPLETE', 'DONE')
        order by number limit $4";
    const STATUS: &str = "
        select body from work.todos t
        where tenant_id = $1 and list_id = $2 and status = $5
          and (priority, number) > (
              coalesce((select a.priority from work.todos a
                        where a.tenant_id = $1 and a.list_id = $2 and a.number = $3),
                       -2147483648), $3)
        order by priority, number limit $4";

    let list = list_of(tx, root).await?.as_uuid();
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_scalar(COUNTS).bind(tenant).bind(list);
    let counts: Option<Json<TodoCounts>> = query.fetch_optional(tx.conn()).await?;
    let after = match after {
        None => 0,
        Some(code) => {
            let number = code_number(code).and_then(|number| i32::try_from(number).ok());
            number.ok_or_else(|| Error::not_found(code))?
        }
    };
    let sql = match filter {
        TodoFilter::All => ALL,
        TodoFilter::Pending => PENDING,
        TodoFilter::Status(_) => STATUS,
    };
    let query = holdfast_pg::query_scalar(sql).bind(tenant).bind(list).bind(after);
    let query = query.bind(i64::from(limit));
    let query = match filter {
        TodoFilter::All | TodoFilter::Pending => query,
        TodoFilter::Status(status) => query.bind(crate::todo::status_name(status)),
    };
    let todos: Vec<Json<Todo>> = query.fetch_all(tx.conn()).await?;
    Ok(TodoPage {
        todos: todos.into_iter().map(|Json(todo)| todo).collect(),
        counts: counts.map(|Json(counts)| counts).unwrap_or_default(),
    })
}

/// Reads the whole list that a root session works on.
pub(crate) async fn whole_list(tx: &mut TenantTx, root: SessionId) -> Result<TodoList, Error> {
    const HEAD: &str = "
        select last_number, last_task, counts from work.lists where tenant_id = $1 and list_id = $2";
    const TODOS: &str = "
        select body from work.todos where tenant_id = $1 and list_id = $2 order by number";
    let (tenant, list) = (tx.tenant().as_uuid(), list_of(tx, root).await?.as_uuid());
    let query = holdfast_pg::query_as(HEAD).bind(tenant).bind(list);
    let head: Option<(i32, i32, Json<TodoCounts>)> = query.fetch_optional(tx.conn()).await?;
    let Some((last_number, last_task, Json(counts))) = head else {
        return Ok(TodoList::default());
    };
    let query = holdfast_pg::query_scalar(TODOS).bind(tenant).bind(list);
    let todos: Vec<Json<Todo>> = query.fetch_all(tx.conn()).await?;
    let todos = todos.into_iter().map(|Json(todo)| todo).collect();
    let last = (last_number.unsigned_abs(), last_task.unsigned_abs());
    Ok(TodoList::partial(last, counts, todos))
}
