//! Subagents: sessions that work on a task for another session, the requester, which is told how
//! they ended.
//!
//! A subagent's task is the first message of its session, so any runner can do it. Its end is
//! announced by a message to the requester, stored once under the subagent's id. Any process that
//! notices the end can announce it, and a crash on either side loses nothing (spec SUB-004).
//!
//! | end | outcome |
//! |---|---|
//! | its first message was answered | ok |
//! | that message failed, was cancelled or became a dead letter | error |
//! | its deadline passed 5 s ago | timeout; a turn that still runs is cancelled |
//! | its session was deleted | unknown |

pub mod chains;
pub mod family;

use std::time::Duration;

use holdfast_pg::TenantTx;
use holdfast_types::{
    AgentId, Body, QueueMode, RunId, SessionId, SessionKey, SessionKind, SessionSettings, Source,
    Target, TenantId, Thinking,
};
use jiff::Timestamp;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{
    Acceptance, Error, NewMessage, SessionOwner, Sessions,
    delete::delete_without_memories,
    sessions::{check_session_limit, lock, priority, session_not_found, tenant_of},
};

pub const SUBAGENT_EVENT: &str = "subagent";

/// How long a tool call that waits for a subagent may be interrupted before the requester gets an
/// announcement instead. Longer than another runner needs to repeat the call.
const AWAIT_GRACE: Duration = Duration::from_secs(90);

/// Time after a subagent's deadline until it is announced as timed out (spec C-44). A turn that
/// ends by itself at its limit is announced with its result instead.
const ANNOUNCEMENT_GRACE: Duration = Duration::from_secs(5);

/// Treatment of a subagent's session after the announcement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cleanup {
    #[default]
    Keep,
    Delete,
}

/// Tools and files that a subagent may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubagentAccess {
    /// Name of the tool bundle; empty if none was named.
    pub bundle: String,
    /// Tools of the bundle; `None` allows all tools of the agent.
    pub tools: Option<Vec<String>>,
    /// Paths that the file tools may read; `None` allows all.
    pub fs_read: Option<Vec<String>>,
    /// Paths that the file tools may write; `None` allows all.
    pub fs_write: Option<Vec<String>>,
    /// The agent whose files the subagent uses, a copy of the requester's; `None` is the subagent's
    /// own agent.
    pub branch: Option<AgentId>,
    /// The part of the agent's files that the requester sees. Stored as it is; `None` if an earlier
    /// version started the subagent.
    pub files_of: Option<String>,
}

/// Position of a subagent in a chain run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPosition {
    pub run: RunId,
    /// Index of the stage, from 0.
    pub stage: i32,
    pub step: String,
}

#[derive(Debug, Clone)]
pub struct NewSubagent {
    pub parent: SessionId,
    /// Session key; a repeated request has the same key.
    pub key: SessionKey,
    /// Agent that does the task.
    pub agent: AgentId,
    pub label: String,
    pub task: String,
    /// The task may repeat text from outside.
    pub outside: bool,
    /// Model to use instead of the agent's.
    pub model: Option<String>,
    /// Thinking level to use instead of the default.
    pub thinking: Option<Thinking>,
    /// Treatment of the session after the announcement.
    pub cleanup: Cleanup,
    pub max_duration: Duration,
    /// Maximum number of model calls.
    pub max_steps: Option<i32>,
    pub max_tokens: Option<i64>,
    /// Maximum number of subagents of the parent that run at once.
    pub most: i64,
    /// Tools and files that it may use.
    pub given: SubagentAccess,
    /// How long the calling tool waits for the result, if it waits. Its end is then returned to
    /// this call instead of being announced.
    pub await_timeout: Option<Duration>,
    /// Position in a chain run, if it belongs to one.
    pub place: Option<ChainPosition>,
    /// W3C traceparent of the request.
    pub trace: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubagentOutcome {
    Ok,
    /// The task failed, was cancelled or was given up.
    Error,
    /// The deadline passed.
    Timeout,
    /// The session was deleted, so that its end is unknown.
    Unknown,
}

impl SubagentOutcome {
    /// Returns the name that the database stores.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }

