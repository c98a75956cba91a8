//! Database rows and their conversion to domain types.

use std::time::Duration;

use holdfast_types::{Author, JobId};
use serde_json::Value;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::store::{
    Error, Firing, FiringRef, FiringState, FiringView, Job, JobKind, JobState, LastRun, Origin,
    Outcome, Overlap, RunLine, RunningFiring, Slot,
};

/// Query for jobs with a given condition.
macro_rules! job {
    ($which:literal) => {
        concat!(
            "select tenant_id, job_id, external_id, short_id, kind, agent_id, owner, name, description,
                    spec, payload, session_target, wake_mode, isolation, overlap, delete_after_run,
                    state, slot_at, due_at, running_slot, running_until,
                    running_until > clock_timestamp() as running, errors, last_at, last_status,
                    last_class, last_ms, version, trace, author, signature, created_at, updated_at
             from schedule.jobs where tenant_id = $1 and ",
            $which
        )
    };
}
pub(crate) use job;

#[derive(FromRow)]
pub(crate) struct JobRow {
    pub tenant_id: Uuid,
    pub job_id: Uuid,
    pub external_id: String,
    short_id: String,
    kind: String,
    agent_id: Uuid,
    pub owner: Option<String>,
    name: String,
    description: String,
    spec: Json<Value>,
    payload: Json<Value>,
    session_target: Option<String>,
    wake_mode: Option<String>,
    isolation: Option<Json<Value>>,
    overlap: String,
    delete_after_run: bool,
    state: String,
    slot_at: Option<jiff_sqlx::Timestamp>,
    due_at: Option<jiff_sqlx::Timestamp>,
    running_slot: Option<String>,
    running_until: Option<jiff_sqlx::Timestamp>,
    running: Option<bool>,
    errors: i32,
    last_at: Option<jiff_sqlx::Timestamp>,
    last_status: Option<String>,
    last_class: Option<String>,
    last_ms: Option<i64>,
    version: i64,
    trace: Option<String>,
    author: Option<Json<Author>>,
    signature: Option<String>,
    created_at: jiff_sqlx::Timestamp,
    updated_at: jiff_sqlx::Timestamp,
}

impl TryFrom<JobRow> for Job {
    type Error = Error;

    fn try_from(row: JobRow) -> Result<Self, Error> {
        let running = match (row.running_slot, row.running_until, row.running) {
            (Some(slot), Some(until), Some(true)) => {
                Some(RunningFiring { slot: parse_slot(&slot)?, until: until.to_jiff() })
            }
            _ => None,
        };
        let last = match (row.last_at, row.last_status) {
            (Some(at), Some(outcome)) => Some(LastRun {
                at: at.to_jiff(),
                outcome: word(Outcome::parse(&outcome))?,
                class: row.last_class,
                took: took(row.last_ms),
            }),
            _ => None,
        };
        Ok(Self {
            tenant: row.tenant_id.into(),
            id: row.job_id.into(),
            external_id: row.external_id,
            short_id: row.short_id,
            kind: word(JobKind::parse(&row.kind))?,
            agent: row.agent_id.into(),
            owner: row.owner,
            author: row.author.map(|author| author.0),
            signature: row.signature,
            name: row.name,
            description: row.description,
            spec: row.spec.0,
            payload: row.payload.0,
            session_target: row.session_target,
            wake_mode: row.wake_mode,
            isolation: row.isolation.map(|isolation| isolation.0),
            overlap: word(Overlap::parse(&row.overlap))?,
            delete_after_run: row.delete_after_run,
            state: word(JobState::parse(&row.state))?,
            next_slot: row.slot_at.map(jiff_sqlx::Timestamp::to_jiff),
            next_due: row.due_at.map(jiff_sqlx::Timestamp::to_jiff),
            running,
            errors: row.errors,
            last,
            version: row.version,
            trace: row.trace,
            created_at: row.created_at.to_jiff(),
            updated_at: row.updated_at.to_jiff(),
        })
    }
}

/// Firing that was handed out: tenant, job, slot, slot time, origin, attempts, kind of the job,
/// losses.
pub(crate) type FiringRow = (Uuid, Uuid, String, jiff_sqlx::Timestamp, String, i32, String, i32);

pub(crate) fn firing(row: FiringRow) -> Result<Firing, Error> {
    Ok(Firing {
        id: firing_ref(row.0, row.1, &row.2)?,
        at: row.3.to_jiff(),
        origin: word(Origin::parse(&row.4))?,
        attempt: row.5,
        kind: word(JobKind::parse(&row.6))?,
        lost: row.7,
    })
}

/// State of a firing: tenant, job, slot, origin, state, attempts, run.
pub(crate) type FiringViewRow = (Uuid, Uuid, String, String, String, i32, Option<Uuid>);

pub(crate) fn firing_view(row: FiringViewRow) -> Result<FiringView, Error> {
    Ok(FiringView {
        id: firing_ref(row.0, row.1, &row.2)?,
        origin: word(Origin::parse(&row.3))?,
        state: word(FiringState::parse(&row.4))?,
        attempts: row.5,
        run: row.6.map(Into::into),
    })
}

#[derive(FromRow)]
pub(crate) struct RunRow {
    n: i64,
    slot: Option<String>,
    slot_at: jiff_sqlx::Timestamp,
    slot_last: jiff_sqlx::Timestamp,
    slots: Option<i32>,
    origin: String,
    status: String,
    class: Option<String>,
    duration_ms: Option<i64>,
    run_id: Option<Uuid>,
    finished_at: jiff_sqlx::Timestamp,
}

impl TryFrom<RunRow> for RunLine {
    type Error = Error;

    fn try_from(row: RunRow) -> Result<Self, Error> {
        Ok(Self {
            n: row.n,
            slot: row.slot.as_deref().map(parse_slot).transpose()?,
            at: row.slot_at.to_jiff(),
            last: row.slot_last.to_jiff(),
            slots: row.slots,
            origin: word(Origin::parse(&row.origin))?,
            outcome: word(Outcome::parse(&row.status))?,
            class: row.class,
            took: took(row.duration_ms),
            run: row.run_id.map(Into::into),
            finished_at: row.finished_at.to_jiff(),
        })
    }
}

pub(crate) fn firing_ref(tenant: Uuid, job: Uuid, slot: &str) -> Result<FiringRef, Error> {
    Ok(FiringRef { tenant: tenant.into(), job: JobId::from(job), slot: parse_slot(slot)? })
}

fn parse_slot(slot: &str) -> Result<Slot, Error> {
    slot.parse().map_err(|_| Error::Corrupt("slot"))
}

pub(crate) fn word<T>(parsed: Option<T>) -> Result<T, Error> {
    // A check constraint allows known words only, but a later version may have added some.
    parsed.ok_or(Error::Corrupt("job"))
}

fn took(millis: Option<i64>) -> Option<Duration> {
    millis.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}
