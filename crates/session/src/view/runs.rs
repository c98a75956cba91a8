//! Runs: those that have ended, and the one of a session that has not.

use holdfast_types::{AgentId, RunId, SessionId, TenantId};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::FromRow;
use uuid::Uuid;

use super::{EntryRow, ListCursor, Views, entries_of, reply, usage};
use crate::{EntryView, Error, RunView, TurnOutcome};

/// Query for runs; the parameter is its condition.
macro_rules! run {
    ($($which:tt)+) => {
        concat!(
            "select r.run_id, r.session_id, r.agent_id, r.outcome, r.reason, r.steps, r.model,
                    r.input_tokens, r.cached_tokens, r.output_tokens, r.cost_micros, r.channel,
                    r.person, e.body->>'text' as text, e.body->>'note' as note, r.started_at,
                    r.finished_at
             from session.runs r
             left join session.entries e on e.tenant_id = r.tenant_id
                   and e.session_id = r.session_id and e.seq = r.reply_seq
             where r.tenant_id = $1 and ",
            $($which)+
        )
    };
}

/// Which runs a list has; `None` excludes nothing.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    pub session: Option<SessionId>,
    pub agent: Option<AgentId>,
    pub outcome: Option<TurnOutcome>,
    /// Model that answered last.
    pub model: Option<String>,
    /// Only runs that ended at this time or later.
    pub since: Option<Timestamp>,
    /// Only runs that ended before this time.
    pub until: Option<Timestamp>,
    /// In millionths of a US dollar.
    pub min_cost_micros: u64,
    pub channel: Option<String>,
    pub person: Option<String>,
    pub limit: i64,
    /// Only runs after this place in the list.
    pub after: Option<ListCursor>,
}

/// A run that has not ended: it runs, or its session waits for a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    pub id: RunId,
    pub session: SessionId,
    pub agent: AgentId,
    /// Time of its first entry, or when its message was accepted.
    pub started_at: Timestamp,
}

impl RunView {
    /// Place in a list.
    #[must_use]
    pub const fn cursor(&self) -> ListCursor {
        ListCursor { at: self.finished_at, id: self.id.as_uuid() }
    }
}

