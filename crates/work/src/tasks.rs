//! Tasks: the steps of a session's behaviours, with their model calls, tools, actions and results.

use holdfast_pg::TenantTx;
use holdfast_types::{RunId, SessionId, Usage};
use jiff::Timestamp;
use serde::Serialize;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{Error, Place};

/// A task to be stored.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NewTask {
    pub id: Uuid,
    pub parent: Option<Uuid>,
    pub kind: &'static str,
    pub name: String,
    pub is_failed: bool,
    pub usage: Usage,
    pub micros: u64,
    pub error: Option<String>,
    pub result: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
}

impl NewTask {
    pub fn new(
        kind: &'static str,
        parent: Option<Uuid>,
        (started_at, finished_at): (Timestamp, Timestamp),
    ) -> Self {
        Self {
            id: Uuid::now_v7(),
            parent,
            kind,
            name: String::new(),
            is_failed: false,
            usage: Usage::default(),
            micros: 0,
            error: None,
            result: String::new(),
            started_at,
            finished_at,
        }
    }
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    place: &Place,
    tasks: &[NewTask],
) -> Result<(), Error> {
    const SQL: &str = "
        insert into work.tasks
            (tenant_id, task_id, parent_id, session_id, run_id, kind, name, step, status,
             input_tokens, cached_tokens, output_tokens, cost_micros, error, result, started_at,
             finished_at)
        select $1, (t->>'id')::uuid, (t->>'parent')::uuid, $2, $3, t->>'kind', t->>'name', $4,
               case when (t->>'is_failed')::boolean then 'FAILED' else 'OK' end,
               (t#>>'{usage,input}')::bigint, (t#>>'{usage,cached}')::bigint,
               (t#>>'{usage,output}')::bigint, (t->>'micros')::bigint, t->>'error', t->>'result',
               (t->>'started_at')::timestamptz, (t->>'finished_at')::timestamptz
        from unnest($5::jsonb[]) t";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(place.session.as_uuid())
        .bind(place.run.map(RunId::as_uuid))
        .bind(i32::try_from(place.step).unwrap_or(i32::MAX))
        .bind(tasks.iter().map(Json).collect::<Vec<_>>())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Tokens that models have used in the steps of a session since the beginning of the UTC day.
pub async fn tokens_of_day(tx: &mut TenantTx, session: SessionId) -> Result<u64, Error> {
    const SQL: &str = "
        select coalesce(sum(input_tokens + output_tokens), 0)::bigint from work.tasks
        where tenant_id = $1 and session_id = $2 and kind = 'model'
          and started_at >= date_trunc('day', clock_timestamp(), 'UTC')";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_scalar(SQL).bind(tenant).bind(session.as_uuid());
    let tokens: i64 = query.fetch_one(tx.conn()).await?;
    Ok(tokens.unsigned_abs())
}

/// A step, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub id: Uuid,
    /// The step that it is a part of; `None` for a step.
    pub parent: Option<Uuid>,
    pub run: Option<RunId>,
    /// `step`, `model`, `tool`, `action` or `result`.
    pub kind: String,
    /// Behaviour, model, tool, or for a result the behaviour that follows.
    pub name: String,
    pub step: u32,
    /// `OK` or `FAILED`.
    pub status: String,
    pub usage: Usage,
    /// Cost in millionths of a US dollar.
    pub micros: u64,
    pub error: Option<String>,
    pub result: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
}

#[derive(FromRow)]
struct Row {
    task_id: Uuid,
    parent_id: Option<Uuid>,
    run_id: Option<Uuid>,
    kind: String,
    name: String,
    step: i32,
    status: String,
    input_tokens: i64,
    cached_tokens: i64,
    output_tokens: i64,
    cost_micros: i64,
    error: Option<String>,
    result: String,
    started_at: jiff_sqlx::Timestamp,
    finished_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> Task {
        Task {
            id: self.task_id,
            parent: self.parent_id,
            run: self.run_id.map(RunId::from),
            kind: self.kind,
            name: self.name,
            step: self.step.unsigned_abs(),
            status: self.status,
            usage: Usage {
                input: self.input_tokens.unsigned_abs(),
                cached: self.cached_tokens.unsigned_abs(),
                output: self.output_tokens.unsigned_abs(),
                ..Usage::default()
            },
            micros: self.cost_micros.unsigned_abs(),
            error: self.error,
            result: self.result,
            started_at: self.started_at.to_jiff(),
            finished_at: self.finished_at.to_jiff(),
        }
    }
}

/// Reads the newest `steps` steps of a session with their parts, in the order of time. A subagent's
/// are those of its own session.
pub async fn tasks_of(
    tx: &mut TenantTx,
    session: SessionId,
    steps: u32,
) -> Result<Vec<Task>, Error> {
    // Ids are in the order of time, and a step's is before those of its parts.
    const SQL: &str = "
        select task_id, parent_id, run_id, kind, name, step, status, input_tokens, cached_tokens,
               output_tokens, cost_micros, error, result, started_at, finished_at
        from work.tasks
        where tenant_id = $1 and session_id = $2 and task_id >= (
            select task_id from (
                select task_id from work.tasks
                where tenant_id = $1 and session_id = $2 and kind = 'step'
                order by task_id desc limit $3) newest
            order by task_id limit 1)
        order by task_id";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_as(SQL).bind(tenant).bind(session.as_uuid());
    let rows: Vec<Row> = query.bind(i64::from(steps)).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}
