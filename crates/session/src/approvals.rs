//! Approvals: one record for each tool call that needs a person's decision, and the wait for it
//! (spec C-43).
//!
//! | verb | who calls it | effect | file |
//! |---|---|---|---|
//! | ask | the runner of the turn | stores the requests and the journal's notes, and makes the session wait | `ask.rs` |
//! | resolve | gateway, runner | stores the decision, and makes the session ready | `resolve.rs` |
//! | settle | the next runner that claims the session | returns the decisions, or makes the session wait on | `settle.rs` |
//! | withdraw, turn away | the same | ends pending requests with their turn; finishes a message that decides nothing | `settle.rs` |
//! | close | the above | makes channels remove a request's buttons | `close.rs` |
//! | rules | runner, gateway | calls that were allowed always | `rules.rs` |
//!
//! The record is authoritative: a session that wakes for any reason reads it. A waiting session has
//! no runner, no lease and no slot in flight.
//!
//! ## What can go wrong
//!
//! A decision may arrive between a runner's check of the record and the session's wait. Therefore
//! both happen under the lock of the lease row: `settle` checks and waits in one transaction, and
//! `resolve` decides and wakes in one.

mod ask;
mod close;
mod resolve;
mod rules;
mod settle;

use std::time::Duration;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{
    AgentId, ApprovalId, ApprovalState, Entry, MessageId, PersonId, RunId, SessionId, TenantId,
};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;
use uuid::Uuid;

pub use resolve::{DecisionResult, NewDecision};
pub use rules::ApprovalRule;
pub use settle::{DecidedCall, SettleResult};

use crate::{
    CompletionResult, EntryView, Error, ListCursor, NewDelivery, Sessions, view::entries_of,
};

/// Requests for approvals, with the other writes of the step.
#[derive(Debug, Clone)]
pub struct ApprovalBatch {
    pub run: RunId,
    /// Next `seq` of the journal as the writer knows it. If it differs, nothing is written.
    pub at: i64,
    /// Newest message of the inbox that the writer has read, as in [`StepWrite`](crate::StepWrite).
    pub newest: Option<(i64, MessageId)>,
    /// Entries of the step, with an `Asked` note for each call.
    pub entries: Vec<Entry>,
    /// `seq` of the inbox messages that the turn has seen with this step.
    pub seen: Vec<i64>,
    pub deliveries: Vec<NewDelivery>,
    pub approvals: Vec<NewApproval>,
}

/// A request for an approval.
#[derive(Debug, Clone)]
pub struct NewApproval {
    pub id: ApprovalId,
    /// Index of the turn's thought that made the call, from 0.
    pub step: i32,
    /// Id of the call within that thought.
    pub call: String,
    pub tool: String,
    /// Exact text of what is approved, as the person sees it.
    pub subject: String,
    /// The subject in one line.
    pub summary: String,
    /// Pattern that "always" would allow; `None` allows this subject only.
    pub pattern: Option<String>,
    /// Time until the request expires, which denies the call.
    pub timeout: Duration,
    /// Message that asks the person, if there is a channel.
    pub request: Option<NewDelivery>,
    /// Conversation of the person in which it asks, if that is not the call's own.
    pub asked_in: Option<SessionId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub id: ApprovalId,
    pub session: SessionId,
    /// Conversation of the person who was asked, if that is not the call's own.
    pub asked_in: Option<SessionId>,
    pub agent: AgentId,
    pub run: RunId,
    /// Id of the call within the turn's thought.
    pub call: String,
    pub tool: String,
    /// Exact text of what is approved, as the person sees it.
    pub subject: String,
    /// The subject in one line.
    pub summary: String,
    /// Pattern that "always" would allow; `None` allows this subject only.
    pub pattern: Option<String>,
    /// A request past its deadline is expired, even if no runner has handled it yet.
    pub state: ApprovalState,
    /// Person who decided: an API key's id, or `channel:sender`.
    pub decided_by: Option<String>,
    /// Why the person denied the call, in their words.
    pub reason: Option<String>,
    pub asked_at: Timestamp,
    pub expires_at: Timestamp,
    pub decided_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ApprovalFilter {
    /// Only approvals in this state.
    pub state: Option<ApprovalState>,
    /// Only approvals of this session.
    pub session: Option<SessionId>,
    /// Only approvals of this person's conversations, and of the subagents that work for them.
    pub person: Option<PersonId>,
    pub limit: i64,
    /// Only approvals after this place in the list.
    pub after: Option<ListCursor>,
}

/// Returns the SHA-256 hash of an approval's subject.
#[must_use]
pub fn subject_hash(subject: &str) -> [u8; 32] {
    Sha256::digest(subject).into()
}

/// Query for approvals; the parameter is its condition.
macro_rules! approval {
    ($which:literal) => {
        concat!(
            "select approval_id, session_id, asked_in, agent_id, run_id, call, tool, subject, summary,
                    pattern,
                    case when state = 'pending' and expires_at <= clock_timestamp()
                         then 'expired' else state end as state,
                    decided_by, reason, asked_at, expires_at, decided_at
             from session.approvals where tenant_id = $1 and ",
            $which
        )
    };
}
pub(crate) use approval;

/// A run whose turn waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRun {
    pub id: RunId,
    pub session: SessionId,
    pub agent: AgentId,
    /// Time of the oldest pending request.
    pub asked_at: Timestamp,
}