impl Views<'_> {
    /// Returns runs that have ended, the newest first.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn runs(self, tenant: TenantId, filter: RunFilter) -> Result<Vec<RunView>, Error> {
        macro_rules! listed {
            ($which:literal) => {
                run!(concat!(
                    $which,
                    " and ($3::uuid is null or r.agent_id = $3)
                      and ($4::text is null or r.outcome = $4)
                      and ($5::text is null or r.model = $5)
                      and ($6::timestamptz is null or r.finished_at >= $6)
                      and ($7::timestamptz is null or r.finished_at < $7)
                      and r.cost_micros >= $8
                      and ($9::text is null or r.channel = $9)
                      and ($10::text is null or r.person = $10)
                      and ($11::timestamptz is null or (r.finished_at, r.run_id) < ($11, $12::uuid))
                      order by r.finished_at desc, r.run_id desc limit $13"
                ))
            };
        }
        const ALL: &str = listed!("$2::uuid is null and r.steps >= 0");
        const OF_SESSION: &str = listed!("r.session_id = $2");
        let mut tx = self.pools.tenant(tenant).await?;
        let sql = if filter.session.is_some() { OF_SESSION } else { ALL };
        let rows: Vec<RunRow> = holdfast_pg::query_as(sql)
            .bind(tenant.as_uuid())
            .bind(filter.session.map(SessionId::as_uuid))
            .bind(filter.agent.map(AgentId::as_uuid))
            .bind(filter.outcome.map(TurnOutcome::as_str))
            .bind(filter.model)
            .bind(filter.since.map(|at| at.to_sqlx()))
            .bind(filter.until.map(|at| at.to_sqlx()))
            .bind(i64::try_from(filter.min_cost_micros).unwrap_or(i64::MAX))
            .bind(filter.channel)
            .bind(filter.person)
            .bind(filter.after.map(|after| after.at.to_sqlx()))
            .bind(filter.after.map(|after| after.id))
            .bind(filter.limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        if let Some(session) = filter.session
            && rows.is_empty()
        {
            self.session(tenant, session).await?;
        }
        Ok(rows.into_iter().map(RunView::from).collect())
    }

    /// Returns the last run that has ended of each of these sessions, where there is one.
    pub async fn last_runs(
        self,
        tenant: TenantId,
        sessions: &[SessionId],
    ) -> Result<Vec<(SessionId, RunId)>, Error> {
        const SQL: &str = "
            select distinct on (session_id) session_id, run_id from session.runs
            where tenant_id = $1 and session_id = any($2)
            order by session_id, finished_at desc";
        let ids: Vec<Uuid> = sessions.iter().map(|session| session.as_uuid()).collect();
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, Uuid)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(ids)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(|(session, run)| (session.into(), run.into())).collect())
    }

    /// Returns entries of a run after a seq, oldest first.
    pub async fn run_entries(
        self,
        tenant: TenantId,
        (session, run): (SessionId, RunId),
        after: i64,
        limit: i64,
    ) -> Result<Vec<EntryView>, Error> {
        const SQL: &str = "
            select seq, run_id, body, created_at from session.entries
            where tenant_id = $1 and session_id = $2 and run_id = $3 and seq > $4
            order by seq limit $5";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<EntryRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(run.as_uuid())
            .bind(after)
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(EntryView::from).collect())
    }

    /// Returns a finished run and its journal entries.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such run.
    pub async fn run(
        self,
        tenant: TenantId,
        run: RunId,
    ) -> Result<(RunView, Vec<EntryView>), Error> {
        const RUN: &str = run!("r.run_id = $2");
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<RunRow> = holdfast_pg::query_as(RUN)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        let Some(row) = row else {
            return Err(Error::NotFound { what: "run", name: run.to_string() });
        };
        let entries = entries_of(&mut tx, row.session_id.into(), run).await?;
        tx.finish_reading();
        Ok((row.into(), entries))
    }

    /// Returns a run that has not ended, and its journal entries so far.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such run, or it has ended.
    pub async fn open_run(
        self,
        tenant: TenantId,
        run: RunId,
    ) -> Result<(OpenRun, Vec<EntryView>), Error> {
        // A turn has the id of its first message, which is finished with it.
        const SQL: &str = "
            select i.session_id, s.agent_id, i.accepted_at
            from session.inbox i join session.sessions s using (tenant_id, session_id)
            where i.tenant_id = $1 and i.message_id = $2 and i.state in ('new', 'seen')";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<(Uuid, Uuid, jiff_sqlx::Timestamp)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        let Some((session, agent, at)) = row else {
            tx.finish_reading();
            return Err(Error::NotFound { what: "run", name: run.to_string() });
        };
        let session = SessionId::from(session);
        let entries = entries_of(&mut tx, session, run).await?;
        tx.finish_reading();
        let started_at = entries.first().map_or_else(|| at.to_jiff(), |entry| entry.created_at);
        Ok((OpenRun { id: run, session, agent: agent.into(), started_at }, entries))
    }
}

#[derive(FromRow)]
struct RunRow {
    run_id: Uuid,
    session_id: Uuid,
    agent_id: Uuid,
    outcome: String,
    reason: Option<String>,
    steps: i32,
    model: String,
    input_tokens: i64,
    cached_tokens: i64,
    output_tokens: i64,
    cost_micros: i64,
    channel: Option<String>,
    person: Option<String>,
    text: Option<String>,
    /// Kind of the reply's note, if it is one.
    note: Option<String>,
    started_at: jiff_sqlx::Timestamp,
    finished_at: jiff_sqlx::Timestamp,
}

impl From<RunRow> for RunView {
    fn from(row: RunRow) -> Self {
        Self {
            id: row.run_id.into(),
            session: row.session_id.into(),
            agent: row.agent_id.into(),
            outcome: TurnOutcome::parse(&row.outcome),
            reason: row.reason,
            steps: row.steps,
            model: row.model,
            usage: usage(row.input_tokens, row.cached_tokens, row.output_tokens),
            text: reply(row.text, row.note.as_deref()).0,
            cost_micros: u64::try_from(row.cost_micros).unwrap_or(0),
            channel: row.channel,
            person: row.person,
            started_at: row.started_at.to_jiff(),
            finished_at: row.finished_at.to_jiff(),
        }
    }
}
