//! Calls that need a person's word: one record for each, and the wait for it (spec C-43).
//!
//! | verb | who calls it | what | file |
//! |---|---|---|---|
//! | ask | the runner of the turn | stores the requests and the journal's notes, and puts the session to rest | `ask.rs` |
//! | resolve | gateway, runner | stores the word, and makes the session ready | `resolve.rs` |
//! | settle | whoever claims the session then | tells what was said, or rests on | `settle.rs` |
//! | withdraw, turn away | the same | the turn ends before; a word that counts for nothing | `settle.rs` |
//! | close | the above | channels take a request's buttons away | `close.rs` |
//! | rules | runner, gateway | what "always" allowed | `rules.rs` |
//!
//! The record is what counts: a session that wakes reads it, for whatever reason
//! it woke. While it waits it has no runner, no lease and no place in flight.
//!
//! ## What can go wrong
//!
//! A word may come between a runner's look at the record and the session's rest.
//! So both are under the lock of the session's lease row: `settle` looks and
//! rests in one transaction, and `resolve` writes and wakes in one.

mod ask;
mod close;
mod resolve;
mod rules;
mod settle;

use std::time::Duration;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ApprovalId, ApprovalState, Entry, RunId, SessionId, TenantId};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;
use uuid::Uuid;

pub use resolve::Resolved;
pub use rules::Rule;
pub use settle::{Settled, Word};

use crate::{Completed, EntryView, Error, NewDelivery, Sessions, view::entries_of};

/// What a turn asks a person, and what it leaves behind while it waits.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The turn.
    pub run: RunId,
    /// Where the journal ends as the writer knows it: if it does not, nothing is written.
    pub at: i64,
    /// What happened, with an `Asked` note for each call.
    pub entries: Vec<Entry>,
    /// Places in the inbox that the turn has now seen.
    pub seen: Vec<i64>,
    /// Messages to send, whatever they are about.
    pub deliveries: Vec<NewDelivery>,
    /// The calls.
    pub approvals: Vec<NewApproval>,
}

/// A call that needs a person's word.
#[derive(Debug, Clone)]
pub struct NewApproval {
    /// Its id.
    pub id: ApprovalId,
    /// Which thought of the turn asked for the call, from 0.
    pub step: i32,
    /// What that thought called it.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// Exactly what is approved.
    pub subject: String,
    /// The same in a line.
    pub summary: String,
    /// What "always" would allow; `None` is this subject and no other.
    pub pattern: Option<String>,
    /// How long a word is waited for; then it is denied.
    pub timeout: Duration,
    /// How the person is told, where there is a channel to tell them on.
    pub request: Option<NewDelivery>,
}

/// A call that needs, or needed, a person's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The session.
    pub session: SessionId,
    /// The agent.
    pub agent: AgentId,
    /// The turn.
    pub run: RunId,
    /// What the turn's thought called it.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// Exactly what is approved.
    pub subject: String,
    /// The same in a line.
    pub summary: String,
    /// What "always" would allow.
    pub pattern: Option<String>,
    /// How it stands: one that ran out and that no runner has looked at since is expired too.
    pub state: ApprovalState,
    /// Who decided: an API key's id, or `channel:sender`.
    pub decided_by: Option<String>,
    /// When a person was asked.
    pub asked_at: Timestamp,
    /// Until when they may say something.
    pub expires_at: Timestamp,
    /// When it was decided.
    pub decided_at: Option<Timestamp>,
}

/// Which approvals to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApprovalFilter {
    /// Only those that stand so.
    pub state: Option<ApprovalState>,
    /// Only this session's.
    pub session: Option<SessionId>,
    /// At most so many.
    pub limit: i64,
}

/// SHA-256 of what is approved.
#[must_use]
pub fn subject_hash(subject: &str) -> [u8; 32] {
    Sha256::digest(subject).into()
}

/// What is asked of approvals, with the words that say of which.
macro_rules! approval {
    ($which:literal) => {
        concat!(
            "select approval_id, session_id, agent_id, run_id, call, tool, subject, summary, pattern,
                    case when state = 'pending' and expires_at <= clock_timestamp()
                         then 'expired' else state end as state,
                    decided_by, asked_at, expires_at, decided_at
             from session.approvals where tenant_id = $1 and ",
            $which
        )
    };
}
pub(crate) use approval;

