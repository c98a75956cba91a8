//! Adding of jobs, with the limits on their number.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, Author, JobId, TenantId};
use serde_json::Value;
use sqlx::types::Json;

use crate::store::{
    Error, Job, JobKind, JobState, Jobs, NextSlot, Overlap, ScheduledJob,
    check::Fields,
    jobs::now,
    row::{JobRow, job},
    signature::JobFields,
};

#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Client-generated id; adding the same id again adds nothing.
    pub id: JobId,
    /// Name given by the creator, at most 256 bytes; `None` derives one from the kind and the id.
    pub external_id: Option<String>,
    pub kind: JobKind,
    pub agent: AgentId,
    /// User that owns the job; `None` means the tenant. Taken from the caller's credentials, never
    /// from a model's text.
    pub owner: Option<String>,
    /// Who makes the job, whose rights its runs have; `None` means the mesh.
    pub author: Option<Author>,
    /// At most 200 characters.
    pub name: String,
    /// At most 2,000 characters.
    pub description: String,
    /// A job that is not enabled is created paused.
    pub enabled: bool,
    /// Schedule as the kind defines it: a JSON object of at most 8,000 bytes.
    pub spec: Value,
    /// Work to do, as the kind defines it: a JSON object of at most 64,000 bytes.
    pub payload: Value,
    /// `main` or `isolated`.
    pub session_target: Option<String>,
    /// `now` or `next-heartbeat`.
    pub wake_mode: Option<String>,
    /// How an isolated run reports its end to the main session.
    pub isolation: Option<Value>,
    pub overlap: Overlap,
    /// Whether the job is deleted after a successful run if no slot is left.
    pub delete_after_run: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AddOutcome {
    Made(Job),
    /// An earlier request with the same id had added the job.
    AlreadyAdded(Job),
}

impl AddOutcome {
    #[must_use]
    pub fn into_job(self) -> Job {
        match self {
            Self::Made(job) | Self::AlreadyAdded(job) => job,
        }
    }
}

impl NewJob {
    fn external_id(&self) -> String {
        self.external_id.clone().unwrap_or_else(|| {
            let digits = self.id.as_uuid().simple().to_string();
            let end = &digits[digits.len() - 8..];
            match (self.kind, &self.owner) {
                // Format of reminder ids that users know (REM-004), if there is room for the owner.
                (JobKind::Reminder, Some(owner)) if owner.len() <= 200 => {
                    format!("reminder_{owner}_{end}")
                }
                (kind, _) => format!("{}_{end}", kind.as_str()),
            }
        })
    }
}

impl Jobs {
    /// Adds a job; the planner gives its first slot.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`], [`Error::TooMany`], [`Error::Never`] if the schedule has no slot,
    /// [`Error::Field`] and [`Error::Schedule`] if a field or the schedule is invalid,
    /// [`Error::NoSigningKeys`] if it cannot be signed.
    pub async fn add(&self, tenant: TenantId, new: NewJob) -> Result<AddOutcome, Error> {
        let external_id = new.external_id();
        fields(&new, &external_id).check()?;
        let signature = match self.signing_keys().await? {
            Some(keys) => keys.sign_job(tenant, &JobFields::from(&new))?,
            None => None,
        };

        let mut tx = self.pools.tenant(tenant).await?;
        lock_adding(&mut tx).await?;
        if let Some(there) = by_id(&mut tx, new.id).await? {
            tx.finish_reading();
            return Ok(AddOutcome::AlreadyAdded(there.try_into()?));
        }
        check_free(&mut tx, &external_id).await?;
        self.check_limits(&mut tx, &new).await?;
        let scheduled = ScheduledJob { tenant, job: new.id, kind: new.kind, spec: &new.spec };
        let next = self.planner.first(scheduled, now(&mut tx).await?)?.ok_or(Error::Never)?;
        let next = new.enabled.then_some(next);
        insert(&mut tx, &new, &external_id, next, signature.as_deref()).await?;
        let job: Job = by_id(&mut tx, new.id).await?.ok_or(Error::Corrupt("job"))?.try_into()?;
        tx.commit().await?;
        Ok(AddOutcome::Made(job))
    }