/// Approvals of tool calls, from [`Sessions::approvals`].
#[derive(Debug, Clone, Copy)]
pub struct Approvals<'a> {
    pub(crate) pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn approvals(&self) -> Approvals<'_> {
        Approvals { pools: &self.pools }
    }
}

impl Approvals<'_> {
    /// Returns the runs that wait for an approval, newest first.
    pub async fn waiting_runs(
        self,
        tenant: TenantId,
        session: Option<SessionId>,
        limit: i64,
    ) -> Result<Vec<WaitingRun>, Error> {
        const SQL: &str = "
            select run_id, session_id, agent_id, min(asked_at) from session.approvals
            where tenant_id = $1 and state = 'pending' and expires_at > clock_timestamp()
              and ($2::uuid is null or session_id = $2)
            group by 1, 2, 3 order by 4 desc limit $3";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, Uuid, Uuid, jiff_sqlx::Timestamp)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.map(SessionId::as_uuid))
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let run = |(id, session, agent, at): (Uuid, Uuid, Uuid, jiff_sqlx::Timestamp)| WaitingRun {
            id: id.into(),
            session: session.into(),
            agent: agent.into(),
            asked_at: at.to_jiff(),
        };
        Ok(rows.into_iter().map(run).collect())
    }

    /// Returns a run that waits for an approval, and its entries so far.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such waiting run.
    pub async fn waiting_run(
        self,
        tenant: TenantId,
        run: RunId,
    ) -> Result<(WaitingRun, Vec<EntryView>), Error> {
        const SQL: &str = "
            select session_id, agent_id, min(asked_at) from session.approvals
            where tenant_id = $1 and state = 'pending' and expires_at > clock_timestamp()
              and run_id = $2
            group by 1, 2";
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
        let (session, agent) = (SessionId::from(session), AgentId::from(agent));
        let entries = entries_of(&mut tx, session, run).await?;
        tx.finish_reading();
        Ok((WaitingRun { id: run, session, agent, asked_at: at.to_jiff() }, entries))
    }

    pub async fn list(
        self,
        tenant: TenantId,
        filter: ApprovalFilter,
    ) -> Result<Vec<Approval>, Error> {
        const SQL: &str = approval!(
            "($2::text is null
              or $2 = case when state = 'pending' and expires_at <= clock_timestamp()
                           then 'expired' else state end)
             and ($3::uuid is null or session_id = $3)
             and ($5::timestamptz is null or (asked_at, approval_id) < ($5, $6::uuid))
             and ($7::uuid is null or session_id in (
                 with recursive theirs as (
                     select s.session_id from session.sessions s
                     where s.tenant_id = $1 and s.person_id = $7
                     union
                     select s.session_id from session.sessions s
                     join theirs t on s.parent_id = t.session_id where s.tenant_id = $1)
                 select session_id from theirs))
             order by asked_at desc, approval_id desc limit $4"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(filter.state.map(ApprovalState::as_str))
            .bind(filter.session.map(SessionId::as_uuid))
            .bind(filter.limit)
            .bind(filter.after.map(|after| after.at.to_sqlx()))
            .bind(filter.after.map(|after| after.id))
            .bind(filter.person.map(PersonId::as_uuid))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(Approval::from).collect())
    }

    /// Returns the approval with this id, or the newest one whose id ends in these eight
    /// characters.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such approval.
    pub async fn get(self, tenant: TenantId, name: &str) -> Result<Approval, Error> {
        const SQL: &str =
            approval!("(approval_id = $2 or slug = $3) order by asked_at desc limit 1");
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(id_of(name))
            .bind(slug_of(name))
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        row.map(Approval::from).ok_or_else(|| approval_not_found(name))
    }

    /// Returns the approvals that a person in this session can refer to, newest first: those of the
    /// session and of its descendants, and those that were asked for in the session. With a name, the
    /// approvals of that name in any state; without one, the pending ones.
    pub async fn in_family(
        self,
        tenant: TenantId,
        session: SessionId,
        name: Option<&str>,
    ) -> Result<Vec<Approval>, Error> {
        const SQL: &str = concat!(
            "with recursive family as (
                select $2::uuid as id
                union
                select s.session_id from session.sessions s join family f on s.parent_id = f.id
                where s.tenant_id = $1) ",
            approval!(
                "(session_id in (select id from family) or asked_in = $2)
                 and case when $3 then approval_id = $4 or slug = $5
                          else state = 'pending' and expires_at > clock_timestamp() end
                 order by asked_at desc limit 50"
            )
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(name.is_some())
            .bind(name.and_then(id_of))
            .bind(name.and_then(slug_of))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(Approval::from).collect())
    }
}

