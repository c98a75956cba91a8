//! Steps of behaviours that can be rolled back, and the session's part of a rollback.
//!
//! A step is saved with the state before it. A rollback of the last one restores that state, so that
//! the session goes on with the same step. The journal stays as it is: the next turn is told.
//!
//! **What can go wrong.** A rollback and a turn must not happen at once: the session's row is locked
//! from the first read of a rollback to its commit, and a session that runs is refused.

use std::{fmt, str::FromStr};

use holdfast_pg::TenantTx;
use holdfast_types::{
    AgentId, Author, Body, Entry, RunId, SessionId, SessionKey, SessionKind, SessionState, Target,
    Wait, is_scheduler_source,
};
use serde_json::Value;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use super::{
    complete::has_waking_message,
    sweep::{KeepWait, make_ready},
};
use crate::{
    Error, NewSystemEvent,
    sessions::{Lease, lock, session_not_found},
    system_events::insert_event,
};

/// Steps of a session that are kept.
const MAX_SAVED_STEPS: i64 = 16;

/// Entries of the journal that one step may have.
const MAX_STEP_ENTRIES: i64 = 10_000;

/// Id of a step: its run, and the number of the run's thoughts before it. Written `run_….3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepId {
    pub run: RunId,
    pub first_thought: u32,
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.first_thought)
    }
}

impl FromStr for StepId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('.').and_then(|(run, thought)| {
            Some(Self { run: run.parse().ok()?, first_thought: thought.parse().ok()? })
        });
        let name = || text.chars().take(80).collect();
        parts.ok_or_else(|| Error::NotFound { what: "step", name: name() })
    }
}

/// A step that is saved.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStep {
    pub id: StepId,
    /// Name of the behaviour with its parameters.
    pub behavior: String,
    pub step: u32,
    /// First entry of the journal that the step was the first to read.
    pub first_entry: i64,
    /// State of behaviours before the step.
    pub state: Value,
}

/// Saves a step with the state before it. `log_seq` is its newest record of the worklog.
///
/// It is called within [`StepEffects::apply`](crate::StepEffects), before label and workspace of the
/// session are changed.
pub async fn store_step(
    tx: &mut TenantTx,
    session: SessionId,
    step: &NewStep,
    log_seq: i64,
) -> Result<(), Error> {
    const SQL: &str = "
        with stored as (
            insert into session.behavior_steps
                (tenant_id, session_id, number, run_id, behavior, step, first_entry, first_thought,
                 log_seq, state, label, workspace)
            select $1, $2, coalesce((select max(number) from session.behavior_steps
                                     where tenant_id = $1 and session_id = $2), 0) + 1,
                   $3, $4, $5, $6, $7, $8, $9, s.given_label, l.workspace
            from session.sessions s join session.session_lease l using (tenant_id, session_id)
            where s.tenant_id = $1 and s.session_id = $2
            returning number)
        delete from session.behavior_steps
        where tenant_id = $1 and session_id = $2 and number <= (select number from stored) - $10";

    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(step.id.run.as_uuid())
        .bind(&step.behavior)
        .bind(i32::try_from(step.step).unwrap_or(i32::MAX))
        .bind(step.first_entry)
        .bind(i32::try_from(step.id.first_thought).unwrap_or(i32::MAX))
        .bind(log_seq)
        .bind(Json(&step.state))
        .bind(MAX_SAVED_STEPS)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// The last step of a session, which is locked and does not run.
#[derive(Debug)]
pub struct LockedStep {
    pub session: SessionId,
    pub agent: AgentId,
    pub key: SessionKey,
    pub id: StepId,
    pub behavior: String,
    pub step: u32,
    /// Newest record of the worklog after the step, which is its summary.
    pub log_seq: i64,
    /// Newest record of the worklog before the step; 0 if that is not known.
    pub log_seq_before: i64,
    /// Local workspace before the step, if it is another one now.
    pub workspace_before: Option<Option<String>>,
    /// What an earlier rollback of this step has done.
    pub rollback: Option<Value>,
    row: Row,
    lease: Lease,
}

#[derive(Debug, FromRow)]
struct Row {
    number: i64,
    run_id: Uuid,
    behavior: String,
    step: i32,
    first_entry: i64,
    first_thought: i32,
    log_seq: i64,
    state: Json<Value>,
    label: Option<String>,
    workspace: Option<String>,
    rollback: Option<Json<Value>>,
    /// Of the step before.
    log_seq_before: Option<i64>,
    first_entry_before: Option<i64>,
    /// Of the first step of the same run behind it.
    thought_behind: Option<i32>,
    entry_behind: Option<i64>,
}

impl LockedStep {
    /// Whether a change was made by the step: its key has the session, the run and the number of
    /// the thought whose call it is. The step's result has the number of thoughts up to it.
    #[must_use]
    pub fn owns_key(&self, key: &str) -> bool {
        let mut parts = key.splitn(4, ':');
        let is_same = parts.next() == Some(&*self.session.to_string())
            && parts.next() == Some(&*self.id.run.to_string());
        let Some(number) = parts.next().and_then(|number| number.parse::<u32>().ok()) else {
            return false;
        };
        let of_result = u32::from(parts.next().is_none());
        let end = self.row.thought_behind.map_or(u32::MAX, i32::unsigned_abs);
        let Some(thought) = number.checked_sub(of_result) else { return false };
        is_same && (self.id.first_thought..end).contains(&thought)
    }

    /// Key of what a rollback of this step changes.
    #[must_use]
    pub fn rollback_key(&self) -> String {
        format!("rollback:{}:{}", self.session, self.id)
    }
}

/// What a rollback restores of a session.
#[derive(Debug, Clone)]
pub struct StepRestoration<'a> {
    /// Text for the session's next turn.
    pub note: &'a str,
    /// What the rollback has done, for a repetition.
    pub report: &'a Value,
}