    fn parse(word: &str) -> Self {
        match word {
            "ok" => Self::Ok,
            "error" => Self::Error,
            "timeout" => Self::Timeout,
            _ => Self::Unknown,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subagent {
    pub session: SessionId,
    pub parent: SessionId,
    pub label: String,
    pub task: String,
    /// Maximum number of model calls.
    pub max_steps: Option<i32>,
    pub max_tokens: Option<i64>,
    /// Time until the deadline.
    pub left: Duration,
    /// `None` while the subagent has not ended.
    pub outcome: Option<SubagentOutcome>,
    /// Text of the answer; empty if there is none.
    pub result: String,
    /// Reason why there is no answer.
    pub error: String,
    /// Number of tokens used; 0 until the end.
    pub tokens: i64,
    /// Duration; until now, if it has not ended.
    pub took: Duration,
    /// Tools and files that it may use.
    pub given: SubagentAccess,
    /// Position in a chain run, if it belongs to one.
    pub place: Option<ChainPosition>,
    /// Session key; empty once the session is deleted.
    pub key: String,
    pub started_at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubagentFilter {
    /// Only subagents of this session.
    pub parent: Option<SessionId>,
    /// Only subagents that have not ended.
    pub open: bool,
    /// Maximum number of subagents; the newest come first.
    pub most: i64,
}

#[derive(Debug, Clone, Default)]
pub struct AnnouncementResult {
    /// The message to the requester; `None` if its session is deleted, a waiting call got the
    /// result, or an earlier try told it in other words.
    pub accepted: Option<Acceptance>,
    /// The runner that still ran the subagent when its deadline passed.
    pub running: Option<SessionOwner>,
}

#[derive(FromRow)]
struct Row {
    session_id: Uuid,
    parent_id: Uuid,
    label: String,
    task: String,
    cleanup: String,
    max_steps: Option<i32>,
    max_tokens: Option<i64>,
    left_secs: f64,
    outcome: Option<String>,
    result: String,
    error: String,
    tokens: i64,
    took_secs: f64,
    announced: bool,
    heard: bool,
    bundle: String,
    tools: Option<Vec<String>>,
    fs_read: Option<Vec<String>>,
    fs_write: Option<Vec<String>>,
    branch: Option<Uuid>,
    files_of: Option<String>,
    chain_run_id: Option<Uuid>,
    stage: Option<i32>,
    step: Option<String>,
    key: String,
    started_us: i64,
}

impl Row {
    fn is_new(&self) -> bool {
        self.outcome.is_some() && !self.announced
    }
}

/// Query for subagents; the parameter is its condition.
macro_rules! subagent {
    ($which:literal) => {
        concat!(
            "select session_id, parent_id, label, task, cleanup, max_steps, max_tokens,
                    greatest(0, extract(epoch from deadline_at - clock_timestamp()))::float8
                        as left_secs,
                    outcome, result, error, tokens,
                    extract(epoch from coalesce(finished_at, clock_timestamp()) - started_at)::float8
                        as took_secs,
                    announced_at is not null as announced, heard_at is not null as heard,
                    bundle, tools, fs_read, fs_write, branch, files_of, chain_run_id, stage, step,
                    coalesce((select s.key from session.sessions s
                              where s.tenant_id = subagents.tenant_id
                                and s.session_id = subagents.session_id), '') as key,
                    (extract(epoch from started_at) * 1000000)::bigint as started_us
             from session.subagents where tenant_id = $1 and ",
            $which
        )
    };
}

/// Subagents and chain runs, from [`Sessions::subagents`].
#[derive(Debug, Clone, Copy)]
pub struct Subagents<'a> {
    pub(crate) sessions: &'a Sessions,
}

impl Sessions {
    #[must_use]
    pub const fn subagents(&self) -> Subagents<'_> {
        Subagents { sessions: self }
    }
}

impl Subagents<'_> {
    /// Creates a subagent and sends it its task. A repeated request with the same key returns the
    /// same subagent.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the parent has too many running subagents, [`Error::TooManySessions`]
    /// if the tenant has too many sessions; nothing is created then.
    pub async fn spawn(
        self,
        tenant: TenantId,
        new: NewSubagent,
    ) -> Result<(SessionId, Acceptance), Error> {
        const MAKE: &str = "
            with made as (
                insert into session.sessions
                    (tenant_id, session_id, key, kind, agent_id, parent_id, label, settings)
                values ($1, $2, $3, 'subagent', $4, $5, $6, $7)
                on conflict on constraint sessions_key do nothing
                returning session_id),
            lease as (
                insert into session.session_lease (tenant_id, session_id, priority)
                -- A job's subagent comes no earlier than the job.
                select $1, session_id,
                       greatest($22::smallint, (select priority from session.session_lease
                                                where tenant_id = $1 and session_id = $5))
                from made)
            insert into session.subagents
                (tenant_id, session_id, parent_id, label, task, cleanup, max_steps, max_tokens,
                 deadline_at, bundle, tools, fs_read, fs_write, awaited_until, chain_run_id, stage,
                 step, branch, files_of)
            select $1, session_id, $5, $6, $8, $9, $10, $11,
                   clock_timestamp() + $12 * interval '1 second', $13, $14, $15, $16,
                   clock_timestamp() + $17 * interval '1 second', $18, $19, $20, $21, $23
            from made";

        let known = self.sessions.views().find(tenant, &new.key).await?.is_some();
        if !known {
            let mut tx = self.sessions.pools.tenant(tenant).await?;
            // Serialises the spawns of one parent: each counts those before it.
            lock(&mut tx, new.parent).await?;
            check_limits(&mut tx, &new).await?;
            let settings = SessionSettings {
                model: new.model.clone(),
                thinking: new.thinking,
                ..SessionSettings::default()
            };
            holdfast_pg::query(MAKE)
                .bind(tenant.as_uuid())
                .bind(SessionId::generate().as_uuid())
                .bind(new.key.as_str())
                .bind(new.agent.as_uuid())
                .bind(new.parent.as_uuid())
                .bind(&new.label)
                .bind(Json(settings))
                .bind(&new.task)
                .bind(match new.cleanup {
                    Cleanup::Keep => "keep",
                    Cleanup::Delete => "delete",
                })
                .bind(new.max_steps)
                .bind(new.max_tokens)
                .bind(new.max_duration.as_secs_f64())
                .bind(&new.given.bundle)
                .bind(&new.given.tools)
                .bind(&new.given.fs_read)
                .bind(&new.given.fs_write)
                .bind(new.await_timeout.map(|wait| (wait + AWAIT_GRACE).as_secs_f64()))
                .bind(new.place.as_ref().map(|place| place.run.as_uuid()))
                .bind(new.place.as_ref().map(|place| place.stage))
                .bind(new.place.as_ref().map(|place| place.step.as_str()))
                .bind(new.given.branch.map(AgentId::as_uuid))
                .bind(priority(SessionKind::Subagent))
                .bind(&new.given.files_of)
                .execute(tx.conn())
                .await?;
            tx.commit().await?;
        }
        // If the process crashes before this, the subagent ends with a timeout, which is announced.
        let accepted = self.sessions.ingest(tenant, task_message(&new)).await?;
        Ok((accepted.session, accepted))
    }

    /// Returns the subagent whose session this is; `None` if the session is not a subagent.
    pub async fn get(
        self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Option<Subagent>, Error> {
        Ok(self.row(tenant, session).await?.map(Subagent::from))
    }

    /// Returns the child subagents of a session, newest first, at most 200.
    pub async fn children(
        self,
        tenant: TenantId,
        parent: SessionId,
    ) -> Result<Vec<Subagent>, Error> {
        const SQL: &str = subagent!(
            "session_id in (select session_id from session.sessions
                            where tenant_id = $1 and parent_id = $2)
             order by started_at desc limit 200"
        );
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(parent.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(Subagent::from).collect())
    }

    /// Returns subagents that have ended or timed out, and whose end is to be announced now, ordered
    /// by session; with `after`, only those after it.
    pub async fn ended(
        self,
        after: Option<SessionId>,
        most: i64,
    ) -> Result<Vec<(TenantId, SessionId)>, Error> {
        const SQL: &str = "
            select a.tenant_id, a.session_id from session.subagents a
            where a.announced_at is null
              and (a.announce_at is null or a.announce_at <= clock_timestamp()) and (
                case when a.heard_at is not null
                    then a.heard_at < clock_timestamp() - interval '2 minutes'
                    else coalesce(a.awaited_until < clock_timestamp(), true) end)
              and (a.outcome is not null
                or a.deadline_at < clock_timestamp() - $2 * interval '1 second'
                or exists (select from session.inbox i
                           where i.session_id = a.session_id and i.tenant_id = a.tenant_id
                             and i.seq = 1 and i.state in ('done', 'dead')))
              and a.session_id > $3
            order by a.session_id limit $1";
        let mut once = self.sessions.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid)> = holdfast_pg::query_as(SQL)
            .bind(most)
            .bind(ANNOUNCEMENT_GRACE.as_secs_f64())
            .bind(after.map_or(Uuid::nil(), SessionId::as_uuid))
            .fetch_all(once.conn())
            .await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, session)| (tenant_of(tenant), session.into())).collect())
    }

    /// Postpones the announcement of an end that could not be announced: by 1 s the first time, then
    /// by twice as long each time, up to a minute.
    pub async fn postpone(self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        const SQL: &str = "
            update session.subagents
            set announce_tries = least(announce_tries + 1, 100),
                announce_at = clock_timestamp()
                    + least(60, power(2, least(announce_tries, 10))) * interval '1 second'
            where tenant_id = $1 and session_id = $2 and announced_at is null";
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Announces a subagent's end to the requester, with the text that `tell` returns.
    ///
    /// The announcement is stored once, even if several processes make it or crash meanwhile.
    /// Returns `None` if there is nothing to announce.
    ///
    /// # Errors
    ///
    /// [`Error::SessionFull`] if the requester's inbox is full: try again later.
    pub async fn announce(
        self,
        tenant: TenantId,
        session: SessionId,
        tell: impl FnOnce(&Subagent) -> String + Send,
    ) -> Result<Option<AnnouncementResult>, Error> {
        let row = self.close(tenant, session).await?;
        let Some(row) = row.filter(Row::is_new) else { return Ok(None) };
        let (delete, heard) = (row.cleanup == "delete", row.heard);
        let ended = Subagent::from(row);
        let mut announced = AnnouncementResult {
            running: self.cancel_timed_out(tenant, &ended).await?,
            ..AnnouncementResult::default()
        };
        if !heard {
            let message = self.announcement_message(tenant, &ended, tell).await?;
            announced.accepted = self.tell_once(tenant, message).await?;
        }
        self.mark_announced(tenant, session).await?;
        // A turn that still runs is fenced by the deletion.
        if delete {
            match delete_without_memories(&self.sessions.pools, tenant, session).await {
                // `NotFound`: another process has deleted the session.
                Ok(()) | Err(Error::NotFound { .. } | Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(announced))
    }

    /// Records the end of a subagent that belongs to a chain, without an announcement. Returns
    /// `None` if it has not ended, or if its end [was handled before](Self::mark_announced).
    pub async fn settle(
        self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Option<(Subagent, Option<SessionOwner>)>, Error> {
        let row = self.close(tenant, session).await?;
        let Some(row) = row.filter(Row::is_new) else { return Ok(None) };
        let ended = Subagent::from(row);
        let running = self.cancel_timed_out(tenant, &ended).await?;
        Ok(Some((ended, running)))
    }

    /// Returns an ended subagent to the call that waits for it; its end is then not announced.
    /// Returns `None` if it has not ended; the announcement is then delayed a little longer.
    pub async fn await_end(
        self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Option<Subagent>, Error> {
        const SQL: &str = "
            update session.subagents
            set awaited_until = clock_timestamp() + $3 * interval '1 second',
                heard_at = case when outcome is null then null
                                else coalesce(heard_at, clock_timestamp()) end
            where tenant_id = $1 and session_id = $2 and announced_at is null";
        let row = self.close(tenant, session).await?;
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(AWAIT_GRACE.as_secs_f64())
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(row.filter(|row| row.outcome.is_some()).map(Subagent::from))
    }

    /// Stops waiting for a subagent: its end will be announced.
    pub async fn stop_awaiting(self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        const SQL: &str = "
            update session.subagents set awaited_until = null
            where tenant_id = $1 and session_id = $2 and heard_at is null";
        self.change(SQL, tenant, session).await
    }

    /// Stops a running subagent, and returns the runner that has it. Its outcome is an error, which
    /// is announced.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is none, [`Error::Conflict`] if it has ended.
    pub async fn stop(
        self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Option<SessionOwner>, Error> {
        const SQL: &str = "
            update session.subagents
            set outcome = 'error', error = 'stopped', finished_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and outcome is null";
        let known = self.row(tenant, session).await?;
        match known.ok_or_else(|| no_subagent(session))?.outcome {
            None => self.change(SQL, tenant, session).await?,
            Some(outcome) => {
                return Err(Error::Conflict(format!(
                    "the subagent has ended already (`{outcome}`)"
                )));
            }
        }
        match self.sessions.cancel(tenant, session).await {
            Err(Error::NotFound { .. }) => Ok(None),
            cancelled => Ok(cancelled?.owner()),
        }
    }

    /// Records that a subagent's end was handled.
    pub async fn mark_announced(self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        const SQL: &str = "
            update session.subagents set announced_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2";
        self.change(SQL, tenant, session).await
    }

    /// Returns subagents of a tenant, newest first.
    pub async fn list(
        self,
        tenant: TenantId,
        filter: &SubagentFilter,
    ) -> Result<Vec<Subagent>, Error> {
        const SQL: &str = subagent!(
            "($2::uuid is null or parent_id = $2) and (not $3 or outcome is null)
             order by started_at desc limit $4"
        );
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(filter.parent.map(SessionId::as_uuid))
            .bind(filter.open)
            .bind(filter.most)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(Subagent::from).collect())
    }

    async fn change(
        self,
        sql: &'static str,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<(), Error> {
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(sql)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Cancels the turn of a subagent that timed out, and returns the runner that has it.
    async fn cancel_timed_out(
        self,
        tenant: TenantId,
        ended: &Subagent,
    ) -> Result<Option<SessionOwner>, Error> {
        if ended.outcome != Some(SubagentOutcome::Timeout) {
            return Ok(None);
        }
        match self.sessions.cancel(tenant, ended.session).await {
            Err(Error::NotFound { .. }) => Ok(None),
            cancelled => Ok(cancelled?.owner()),
        }
    }

    /// Records a subagent's end, if it has ended; later calls change nothing. Returns `None` if
    /// there is no such subagent.
    async fn close(self, tenant: TenantId, session: SessionId) -> Result<Option<Row>, Error> {
        const SQL: &str = "
            with ended as (
                select i.state, i.outcome, i.reason, e.body->>'text' as text,
                       s.input_tokens + s.output_tokens as tokens
                from session.sessions s
                left join session.inbox i on i.tenant_id = s.tenant_id
                      and i.session_id = s.session_id and i.seq = 1
                left join session.runs r on r.tenant_id = i.tenant_id and r.run_id = i.run_id
                left join session.entries e on e.tenant_id = r.tenant_id
                      and e.session_id = r.session_id and e.seq = r.reply_seq
                where s.tenant_id = $1 and s.session_id = $2)
            update session.subagents a
            set outcome = case
                    when not exists (select from ended) then 'unknown'
                    when (select state in ('done', 'dead') from ended)
                        then case (select outcome from ended) when 'completed' then 'ok' else 'error' end
                    else 'timeout' end,
                result = coalesce((select text from ended where outcome = 'completed'), ''),
                error = coalesce((select reason from ended where outcome <> 'completed'), ''),
                tokens = coalesce((select tokens from ended), 0),
                finished_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and outcome is null
              and (deadline_at < clock_timestamp() - $3 * interval '1 second'
                   or not exists (select from ended)
                   or (select state in ('done', 'dead') from ended))";

        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(ANNOUNCEMENT_GRACE.as_secs_f64())
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        self.row(tenant, session).await
    }

    async fn row(self, tenant: TenantId, session: SessionId) -> Result<Option<Row>, Error> {
        const SQL: &str = subagent!("session_id = $2");
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let row: Option<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(row)
    }

    /// Returns the subagents of a chain run, oldest first within each stage.
    pub(crate) async fn chain_steps(
        self,
        tenant: TenantId,
        run: RunId,
    ) -> Result<Vec<Subagent>, Error> {
        const SQL: &str = subagent!("chain_run_id = $2 order by stage, started_at, session_id");
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(Subagent::from).collect())
    }

    /// Builds the message to the requester; `None` if its session is deleted.
    async fn announcement_message(
        self,
        tenant: TenantId,
        ended: &Subagent,
        tell: impl FnOnce(&Subagent) -> String,
    ) -> Result<Option<NewMessage>, Error> {
        let key = ended.session.to_string();
        self.event_message(tenant, ended.parent, SUBAGENT_EVENT, key, tell(ended)).await
    }

    /// Sends a requester its message, if there is one. Returns `None` if an earlier try, which
    /// ended before it was recorded, told the same in other words: the requester is told once.
    pub(crate) async fn tell_once(
        self,
        tenant: TenantId,
        message: Option<NewMessage>,
    ) -> Result<Option<Acceptance>, Error> {
        let Some(message) = message else { return Ok(None) };
        match self.sessions.ingest(tenant, message).await {
            Err(Error::RequestReused(_)) => Ok(None),
            told => told.map(Some),
        }
    }

    /// Builds an event message for a session. The reply goes to the session's latest target, or,
    /// before its first turn has ended, to that of its newest message. Returns `None` if the session
    /// is deleted.
    pub(crate) async fn event_message(
        self,
        tenant: TenantId,
        session: SessionId,
        event: &str,
        idem_key: String,
        text: String,
    ) -> Result<Option<NewMessage>, Error> {
        let parent = match self.sessions.views().session(tenant, session).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            parent => parent?,
        };
        let key: SessionKey = parent.key.parse().map_err(|_| session_not_found(session))?;
        // Replies between agents do not go to a channel.
        let target = match parent.last_target {
            _ if key.kind() == SessionKind::Subagent => None,
            None => self.newest_target(tenant, session).await?,
            latest => latest,
        };
        // The text repeats what subagents wrote.
        let body = Body { event: Some(event.to_owned()), outside: true, ..Body::text(text) };
        Ok(Some(NewMessage {
            key,
            agent: parent.agent,
            label: None,
            source: Source::Internal(event.to_owned()),
            idem_key,
            body,
            target,
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: None,
        }))
    }

    async fn newest_target(
        self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Option<Target>, Error> {
        const SQL: &str = "
            select target from session.inbox
            where tenant_id = $1 and session_id = $2 and target is not null
            order by seq desc limit 1";
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let newest: Option<Json<Target>> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(newest.map(|target| target.0))
    }
}

impl From<Row> for Subagent {
    fn from(row: Row) -> Self {
        let secs = |secs: f64| Duration::try_from_secs_f64(secs).unwrap_or_default();
        Self {
            session: row.session_id.into(),
            parent: row.parent_id.into(),
            label: row.label,
            task: row.task,
            max_steps: row.max_steps,
            max_tokens: row.max_tokens,
            left: secs(row.left_secs),
            outcome: row.outcome.as_deref().map(SubagentOutcome::parse),
            result: row.result,
            error: row.error,
            tokens: row.tokens,
            took: secs(row.took_secs),
            given: SubagentAccess {
                bundle: row.bundle,
                tools: row.tools,
                fs_read: row.fs_read,
                fs_write: row.fs_write,
                branch: row.branch.map(AgentId::from),
                files_of: row.files_of,
            },
            place: row.chain_run_id.zip(row.stage).map(|(run, stage)| ChainPosition {
                run: run.into(),
                stage,
                step: row.step.unwrap_or_default(),
            }),
            key: row.key,
            started_at: Timestamp::from_microsecond(row.started_us).unwrap_or_default(),
        }
    }
}

/// Checks that the parent may have another subagent, and the tenant another session.
async fn check_limits(tx: &mut TenantTx, new: &NewSubagent) -> Result<(), Error> {
    const COUNT_RUNNING: &str = "
        select count(*) from session.subagents
        where tenant_id = $1 and parent_id = $2 and outcome is null";

    let tenant = tx.tenant();
    let running: i64 = holdfast_pg::query_scalar(COUNT_RUNNING)
        .bind(tenant.as_uuid())
        .bind(new.parent.as_uuid())
        .fetch_one(tx.conn())
        .await?;
    if running >= new.most {
        return Err(Error::Conflict(format!(
            "{running} subagents of this session run already, and {} is the most: wait for one to \
             end, or do it yourself",
            new.most
        )));
    }
    check_session_limit(tx, 1).await
}

fn no_subagent(session: SessionId) -> Error {
    Error::NotFound { what: "subagent", name: session.to_string() }
}

/// Builds the message that contains a subagent's task.
fn task_message(new: &NewSubagent) -> NewMessage {
    NewMessage {
        key: new.key.clone(),
        agent: new.agent,
        label: None,
        source: Source::Internal(SUBAGENT_EVENT.to_owned()),
        idem_key: format!("task:{}", new.key.as_str()),
        body: Body { outside: new.outside, ..Body::text(new.task.clone()) },
        target: None,
        mode: QueueMode::Steer,
        debounce: Duration::ZERO,
        trace: new.trace.clone(),
    }
}