fn id_of(name: &str) -> Option<Uuid> {
    name.parse::<ApprovalId>().ok().map(ApprovalId::as_uuid)
}

fn slug_of(name: &str) -> Option<String> {
    (name.len() == 8 && name.chars().all(|c| c.is_ascii_hexdigit()))
        .then(|| name.to_ascii_lowercase())
}

/// Builds the error for an approval that does not exist or belongs to another tenant.
pub(crate) fn approval_not_found(name: &str) -> Error {
    Error::NotFound { what: "approval", name: name.chars().take(80).collect() }
}

/// Emits an event with the state of approvals; it never contains their subject.
pub(crate) async fn emit_approval_event(
    tx: &mut TenantTx,
    session: SessionId,
    name: &'static str,
    ids: &[Uuid],
) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.events (tenant_id, family, session_id, name, payload)
        select $1, 'approvals', $2, $3,
               jsonb_build_object('approval', approval_id, 'run', run_id, 'call', call,
                                  'tool', tool, 'state', state)
        from session.approvals where tenant_id = $1 and approval_id = any($4)";
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(name)
        .bind(ids)
        .execute(tx.conn())
        .await?;
    Ok(())
}

#[derive(FromRow)]
pub(crate) struct Row {
    approval_id: Uuid,
    session_id: Uuid,
    asked_in: Option<Uuid>,
    agent_id: Uuid,
    run_id: Uuid,
    call: String,
    tool: String,
    subject: String,
    summary: String,
    pattern: Option<String>,
    state: String,
    decided_by: Option<String>,
    reason: Option<String>,
    asked_at: jiff_sqlx::Timestamp,
    expires_at: jiff_sqlx::Timestamp,
    decided_at: Option<jiff_sqlx::Timestamp>,
}

impl From<Row> for Approval {
    fn from(row: Row) -> Self {
        Self {
            id: row.approval_id.into(),
            session: row.session_id.into(),
            asked_in: row.asked_in.map(SessionId::from),
            agent: row.agent_id.into(),
            run: row.run_id.into(),
            call: row.call,
            tool: row.tool,
            subject: row.subject,
            summary: row.summary,
            pattern: row.pattern,
            // A check constraint allows no other values.
            state: ApprovalState::parse(&row.state).unwrap_or(ApprovalState::Expired),
            decided_by: row.decided_by,
            reason: row.reason,
            asked_at: row.asked_at.to_jiff(),
            expires_at: row.expires_at.to_jiff(),
            decided_at: row.decided_at.map(jiff_sqlx::Timestamp::to_jiff),
        }
    }
}

/// Returns the duration in whole milliseconds.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Result of a verb that makes the session wait.
type WaitResult = Result<CompletionResult, Error>;