/// Locks a session and reads its last step that is not rolled back, or the step with this id.
///
/// # Errors
///
/// [`Error::NotFound`] without such a session or step; [`Error::Conflict`] if the session runs or
/// waits for an approval, has no step to roll back, or the named step is not its last.
pub async fn lock_last_step(
    tx: &mut TenantTx,
    session: SessionId,
    wanted: Option<StepId>,
) -> Result<LockedStep, Error> {
    const SQL: &str = "
        with steps as materialized (
            select * from session.behavior_steps where tenant_id = $1 and session_id = $2)
        select s.number, s.run_id, s.behavior, s.step, s.first_entry, s.first_thought, s.log_seq,
               s.state, s.label, s.workspace, s.rollback, before.log_seq as log_seq_before,
               before.first_entry as first_entry_before, behind.first_thought as thought_behind,
               behind.first_entry as entry_behind
        from steps s
        left join steps before on before.number = s.number - 1
        left join lateral (
            select min(b.first_thought) as first_thought, min(b.first_entry) as first_entry
            from steps b where b.run_id = s.run_id and b.number > s.number) behind on true
        where s.rollback is null or (s.run_id = $3 and s.first_thought = $4)
        order by (s.rollback is null), s.number desc";

    let tenant = tx.tenant();
    let lease = lock(tx, session).await?.ok_or_else(|| session_not_found(session))?;
    check_rests(&lease)?;
    let rows: Vec<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(wanted.map(|id| id.run.as_uuid()))
        .bind(wanted.map(|id| i32::try_from(id.first_thought).unwrap_or(i32::MAX)))
        .fetch_all(tx.conn())
        .await?;
    let mut rows = rows.into_iter();
    let row = rows.next().ok_or_else(|| {
        Error::Conflict("the session has no step that can be rolled back".to_owned())
    })?;
    let id = StepId { run: row.run_id.into(), first_thought: row.first_thought.unsigned_abs() };
    if let Some(wanted) = wanted.filter(|wanted| *wanted != id) {
        return Err(Error::Conflict(format!(
            "`{wanted}` is not the session's last step, which is `{id}`: roll back that one first"
        )));
    }
    let (agent, key) = agent_and_key(tx, session).await?;
    Ok(LockedStep {
        session,
        agent,
        key,
        id,
        behavior: row.behavior.clone(),
        step: row.step.unsigned_abs(),
        log_seq: row.log_seq,
        log_seq_before: row.log_seq_before.unwrap_or(0),
        workspace_before: Some(row.workspace.clone()).filter(|before| *before != lease.workspace),
        rollback: row.rollback.as_ref().map(|report| report.0.clone()),
        row,
        lease,
    })
}

