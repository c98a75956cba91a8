//! Ledger of tool calls: a view of the journal, with the time, cost and outcome of each call.

use holdfast_types::{CallRecord, RunId, SessionId, TenantId};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{Error, Views};

/// Tool call of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallView {
    /// The model's id for the call; unique within one reply.
    pub id: String,
    pub run: RunId,
    /// Name as the model wrote it; the tool may not exist.
    pub tool: String,
    pub state: ToolCallState,
    pub requested_at: Timestamp,
    /// `None` if the call was not made or its start was not recorded.
    pub started_at: Option<Timestamp>,
    /// `None` if the call was not made or has not ended.
    pub ended_at: Option<Timestamp>,
    /// In millionths of a US dollar.
    pub cost_micros: u64,
    /// Reason of a failure, at most 500 characters.
    pub error: Option<String>,
    /// Details from the tool.
    pub details: Option<Value>,
}

/// State of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCallState {
    /// The model asked for the call; it may run, if it only reads or writes.
    Requested,
    WaitingApproval,
    /// A call that acts was begun.
    Running,
    Completed,
    Failed,
    /// The turn ended without a result.
    Abandoned,
}

impl ToolCallState {
    /// Name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::WaitingApproval => "waiting_approval",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

impl Views<'_> {
    /// Returns the newest `limit` tool calls of a session, or of one of its turns, oldest first.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn tool_calls(
        self,
        tenant: TenantId,
        session: SessionId,
        run: Option<RunId>,
        limit: i64,
    ) -> Result<Vec<ToolCallView>, Error> {
        // The ids of calls may repeat in later replies: of several matching entries the first counts.
        const SQL: &str = "
            with asked as (
                select t.seq, t.run_id, t.created_at, c.place, c.call->>'id' as call,
                       c.call->>'tool' as tool
                from session.entries t
                cross join lateral jsonb_array_elements(t.body->'calls') with ordinality
                    as c (call, place)
                where t.tenant_id = $1 and t.session_id = $2 and t.kind = 'thought'
                  and ($3::uuid is null or t.run_id = $3)
                order by t.seq desc, c.place desc limit $4)
            select a.call, a.run_id, a.tool, a.created_at,
                   b.created_at as begun_at, r.created_at as returned_at,
                   coalesce(r.failed, false) as failed, r.error, r.record,
                   n.note, e.run_id is not null as is_over
            from asked a
            left join lateral (
                select created_at from session.entries
                where tenant_id = $1 and session_id = $2 and seq > a.seq and run_id = a.run_id
                  and kind = 'called' and body->>'call' = a.call
                order by seq limit 1) b on true
            left join lateral (
                select created_at, (body->'failed')::boolean as failed, body->'record' as record,
                       case when (body->'failed')::boolean then left(body->>'output', 500) end as error
                from session.entries
                where tenant_id = $1 and session_id = $2 and seq > a.seq and run_id = a.run_id
                  and kind = 'returned' and body->>'call' = a.call
                order by seq limit 1) r on true
            left join lateral (
                select body->>'note' as note from session.entries
                where r.created_at is null and tenant_id = $1 and session_id = $2 and seq > a.seq
                  and run_id = a.run_id and kind = 'noted'
                  and body->>'note' in ('asked', 'allowed') and body->>'text' = a.call
                order by seq desc limit 1) n on true
            left join session.runs e on e.tenant_id = $1 and e.run_id = a.run_id
            order by a.seq, a.place";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(run.map(RunId::as_uuid))
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        if rows.is_empty() {
            // No rows: either there are no calls, or the tenant has no such session.
            self.session(tenant, session).await?;
        }
        Ok(rows.into_iter().map(ToolCallView::from).collect())
    }

    /// Returns the session of a turn, ended or not.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such turn.
    pub async fn session_of_run(self, tenant: TenantId, run: RunId) -> Result<SessionId, Error> {
        // A turn has the id of its first message.
        const SQL: &str = "
            select session_id from session.runs where tenant_id = $1 and run_id = $2
            union all
            select session_id from session.inbox
            where tenant_id = $1 and message_id = $2 and run_id = $2
            limit 1";
        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        let missing = || Error::NotFound { what: "run", name: run.to_string() };
        found.map(SessionId::from).ok_or_else(missing)
    }
}

#[derive(FromRow)]
struct Row {
    call: String,
    run_id: Uuid,
    tool: String,
    created_at: jiff_sqlx::Timestamp,
    begun_at: Option<jiff_sqlx::Timestamp>,
    returned_at: Option<jiff_sqlx::Timestamp>,
    failed: bool,
    error: Option<String>,
    record: Option<Json<CallRecord>>,
    note: Option<String>,
    is_over: bool,
}

impl From<Row> for ToolCallView {
    fn from(row: Row) -> Self {
        let state = match (&row.returned_at, row.is_over) {
            (Some(_), _) if row.failed => ToolCallState::Failed,
            (Some(_), _) => ToolCallState::Completed,
            (None, true) => ToolCallState::Abandoned,
            (None, false) if row.begun_at.is_some() => ToolCallState::Running,
            (None, false) if row.note.as_deref() == Some("asked") => ToolCallState::WaitingApproval,
            (None, false) => ToolCallState::Requested,
        };
        let record = row.record.map(|record| record.0).unwrap_or_default();
        let began = Timestamp::from_millisecond(record.started_at_ms).ok();
        let began = began.filter(|_| record.started_at_ms != 0);
        let took = SignedDuration::from_millis(i64::try_from(record.took_ms).unwrap_or(i64::MAX));
        Self {
            id: row.call,
            run: row.run_id.into(),
            tool: row.tool,
            state,
            requested_at: row.created_at.to_jiff(),
            started_at: began.or_else(|| row.begun_at.map(|at| at.to_jiff())),
            ended_at: began.and_then(|at| at.checked_add(took).ok()),
            cost_micros: record.cost_micros,
            error: row.error,
            details: record.details,
        }
    }
}