/// A turn that waits for a person's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRun {
    /// Its id.
    pub id: RunId,
    /// Its session.
    pub session: SessionId,
    /// Its agent.
    pub agent: AgentId,
    /// Since when it waits.
    pub asked_at: Timestamp,
}

impl Sessions {
    /// Turns that wait for a person's word, newest first.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn waiting_runs(
        &self,
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
        let rows: Vec<(Uuid, Uuid, Uuid, jiff_sqlx::Timestamp)> = sqlx::query_as(SQL)
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

    /// A turn that waits for a person's word, and what happened in it so far.
    ///
    /// # Errors
    ///
    /// If no such turn of the tenant waits, or the database does not answer.
    pub async fn waiting_run(
        &self,
        tenant: TenantId,
        run: RunId,
    ) -> Result<(WaitingRun, Vec<EntryView>), Error> {
        const SQL: &str = "
            select session_id, agent_id, min(asked_at) from session.approvals
            where tenant_id = $1 and state = 'pending' and expires_at > clock_timestamp()
              and run_id = $2
            group by 1, 2";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<(Uuid, Uuid, jiff_sqlx::Timestamp)> = sqlx::query_as(SQL)
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

    /// Approvals, newest first.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn approvals(
        &self,
        tenant: TenantId,
        filter: ApprovalFilter,
    ) -> Result<Vec<Approval>, Error> {
        const SQL: &str = approval!(
            "($2::text is null
              or $2 = case when state = 'pending' and expires_at <= clock_timestamp()
                           then 'expired' else state end)
             and ($3::uuid is null or session_id = $3)
             order by asked_at desc limit $4"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = sqlx::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(filter.state.map(ApprovalState::as_str))
            .bind(filter.session.map(SessionId::as_uuid))
            .bind(filter.limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(Approval::from).collect())
    }

    /// The approval of that id, or the newest whose id ends in these eight characters.
    ///
    /// # Errors
    ///
    /// If the tenant has none, or the database does not answer.
    pub async fn approval(&self, tenant: TenantId, name: &str) -> Result<Approval, Error> {
        const SQL: &str =
            approval!("(approval_id = $2 or slug = $3) order by asked_at desc limit 1");
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<Row> = sqlx::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(id_of(name))
            .bind(slug_of(name))
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        row.map(Approval::from).ok_or_else(|| no_approval(name))
    }

    /// The approvals that somebody in this session may mean: its own and those of the sessions
    /// below it, newest first. With a name, those that it names, however they stand; without one,
    /// those that are pending.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn approvals_here(
        &self,
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
                "session_id in (select id from family)
                 and case when $3 then approval_id = $4 or slug = $5
                          else state = 'pending' and expires_at > clock_timestamp() end
                 order by asked_at desc limit 50"
            )
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = sqlx::query_as(SQL)
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

/// What a caller is told who asks for another's approval, or for one that never was.
pub(crate) fn no_approval(name: &str) -> Error {
    Error::NotFound { what: "approval", name: name.chars().take(80).collect() }
}

/// Tells whoever listens how an approval stands: ids and words, never what it is about.
pub(crate) async fn tell(
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
    sqlx::query(SQL)
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
    agent_id: Uuid,
    run_id: Uuid,
    call: String,
    tool: String,
    subject: String,
    summary: String,
    pattern: Option<String>,
    state: String,
    decided_by: Option<String>,
    asked_at: jiff_sqlx::Timestamp,
    expires_at: jiff_sqlx::Timestamp,
    decided_at: Option<jiff_sqlx::Timestamp>,
}

impl From<Row> for Approval {
    fn from(row: Row) -> Self {
        Self {
            id: row.approval_id.into(),
            session: row.session_id.into(),
            agent: row.agent_id.into(),
            run: row.run_id.into(),
            call: row.call,
            tool: row.tool,
            subject: row.subject,
            summary: row.summary,
            pattern: row.pattern,
            // A check constraint keeps other words out.
            state: ApprovalState::parse(&row.state).unwrap_or(ApprovalState::Expired),
            decided_by: row.decided_by,
            asked_at: row.asked_at.to_jiff(),
            expires_at: row.expires_at.to_jiff(),
            decided_at: row.decided_at.map(jiff_sqlx::Timestamp::to_jiff),
        }
    }
}

/// As milliseconds, for a wait.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What resting came to; kept apart so that the verbs read alike.
type Rested = Result<Completed, Error>;