fn check_rests(lease: &Lease) -> Result<(), Error> {
    let refused = match lease.state {
        SessionState::Running | SessionState::Ready => {
            "the session runs or is about to: roll back when its turn has ended, or cancel it"
        }
        SessionState::WaitForEvent if lease.wait.is_for_approval() => {
            "a call of the session waits for an approval: decide about it, or cancel the turn"
        }
        SessionState::Wait | SessionState::WaitForMsg | SessionState::WaitForEvent => return Ok(()),
    };
    Err(Error::Conflict(refused.to_owned()))
}

async fn agent_and_key(
    tx: &mut TenantTx,
    session: SessionId,
) -> Result<(AgentId, SessionKey), Error> {
    const SQL: &str = "
        select agent_id, key from session.sessions where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant();
    let (agent, key): (Uuid, String) = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_one(tx.conn())
        .await?;
    let key: SessionKey = key.parse().map_err(|_| session_not_found(session))?;
    if key.kind() == SessionKind::Subagent {
        return Err(Error::Conflict(
            "steps of a subagent are not rolled back: its result may be used already".to_owned(),
        ));
    }
    Ok((agent.into(), key))
}

/// Entries of the journal that the step wrote, in their order.
pub async fn step_entries(tx: &mut TenantTx, step: &LockedStep) -> Result<Vec<Entry>, Error> {
    const SQL: &str = "
        select body from session.entries
        where tenant_id = $1 and session_id = $2 and run_id = $3 and seq >= $4
          and seq < coalesce($5, 9223372036854775807)
        order by seq limit $6";
    let tenant = tx.tenant();
    let rows: Vec<Json<Entry>> = holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(step.session.as_uuid())
        .bind(step.id.run.as_uuid())
        .bind(step.row.first_entry)
        .bind(step.row.entry_behind)
        .bind(MAX_STEP_ENTRIES)
        .fetch_all(tx.conn())
        .await?;
    Ok(rows.into_iter().map(|Json(entry)| entry).collect())
}

/// Messages that were the input of the step, each with where it is answered; those that the step
/// before passed on are among them.
pub async fn step_input(
    tx: &mut TenantTx,
    step: &LockedStep,
) -> Result<Vec<(Body, Option<Target>)>, Error> {
    const SQL: &str = "
        select e.body->'body', i.target
        from session.entries e
        left join session.inbox i on i.tenant_id = $1 and i.session_id = $2
                                 and i.seq = (e.body->>'seq')::bigint
        where e.tenant_id = $1 and e.session_id = $2 and e.run_id = $3 and e.kind = 'heard'
          and e.seq >= $4 and e.seq < coalesce($5, 9223372036854775807)
        order by e.seq";
    let forwards = step.row.state.0["forwards"] == Value::Bool(true);
    let first = step.row.first_entry_before.filter(|_| forwards).unwrap_or(step.row.first_entry);
    let tenant = tx.tenant();
    let rows: Vec<(Json<Body>, Option<Json<Target>>)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(step.session.as_uuid())
        .bind(step.id.run.as_uuid())
        .bind(first)
        .bind(step.row.entry_behind)
        .fetch_all(tx.conn())
        .await?;
    Ok(rows.into_iter().map(|(body, target)| (body.0, target.map(|target| target.0))).collect())
}