    async fn check_limits(&self, tx: &mut TenantTx, new: &NewJob) -> Result<(), Error> {
        // Jobs that are done do not count: they are deleted after a while.
        const TENANT: &str = "
            select count(*) from schedule.jobs
            where tenant_id = $1 and kind <> '' and kind <> 'heartbeat' and state <> 'done'";
        const OWNER: &str = "
            select count(*), count(*) filter (where kind = 'reminder') from schedule.jobs
            where owner = $2 and tenant_id = $1 and state <> 'done'";

        // Not limited: each agent has one heartbeat, and agents are limited.
        if new.kind == JobKind::Heartbeat {
            return Ok(());
        }
        let tenant = tx.tenant();
        let all: i64 =
            holdfast_pg::query_scalar(TENANT).bind(tenant.as_uuid()).fetch_one(tx.conn()).await?;
        check_limit("the tenant", "jobs", all, self.limits.tenant)?;
        let Some(owner) = &new.owner else { return Ok(()) };
        let (own, reminders): (i64, i64) = holdfast_pg::query_as(OWNER)
            .bind(tenant.as_uuid())
            .bind(owner)
            .fetch_one(tx.conn())
            .await?;
        check_limit("the user", "jobs", own, self.limits.owner)?;
        match new.kind {
            JobKind::Reminder => {
                check_limit("the user", "reminders", reminders, self.limits.reminders)
            }
            _ => Ok(()),
        }
    }
}

fn check_limit(
    whose: &'static str,
    what: &'static str,
    have: i64,
    limit: i64,
) -> Result<(), Error> {
    if have >= limit { Err(Error::TooMany { whose, what, have, limit }) } else { Ok(()) }
}

/// Serialises adding within a tenant, so that two requests cannot pass a limit together.
async fn lock_adding(tx: &mut TenantTx) -> Result<(), Error> {
    const SQL: &str = "select pg_advisory_xact_lock(hashtextextended('schedule.jobs:' || $1, 0))";
    let tenant = tx.tenant();
    holdfast_pg::query(SQL).bind(tenant.as_uuid().to_string()).execute(tx.conn()).await?;
    Ok(())
}

async fn by_id(tx: &mut TenantTx, id: JobId) -> Result<Option<JobRow>, Error> {
    const SQL: &str = job!("job_id = $2");
    let tenant = tx.tenant();
    Ok(holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(id.as_uuid())
        .fetch_optional(tx.conn())
        .await?)
}

/// Refuses an external id that another job has.
async fn check_free(tx: &mut TenantTx, external_id: &str) -> Result<(), Error> {
    const SQL: &str = "
        select exists (select from schedule.jobs where tenant_id = $1 and external_id = $2)";
    let tenant = tx.tenant();
    let is_taken: bool = holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(external_id)
        .fetch_one(tx.conn())
        .await?;
    if is_taken { Err(Error::Taken(external_id.to_owned())) } else { Ok(()) }
}

fn fields<'a>(new: &'a NewJob, external_id: &'a str) -> Fields<'a> {
    Fields {
        kind: new.kind,
        external_id,
        owner: new.owner.as_deref(),
        name: &new.name,
        description: &new.description,
        spec: &new.spec,
        payload: &new.payload,
        session_target: new.session_target.as_deref(),
        wake_mode: new.wake_mode.as_deref(),
        isolation: new.isolation.as_ref(),
    }
}

async fn insert(
    tx: &mut TenantTx,
    new: &NewJob,
    external_id: &str,
    next: Option<NextSlot>,
    signature: Option<&str>,
) -> Result<(), Error> {
    const SQL: &str = "
        insert into schedule.jobs
            (tenant_id, job_id, external_id, kind, agent_id, owner, name, description, spec, payload,
             session_target, wake_mode, isolation, overlap, delete_after_run, slot_at, due_at, state,
             trace, author, signature)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                $19, $20, $21)";

    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(new.id.as_uuid())
        .bind(external_id)
        .bind(new.kind.as_str())
        .bind(new.agent.as_uuid())
        .bind(new.owner.as_deref())
        .bind(&new.name)
        .bind(&new.description)
        .bind(Json(&new.spec))
        .bind(Json(&new.payload))
        .bind(new.session_target.as_deref())
        .bind(new.wake_mode.as_deref())
        .bind(new.isolation.as_ref().map(Json))
        .bind(new.overlap.as_str())
        .bind(new.delete_after_run)
        .bind(next.map(|next| jiff_sqlx::Timestamp::from(next.slot)))
        .bind(next.map(|next| jiff_sqlx::Timestamp::from(next.due)))
        .bind(if new.enabled { JobState::Active } else { JobState::Paused }.as_str())
        .bind(holdfast_kit::trace::current())
        .bind(new.author.as_ref().map(Json))
        .bind(signature)
        .execute(tx.conn())
        .await?;
    Ok(())
}
