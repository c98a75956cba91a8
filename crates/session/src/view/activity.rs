//! Activity in a tenant: sessions that run or wait, and counts of things that wait for a person.

use holdfast_types::{AgentId, RunId, RunnerId, SessionId, TenantId, Wait};
use jiff::Timestamp;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use super::Views;
use crate::{Error, SessionView};

/// Condition of a query: the dead message in this table was accepted again. `$1` is the tenant.
macro_rules! is_requeued {
    ($inbox:literal) => {
        concat!(
            "exists (
                select from session.inbox again
                where again.tenant_id = $1 and again.source in ('requeue', 'schedule', 'heartbeat')
                  and again.idem_key = 'msg_' || replace(",
            $inbox,
            ".message_id::text, '-', ''))"
        )
    };
}
pub(crate) use is_requeued;

/// Counts of [`Views::inbox_counts`] stop here.
const MAX_COUNT: i64 = 1_000;

/// Age up to which failures wait for a person.
const FAILURES_FOR: &str = "7 days";

/// Activity of a session at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// A model answers, or a step is prepared.
    Thinking,
    Calling,
    WaitingApproval,
    /// Ready, and no runner has it.
    Queued,
    WaitingMessage,
    WaitingEvent,
    Paused,
}

impl Doing {
    pub const ALL: [Self; 7] = [
        Self::Thinking,
        Self::Calling,
        Self::WaitingApproval,
        Self::Queued,
        Self::WaitingMessage,
        Self::WaitingEvent,
        Self::Paused,
    ];

    /// Name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Thinking => "thinking",
            Self::Calling => "calling",
            Self::WaitingApproval => "waiting_approval",
            Self::Queued => "queued",
            Self::WaitingMessage => "waiting_message",
            Self::WaitingEvent => "waiting_event",
            Self::Paused => "paused",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|doing| doing.as_str() == word)
    }
}

/// Filter of the sessions that [`Views::activities`] returns.
#[derive(Debug, Clone)]
pub struct ActivityFilter {
    pub agent: Option<AgentId>,
    pub doing: Vec<Doing>,
    pub limit: i64,
    /// Only sessions after this one in the list.
    pub after: Option<SessionId>,
}

/// A session that runs or waits.
#[derive(Debug, Clone)]
pub struct Activity {
    pub session: SessionView,
    pub doing: Doing,
    pub since: Timestamp,
    /// `None` if no turn has begun.
    pub run: Option<RunId>,
    /// Number of the step in the turn, from 0.
    pub step: u32,
    /// Tools that are called or wait for an approval.
    pub tools: Vec<String>,
    /// Behaviour that works, with its parameters.
    pub behavior: Option<String>,
    pub runner: Option<RunnerId>,
    /// Claims since the journal last made progress.
    pub attempts: u32,
    pub wait: Option<Wait>,
    pub wait_until: Option<Timestamp>,
    /// Beginning of the message that is answered, at most 160 characters.
    pub message: String,
}

/// Counts of what waits for a person, each at most 1000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InboxCounts {
    pub approvals: u32,
    /// Sessions that wait for a message.
    pub questions: u32,
    /// Deliveries of the last seven days that are unknown or dead.
    pub failed_deliveries: u32,
    /// Dead letters of the last seven days.
    pub dead_letters: u32,
}

/// Sessions that run or wait, each by a partial index that holds few rows.
macro_rules! busy {
    () => {
        "busy as (
            select session_id from session.session_lease where tenant_id = $1 and state = 'RUNNING'
            union
            select session_id from session.session_lease
            where tenant_id = $1 and state = 'READY' and fair_key is null and paused is null
            union
            select session_id from session.session_lease
            where tenant_id = $1 and state = 'READY' and fair_key is not null and paused is null
            union
            select session_id from session.session_lease
            where tenant_id = $1
              and (state in ('WAIT_FOR_MSG', 'WAIT_FOR_EVENT') or paused is not null))"
    };
}

/// The turn of each busy session: its messages, its newest thought, and the calls without a result.
macro_rules! turns {
    () => {
        "turns as (
            select l.session_id, l.state, l.paused, l.owner, l.attempts, l.wait, l.wait_until, l.ready_at,
                   s.updated_at, m.run_id, m.text, m.accepted_at, t.at as entry_at, t.steps,
                   coalesce(c.tools, '{}') as calls, a.tools as asked, a.since as asked_at,
                   case when l.state = 'RUNNING' then b.state->>'behavior' end as behavior
            from busy
            join session.session_lease l on l.tenant_id = $1 and l.session_id = busy.session_id
            join session.sessions s on s.tenant_id = $1 and s.session_id = busy.session_id
            left join session.behaviors b on b.tenant_id = $1 and b.session_id = busy.session_id
            left join lateral (
                select coalesce(run_id, message_id) as run_id, left(body->>'text', 160) as text,
                       accepted_at
                from session.inbox i
                where i.tenant_id = $1 and i.session_id = busy.session_id
                  and i.state in ('new', 'seen')
                order by coalesce((body->>'silent')::boolean, false), seq limit 1) m on true
            left join lateral (
                select max(e.created_at) as at, max(e.seq) filter (where e.kind = 'thought') as thought,
                       count(*) filter (where e.kind = 'thought') as steps
                from session.entries e
                where e.tenant_id = $1 and e.session_id = busy.session_id
                  and e.seq >= l.next_entry - 1000 and e.run_id = m.run_id) t on true
            left join lateral (
                select array_agg(c.call->>'tool') as tools
                from session.entries e
                cross join lateral jsonb_array_elements(e.body->'calls') as c (call)
                where e.tenant_id = $1 and e.session_id = busy.session_id and e.seq = t.thought
                  and not exists (
                      select from session.entries r
                      where r.tenant_id = $1 and r.session_id = busy.session_id and r.seq > t.thought
                        and r.kind = 'returned' and r.body->>'call' = c.call->>'id')) c on true
            left join lateral (
                select array_agg(a.tool order by a.asked_at) as tools, min(a.asked_at) as since
                from session.approvals a
                where a.tenant_id = $1 and a.session_id = busy.session_id and a.state = 'pending'
                  and a.expires_at > clock_timestamp()) a on true
            where s.kind <> '' and ($2::uuid is null or s.agent_id = $2))"
    };
}

