//! Changes to jobs, including pause and resume.

use holdfast_pg::TenantTx;
use holdfast_types::{Author, JobId, TenantId};
use jiff::Timestamp;
use serde_json::Value;
use sqlx::types::Json;

use crate::store::{
    Error, Job, JobKind, JobState, Jobs, NextSlot, Overlap, ScheduledJob,
    check::Fields,
    firings::rows::release,
    jobs::{lock, now},
    signature::JobFields,
};

/// Changes to a job; `None` keeps a field.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    pub name: Option<String>,
    pub description: Option<String>,
    pub enabled: Option<bool>,
    pub schedule: Option<NewSchedule>,
    pub payload: Option<Value>,
    /// `main` or `isolated`.
    pub session_target: Option<String>,
    /// `now` or `next-heartbeat`.
    pub wake_mode: Option<String>,
    /// How an isolated run reports its end to the main session; `Some(None)` clears it.
    pub isolation: Option<Option<Value>>,
    /// Whether the job is deleted after a successful run if no slot is left.
    pub delete_after_run: Option<bool>,
    pub overlap: Option<Overlap>,
    /// Who makes the changes; `None` is the mesh.
    pub editor: Option<Editor>,
}

/// Author of changes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Editor {
    pub author: Author,
    /// Whether the author owns the job's agent. An owner's rights include everybody's.
    pub is_owner: bool,
}

impl Editor {
    /// Author of what a job does after this editor has changed it. Words that stay from before must
    /// not gain rights, and words that are new must not have somebody else's: an owner's changes
    /// leave the author, anybody else becomes it.
    fn author_after(self, former: Option<Author>) -> Option<Author> {
        let is_own = former.as_ref().is_some_and(|former| former.id == self.author.id);
        if self.is_owner && !is_own { former } else { Some(self.author) }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    pub kind: Option<JobKind>,
    /// Schedule as the kind defines it.
    pub spec: Value,
}

impl Changes {
    fn apply(self, job: &mut Job) {
        if let Some(schedule) = self.schedule {
            job.kind = schedule.kind.unwrap_or(job.kind);
            job.spec = schedule.spec;
        }
        job.name = self.name.unwrap_or_else(|| std::mem::take(&mut job.name));
        job.description = self.description.unwrap_or_else(|| std::mem::take(&mut job.description));
        job.payload = self.payload.unwrap_or_else(|| std::mem::take(&mut job.payload));
        job.session_target = self.session_target.or_else(|| job.session_target.take());
        job.wake_mode = self.wake_mode.or_else(|| job.wake_mode.take());
        job.isolation = self.isolation.unwrap_or_else(|| job.isolation.take());
        job.overlap = self.overlap.unwrap_or(job.overlap);
        job.delete_after_run = self.delete_after_run.unwrap_or(job.delete_after_run);
    }
}

impl Jobs {
    /// Changes a job; with a `version`, only if the job still has that version.
    ///
    /// A new schedule counts from now: undecided slots before now are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::Changed`], [`Error::Never`] if the job is active and the
    /// schedule has no slot, [`Error::Field`] and [`Error::Schedule`] if a field or the schedule is
    /// invalid, [`Error::NoSigningKeys`] if it cannot be signed.
    pub async fn update(
        &self,
        tenant: TenantId,
        job: JobId,
        version: Option<i64>,
        changes: Changes,
    ) -> Result<Job, Error> {
        if let Some(keys) = self.signing_keys().await? {
            // After the change, the job would not be as it was recorded.
            self.sign_recorded(keys, tenant, &[job.as_uuid()]).await?;
        }
        self.change(tenant, job, version, changes).await
    }

    /// As [`update`](Self::update), for jobs that nobody signs.
    pub(crate) async fn change(
        &self,
        tenant: TenantId,
        job: JobId,
        version: Option<i64>,
        changes: Changes,
    ) -> Result<Job, Error> {
        let keys = self.signing_keys().await?;
        let mut tx = self.pools.tenant(tenant).await?;
        let mut job: Job = lock(&mut tx, job).await?.try_into()?;
        if let Some(given) = version.filter(|given| *given != job.version) {
            return Err(Error::Changed { have: job.version, given });
        }
        let (was, enabled) = (job.clone(), changes.enabled);
        let is_rescheduled = changes.schedule.is_some();
        let editor = changes.editor.clone();
        changes.apply(&mut job);
        if let Some(editor) = editor.filter(|_| is_other_work(&was, &job)) {
            job.author = editor.author_after(job.author);
        }
        fields(&job).check()?;
        // Words that stay from before are signed only if they were.
        if let Some(keys) = keys.filter(|keys| keys.is_job_signed(&was)) {
            job.signature = keys.sign_job(tenant, &JobFields::from(&job))?;
        }
        job.state = state(job.state, enabled, is_rescheduled);
        if job.state != was.state || is_rescheduled {
            let resumed = was.state == JobState::Paused && job.state == JobState::Active;
            let waits = match resumed {
                true => release(tx.conn(), tenant.as_uuid(), job.id.as_uuid()).await? > 0,
                false => false,
            };
            let next = match self.next(&job, now(&mut tx).await?) {
                // A failed firing still waits for its retry, so the job is not over.
                Err(Error::Never) if waits => None,
                next => next?,
            };
            (job.next_slot, job.next_due) = (next.map(|next| next.slot), next.map(|next| next.due));
        }
        if job == was {
            tx.finish_reading();
            return Ok(job);
        }
        let job = write(&mut tx, job).await?;
        tx.commit().await?;
        Ok(job)
    }