/// The message that began the run of the step, with where it is answered; `None` if no message did.
pub async fn run_message(
    tx: &mut TenantTx,
    step: &LockedStep,
) -> Result<Option<(Body, Option<Target>)>, Error> {
    // A run has the id of its first message. The journal has what the turn heard: the inbox may have
    // an author that nobody has verified.
    const SQL: &str = "
        select (select e.body->'body' from session.entries e
                where e.tenant_id = $1 and e.session_id = $2 and e.run_id = $3 and e.kind = 'heard'
                  and (e.body->>'seq')::bigint = i.seq
                order by e.seq limit 1),
               i.body, i.source, i.target
        from session.inbox i
        where i.tenant_id = $1 and i.session_id = $2 and i.message_id = $3";
    let tenant = tx.tenant();
    let row: Option<RunMessageRow> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(step.session.as_uuid())
        .bind(step.id.run.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(|(heard, body, source, target)| {
        let unheard = |body: Body| match is_scheduler_source(&source) {
            true => Body { author: Some(Author::unverified(&source, "nobody")), ..body },
            false => body,
        };
        let body = heard.map_or_else(|| unheard(body.0), |heard| heard.0);
        (body, target.map(|target| target.0))
    }))
}

/// What the turn heard, the body and source in the inbox, and where the message is answered.
type RunMessageRow = (Option<Json<Body>>, Json<Body>, String, Option<Json<Target>>);

/// Restores the state before the step, and marks the step as rolled back. The session waits for any
/// message then. Returns whether a wake-up should be sent: a message may wait already.
pub async fn restore_step(
    tx: &mut TenantTx,
    step: &LockedStep,
    restored: &StepRestoration<'_>,
) -> Result<bool, Error> {
    const MARK: &str = "
        update session.behavior_steps set rollback = $4
        where tenant_id = $1 and session_id = $2 and number = $3";
    // A label that a person has given since stays.
    const RESTORE: &str = "
        with label as (
            update session.sessions s set given_label = $4
            from session.behaviors b
            where s.tenant_id = $1 and s.session_id = $2 and b.tenant_id = $1
              and b.session_id = $2 and s.given_label = b.title
              and s.given_label is distinct from $4),
        state as (
            update session.behaviors
            set state = $3, updated_at = clock_timestamp(),
                title = case when title = (
                    select given_label from session.sessions
                    where tenant_id = $1 and session_id = $2) then $4 else title end
            where tenant_id = $1 and session_id = $2)
        update session.session_lease set state = 'WAIT', wait = null, wait_until = null
        where tenant_id = $1 and session_id = $2";

    let (tenant, session) = (tx.tenant().as_uuid(), step.session.as_uuid());
    holdfast_pg::query(MARK)
        .bind(tenant)
        .bind(session)
        .bind(step.row.number)
        .bind(Json(restored.report))
        .execute(tx.conn())
        .await?;
    holdfast_pg::query(RESTORE)
        .bind(tenant)
        .bind(session)
        .bind(&step.row.state)
        .bind(&step.row.label)
        .execute(tx.conn())
        .await?;
    let event = NewSystemEvent {
        key: step.key.clone(),
        idem_key: step.rollback_key(),
        text: restored.note.to_owned(),
        outside: false,
        signed: None,
    };
    insert_event(tx, &event).await?;
    let lease = &step.lease;
    if lease.unfinished_messages() > 0
        && has_waking_message(tx, lease, &Wait::Anything, &[]).await?
    {
        return make_ready(tx, lease, KeepWait::No).await;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_step_is_read_as_it_is_written() {
        let id = StepId { run: RunId::generate(), first_thought: 7 };

        assert_eq!(id.to_string().parse::<StepId>().unwrap(), id);
        for text in ["", "run_1", "7", "run_1.x", &format!("{}.", id.run)] {
            assert!(text.parse::<StepId>().is_err(), "{text}");
        }
    }
}