impl Views<'_> {
    /// Returns the sessions that run or wait, the newest session first.
    pub async fn activities(
        self,
        tenant: TenantId,
        filter: ActivityFilter,
    ) -> Result<Vec<Activity>, Error> {
        const SQL: &str = concat!(
            "with ",
            busy!(),
            ", ",
            turns!(),
            ", shown as (
                select *, case
                        when paused is not null then 'paused'
                        when state = 'RUNNING' and cardinality(calls) > 0 then 'calling'
                        when state = 'RUNNING' then 'thinking'
                        when state = 'READY' then 'queued'
                        when asked is not null then 'waiting_approval'
                        when state = 'WAIT_FOR_MSG' then 'waiting_message'
                        else 'waiting_event' end as doing
                from turns)
            select session_id, doing, owner, attempts, wait, wait_until, run_id, text, steps, behavior,
                   case when doing = 'waiting_approval' then asked
                        when doing = 'calling' then calls else '{}' end as tools,
                   case doing when 'queued' then ready_at
                              when 'waiting_approval' then asked_at
                              when 'thinking' then coalesce(entry_at, accepted_at)
                              when 'calling' then entry_at end as since, updated_at
            from shown
            where doing = any($3) and ($4::uuid is null or session_id < $4)
            order by session_id desc limit $5"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<ActivityRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(filter.agent.map(AgentId::as_uuid))
            .bind(filter.doing.iter().map(|doing| doing.as_str()).collect::<Vec<_>>())
            .bind(filter.after.map(SessionId::as_uuid))
            .bind(filter.limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let ids = rows.iter().map(|row| row.session_id).collect();
        let mut sessions = self.sessions_by_id(tenant, ids).await?;
        let activity = |row: ActivityRow| {
            let id = SessionId::from(row.session_id);
            // A session that was deleted meanwhile is left out.
            let at = sessions.iter().position(|session| session.id == id)?;
            Some(row.activity(sessions.swap_remove(at)))
        };
        Ok(rows.into_iter().filter_map(activity).collect())
    }

    /// Counts what waits for a person.
    pub async fn inbox_counts(self, tenant: TenantId) -> Result<InboxCounts, Error> {
        const SQL: &str = concat!(
            "
            select
                (select count(*) from (
                    select from session.approvals
                    where tenant_id = $1 and state = 'pending' and expires_at > clock_timestamp()
                    limit $2) a),
                (select count(*) from (
                    select from session.session_lease
                    where tenant_id = $1 and state = 'WAIT_FOR_MSG'
                      and (state in ('WAIT_FOR_MSG', 'WAIT_FOR_EVENT') or paused is not null)
                    limit $2) q),
                (select count(*) from (
                    select from session.deliveries
                    where tenant_id = $1 and state in ('unknown', 'dead') and part >= 0
                      and finished_at > clock_timestamp() - $3::interval
                    limit $2) d),
                (select count(*) from (
                    select from session.inbox i
                    where tenant_id = $1 and state = 'dead'
                      and finished_at > clock_timestamp() - $3::interval
                      and not ",
            is_requeued!("i"),
            "
                    limit $2) l)"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let counts: (i64, i64, i64, i64) = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(MAX_COUNT)
            .bind(FAILURES_FOR)
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        let count = |count: i64| u32::try_from(count).unwrap_or(0);
        let (approvals, questions, deliveries, letters) = counts;
        Ok(InboxCounts {
            approvals: count(approvals),
            questions: count(questions),
            failed_deliveries: count(deliveries),
            dead_letters: count(letters),
        })
    }
}

#[derive(FromRow)]
struct ActivityRow {
    session_id: Uuid,
    doing: String,
    since: Option<jiff_sqlx::Timestamp>,
    updated_at: jiff_sqlx::Timestamp,
    owner: Option<Uuid>,
    attempts: i32,
    wait: Option<Json<Wait>>,
    wait_until: Option<jiff_sqlx::Timestamp>,
    run_id: Option<Uuid>,
    text: Option<String>,
    steps: Option<i64>,
    tools: Vec<String>,
    behavior: Option<String>,
}

impl ActivityRow {
    fn activity(self, session: SessionView) -> Activity {
        // The query has no other words.
        let doing = Doing::parse(&self.doing).unwrap_or(Doing::Thinking);
        let thoughts = u32::try_from(self.steps.unwrap_or(0)).unwrap_or(0);
        // Calls belong to the newest thought.
        let step = match doing {
            Doing::Calling | Doing::WaitingApproval => thoughts.saturating_sub(1),
            Doing::Thinking
            | Doing::Queued
            | Doing::WaitingMessage
            | Doing::WaitingEvent
            | Doing::Paused => thoughts,
        };
        Activity {
            session,
            doing,
            since: self.since.unwrap_or(self.updated_at).to_jiff(),
            run: self.run_id.map(RunId::from),
            step,
            tools: self.tools,
            behavior: self.behavior,
            runner: self.owner.map(RunnerId::from),
            attempts: self.attempts.unsigned_abs(),
            wait: self.wait.map(|wait| wait.0),
            wait_until: self.wait_until.map(jiff_sqlx::Timestamp::to_jiff),
            message: self.text.unwrap_or_default(),
        }
    }
}