    /// Pauses a job: it has no next slot until it is resumed, and firings that are not handed out
    /// yet wait until then.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    pub async fn pause(&self, tenant: TenantId, job: JobId) -> Result<Job, Error> {
        let changes = Changes { enabled: Some(false), ..Changes::default() };
        self.update(tenant, job, None, changes).await
    }

    /// Resumes a job, from now.
    ///
    /// # Errors
    ///
    /// [`Error::Never`] if no slot is left; otherwise as [`update`](Self::update).
    pub async fn resume(&self, tenant: TenantId, job: JobId) -> Result<Job, Error> {
        let changes = Changes { enabled: Some(true), ..Changes::default() };
        self.update(tenant, job, None, changes).await
    }

    /// Returns the next slot of a job. The schedule is validated even if the job is not active.
    fn next(&self, job: &Job, now: Timestamp) -> Result<Option<NextSlot>, Error> {
        let scheduled =
            ScheduledJob { tenant: job.tenant, job: job.id, kind: job.kind, spec: &job.spec };
        let next = self.planner.first(scheduled, now)?;
        match job.state {
            JobState::Active => next.map(Some).ok_or(Error::Never),
            JobState::Paused | JobState::Done | JobState::Broken => Ok(None),
        }
    }
}

/// Whether runs of the job do or say something else than before, or somewhere else.
fn is_other_work(was: &Job, job: &Job) -> bool {
    // The text of a timer is its name.
    let is_renamed_timer = job.kind == JobKind::Timer && job.name != was.name;
    is_renamed_timer
        || (&was.payload, &was.session_target, &was.isolation)
            != (&job.payload, &job.session_target, &job.isolation)
}

/// Returns the new state. A job with a broken schedule becomes active with a new one; all other
/// transitions need an explicit `enabled`.
fn state(was: JobState, enabled: Option<bool>, is_rescheduled: bool) -> JobState {
    match (enabled, was) {
        (Some(true), _) => JobState::Active,
        (Some(false), JobState::Done) => JobState::Done,
        (Some(false), _) => JobState::Paused,
        (None, JobState::Broken) if is_rescheduled => JobState::Active,
        (None, was) => was,
    }
}

fn fields(job: &Job) -> Fields<'_> {
    Fields {
        kind: job.kind,
        external_id: &job.external_id,
        owner: job.owner.as_deref(),
        name: &job.name,
        description: &job.description,
        spec: &job.spec,
        payload: &job.payload,
        session_target: job.session_target.as_deref(),
        wake_mode: job.wake_mode.as_deref(),
        isolation: job.isolation.as_ref(),
    }
}

async fn write(tx: &mut TenantTx, mut job: Job) -> Result<Job, Error> {
    const SQL: &str = "
        update schedule.jobs
        set kind = $3, name = $4, description = $5, spec = $6, payload = $7, session_target = $8,
            wake_mode = $9, isolation = $10, delete_after_run = $11, state = $12, slot_at = $13,
            due_at = $14, overlap = $15, author = $16, signature = $17, version = version + 1,
            updated_at = clock_timestamp()
        where tenant_id = $1 and job_id = $2
        returning version, updated_at";

    let (version, updated_at): (i64, jiff_sqlx::Timestamp) = holdfast_pg::query_as(SQL)
        .bind(job.tenant.as_uuid())
        .bind(job.id.as_uuid())
        .bind(job.kind.as_str())
        .bind(&job.name)
        .bind(&job.description)
        .bind(Json(&job.spec))
        .bind(Json(&job.payload))
        .bind(job.session_target.as_deref())
        .bind(job.wake_mode.as_deref())
        .bind(job.isolation.as_ref().map(Json))
        .bind(job.delete_after_run)
        .bind(job.state.as_str())
        .bind(job.next_slot.map(jiff_sqlx::Timestamp::from))
        .bind(job.next_due.map(jiff_sqlx::Timestamp::from))
        .bind(job.overlap.as_str())
        .bind(job.author.as_ref().map(Json))
        .bind(job.signature.as_deref())
        .fetch_one(tx.conn())
        .await?;
    (job.version, job.updated_at) = (version, updated_at.to_jiff());
    Ok(job)
}
