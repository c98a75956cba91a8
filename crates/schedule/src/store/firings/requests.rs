//! Firings on request: one now, or a backfill of past slots.

use holdfast_pg::TenantTx;
use holdfast_types::{JobId, TenantId};
use jiff::Timestamp;
use uuid::Uuid;

use super::rows::wake;
use crate::store::{
    Error, FiringRef, Job, Jobs, Overlap, Slot,
    jobs::{lock, now},
    log::{MAX_LOG_LINES, column},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    Due,
    Force,
}

/// Outcome of a request to run a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunRequestOutcome {
    /// The firing exists; a scheduler will hand it out.
    Fired(FiringRef),
    /// The job is due; a scheduler will claim it by itself.
    Due,
    /// The job does not run; the text says why.
    Skipped(&'static str),
}

/// Maximum slots in one backfill.
const MAX_BACKFILL_SLOTS: usize = 1000;

impl Jobs {
    /// Requests a run now, whether or not the job is enabled. The same `request` id creates one
    /// firing.
    ///
    /// If the job is running, overlap `skip` skips the request and overlap `queue` queues it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub async fn run_now(
        &self,
        tenant: TenantId,
        job: JobId,
        request: Uuid,
        mode: RunMode,
    ) -> Result<RunRequestOutcome, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let job: Job = lock(&mut tx, job).await?.try_into()?;
        let (id, slot) = (job.id, Slot::Now(request));
        let fired = RunRequestOutcome::Fired(FiringRef { tenant, job: id, slot });
        let now = now(&mut tx).await?;
        let is_due = job.next_due.is_some_and(|due| due <= now);
        let ran = match mode {
            RunMode::Force if is_there(&mut tx, id, slot).await? => fired,
            RunMode::Due if is_due => RunRequestOutcome::Due,
            RunMode::Due => RunRequestOutcome::Skipped("not due"),
            RunMode::Force if job.running.is_some() && job.overlap == Overlap::Skip => {
                RunRequestOutcome::Skipped("already running")
            }
            RunMode::Force => {
                let queued = job.running.is_some() && job.overlap == Overlap::Queue;
                let turn = if queued { FiringStart::Later } else { FiringStart::Now };
                insert(&mut tx, id, &[(slot, now)], "forced", turn).await?;
                fired
            }
        };
        tx.commit().await?;
        Ok(ran)
    }

    /// Creates firings for past slots that have none. Returns how many are new.
    ///
    /// They run one after another unless the job allows overlap; those of a paused job run once it
    /// is resumed. For slots before the job's log begins it is not known whether they ran.
    ///
    /// # Errors
    ///
    /// [`Error::FutureSlot`], [`Error::ForgottenSlot`], [`Error::TooManySlots`],
    /// [`Error::NotFound`].
    pub async fn backfill(
        &self,
        tenant: TenantId,
        job: JobId,
        slots: &[Timestamp],
    ) -> Result<u64, Error> {
        if slots.len() > MAX_BACKFILL_SLOTS {
            return Err(Error::TooManySlots { given: slots.len(), limit: MAX_BACKFILL_SLOTS });
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let job: Job = lock(&mut tx, job).await?.try_into()?;
        let now = now(&mut tx).await?;
        if let Some(future) = slots.iter().find(|slot| **slot >= now) {
            return Err(Error::FutureSlot(future.to_string()));
        }
        let known = known_since(&mut tx, job.id).await?;
        if let Some(since) = known.filter(|since| slots.iter().any(|slot| slot <= since)) {
            return Err(Error::ForgottenSlot(since.to_string()));
        }
        let slots: Vec<_> = slots.iter().map(|at| (Slot::at(*at), *at)).collect();
        let turn =
            if job.overlap == Overlap::Allow { FiringStart::Now } else { FiringStart::Later };
        let count = insert(&mut tx, job.id, &slots, "backfill", turn).await?;
        if job.running.is_none() {
            wake(tx.conn(), &[(tenant.as_uuid(), job.id.as_uuid())]).await?;
        }
        tx.commit().await?;
        Ok(count)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FiringStart {
    Now,
    /// After the running firing.
    Later,
}

async fn is_there(tx: &mut TenantTx, job: JobId, slot: Slot) -> Result<bool, Error> {
    const SQL: &str = "
        select exists (select from schedule.firings
                       where tenant_id = $1 and job_id = $2 and slot = $3)";
    let tenant = tx.tenant();
    Ok(holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(job.as_uuid())
        .bind(slot.to_string())
        .fetch_one(tx.conn())
        .await?)
}

/// Returns the time since which a job's log is complete; `None` if nothing was pruned.
async fn known_since(tx: &mut TenantTx, job: JobId) -> Result<Option<Timestamp>, Error> {
    // A pruned firing had finished by this time, so its slot was earlier.
    const SQL: &str = "
        select r.finished_at from schedule.jobs j
        join schedule.runs r on r.job_id = j.job_id and r.tenant_id = j.tenant_id
                            and r.n = j.logged - $3 + 1
        where j.tenant_id = $1 and j.job_id = $2 and j.logged > $3";
    let tenant = tx.tenant();
    let since: Option<jiff_sqlx::Timestamp> = holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(job.as_uuid())
        .bind(MAX_LOG_LINES)
        .fetch_optional(tx.conn())
        .await?;
    Ok(since.map(jiff_sqlx::Timestamp::to_jiff))
}

/// Inserts firings of a locked job. Returns how many are new.
async fn insert(
    tx: &mut TenantTx,
    job: JobId,
    slots: &[(Slot, Timestamp)],
    origin: &'static str,
    turn: FiringStart,
) -> Result<u64, Error> {
    const SQL: &str = "
        insert into schedule.firings (tenant_id, job_id, slot, slot_at, origin, offer_at)
        select $1, $2, slot, slot_at, $5, case when $6 then clock_timestamp() end
        from unnest($3::text[], $4::timestamptz[]) as s (slot, slot_at)
        on conflict (job_id, slot, tenant_id) do nothing";

    let tenant = tx.tenant();
    let done = holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(job.as_uuid())
        .bind(column(slots, |slot| slot.0.to_string()))
        .bind(column(slots, |slot| jiff_sqlx::Timestamp::from(slot.1)))
        .bind(origin)
        .bind(turn == FiringStart::Now)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected())
}
