//! End of firings and its effect on their jobs. A failed reminder is also announced (spec REM-010),
//! in the same transaction.

use std::collections::HashMap;

use holdfast_pg::Connection;
use uuid::Uuid;

use super::{
    events::{self, OutboxEvent},
    failures::{self, Failure},
    rows::{self, Retry, wake},
};
use crate::store::{
    Error, FiringRef, JobKind, Jobs, Origin, Outcome, Slot,
    log::{self, Line, column},
    row::word,
};

/// Seconds until a job fires again, by the number of consecutive errors (C-19).
const RETRY_DELAYS_SECONDS: [i32; 5] = [30, 60, 300, 900, 3600];

/// Number of retries of a job that has no slot left.
const MAX_RETRIES: u32 = 3;

/// Error class of a firing that is not retried because its reply is still being delivered: a retry
/// would send a second one.
pub const CLASS_UNSENT: &str = "unsent";

impl Jobs {
    /// Ends firings. Returns how many were still open.
    pub(crate) async fn close(&self, closing: &[FiringEnd]) -> Result<u64, Error> {
        if closing.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pools.system().await?;
        let mut jobs = lock(tx.conn(), closing.iter().map(|one| one.id)).await?;
        let closed = rows::close(tx.conn(), closing).await?;
        let count = closed.len() as u64;
        let mut lines = Vec::new();
        let mut retries = Vec::new();
        let (mut failures, mut told) = (Vec::new(), Vec::new());
        for (place, at, origin, run, session) in closed {
            let one = usize::try_from(place - 1).ok().and_then(|place| closing.get(place));
            let key = one.map(|one| (one.id.tenant.as_uuid(), one.id.job.as_uuid()));
            let (Some(one), Some(job)) = (one, key.and_then(|key| jobs.get_mut(&key))) else {
                continue;
            };
            let origin = word(Origin::parse(&origin))?;
            let again = job.apply_end(one, origin);
            told.push(OutboxEvent::ended(one.id, (one.outcome, one.class.as_deref()), session));
            if job.kind == JobKind::Reminder && one.outcome == Outcome::Error {
                failures.push(Failure::of(one, session, again.is_some()));
            }
            retries.extend(again);
            lines.push(job.line(one, at, origin, run));
        }
        let touched: Vec<&LockedJob> = jobs.values().filter(|job| job.last.is_some()).collect();
        log::write(tx.conn(), &lines).await?;
        rows::retry(tx.conn(), &retries).await?;
        let gone = write(tx.conn(), &touched).await?;
        delete_jobs(tx.conn(), &gone).await?;
        let freed: Vec<(Uuid, Uuid)> = touched.iter().map(|job| (job.tenant, job.job)).collect();
        wake(tx.conn(), &freed).await?;
        let logged: Vec<_> = touched.iter().map(|job| (job.tenant, job.job, job.logged)).collect();
        log::prune(tx.conn(), &logged).await?;
        failures::publish(tx.conn(), &failures).await?;
        events::publish(tx.conn(), &told).await?;
        tx.commit().await?;
        failures::log_failures(&failures);
        Ok(count)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndKind {
    Finished,
    /// The holder cannot deliver the firing.
    Refused,
    /// The firing ran for longer than its limit.
    Lapsed,
}

impl EndKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Refused => "refused",
            Self::Lapsed => "lapsed",
        }
    }
}

pub(crate) struct FiringEnd {
    pub id: FiringRef,
    pub how: EndKind,
    /// Fence: a refusal counts only if the firing's attempt is still this one.
    pub attempt: i32,
    pub outcome: Outcome,
    pub class: Option<String>,
    pub millis: Option<i64>,
}

/// Locked job row and the changes that the ends of its firings make to it.
pub(crate) struct LockedJob {
    tenant: Uuid,
    job: Uuid,
    kind: JobKind,
    logged: i64,
    errors: i32,
    /// Whether the job is active and has no slot left.
    is_last: bool,
    delete_after_run: bool,
    running: Option<String>,
    last: Option<(Outcome, Option<String>, Option<i64>)>,
    freed: bool,
    retried: bool,
}

impl LockedJob {
    /// Applies the end of a firing. Returns the retry, if there is one.
    fn apply_end(&mut self, one: &FiringEnd, origin: Origin) -> Option<Retry> {
        self.freed |= self.running.as_deref() == Some(one.id.slot.to_string().as_str());
        self.last = Some((one.outcome, one.class.clone(), one.millis));
        match one.outcome {
            Outcome::Ok => self.errors = 0,
            Outcome::Skipped => {}
            Outcome::Error => self.errors = self.errors.saturating_add(1),
        }
        let (at, n) = match one.id.slot {
            Slot::At(at) => (at, 0),
            Slot::Again { at, n } => (at, n),
            Slot::Now(_) => return None,
        };
        let is_own = matches!(origin, Origin::Due | Origin::Retry);
        let is_over = n >= MAX_RETRIES || one.class.as_deref() == Some(CLASS_UNSENT);
        if one.outcome != Outcome::Error || !self.is_last || !is_own || is_over {
            return None;
        }
        self.retried = true;
        Some((self.tenant, self.job, Slot::Again { at, n: n + 1 }, self.retry_delay_seconds()))
    }

    fn line(
        &mut self,
        one: &FiringEnd,
        at: jiff_sqlx::Timestamp,
        origin: Origin,
        run: Option<Uuid>,
    ) -> Line {
        self.logged += 1;
        Line {
            tenant: self.tenant,
            job: self.job,
            n: self.logged,
            slot: Some(one.id.slot.to_string()),
            at,
            last: at,
            slots: Some(1),
            origin,
            outcome: one.outcome,
            class: one.class.clone(),
            millis: one.millis,
            run,
        }
    }

    /// Returns the seconds until the job may fire again.
    fn retry_delay_seconds(&self) -> i32 {
        match (&self.last, usize::try_from(self.errors)) {
            (Some((Outcome::Error, _, _)), Ok(errors)) if errors > 0 => {
                RETRY_DELAYS_SECONDS[errors.min(RETRY_DELAYS_SECONDS.len()) - 1]
            }
            _ => 0,
        }
    }

    fn has_ended(&self) -> bool {
        self.is_last && !self.retried
    }

    fn is_deleted_at_end(&self) -> bool {
        self.delete_after_run && matches!(self.last, Some((Outcome::Ok, _, _)))
    }
}

/// Locks the rows of the firings' jobs, ordered by id: every transaction locks in this order, or
/// two could deadlock.
pub(crate) async fn lock(
    conn: &mut Connection,
    firings: impl Iterator<Item = FiringRef>,
) -> Result<HashMap<(Uuid, Uuid), LockedJob>, Error> {
    const SQL: &str = "
        select j.tenant_id, j.job_id, j.kind, j.logged, j.errors, j.due_at is null and j.state = 'active',
               j.delete_after_run, j.running_slot
        from unnest($1::uuid[], $2::uuid[]) as k (tenant_id, job_id)
        join schedule.jobs j on j.job_id = k.job_id and j.tenant_id = k.tenant_id
        order by j.job_id, j.tenant_id
        for update of j";
    type Row = (Uuid, Uuid, String, i64, i32, bool, bool, Option<String>);

    let mut keys: Vec<(Uuid, Uuid)> =
        firings.map(|one| (one.job.as_uuid(), one.tenant.as_uuid())).collect();
    keys.sort_unstable();
    keys.dedup();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL)
        .bind(column(&keys, |key| key.1))
        .bind(column(&keys, |key| key.0))
        .fetch_all(conn)
        .await?;
    rows.into_iter()
        .map(|(tenant, job, kind, logged, errors, is_last, delete_after_run, running)| {
            let locked = LockedJob {
                tenant,
                job,
                kind: word(JobKind::parse(&kind))?,
                logged,
                errors,
                is_last,
                delete_after_run,
                running,
                last: None,
                freed: false,
                retried: false,
            };
            Ok(((tenant, job), locked))
        })
        .collect()
}

/// Writes the job rows. Returns the jobs that are to be deleted.
async fn write(conn: &mut Connection, jobs: &[&LockedJob]) -> Result<Vec<(Uuid, Uuid)>, Error> {
    const SQL: &str = "
        with ends as materialized (
            select d.*, d.ends and not exists (
                select from schedule.firings f
                where f.job_id = d.job_id and f.tenant_id = d.tenant_id
                  and f.state in ('pending', 'delivered')) as done
            from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::integer[], $5::text[], $6::text[],
                        $7::bigint[], $8::boolean[], $9::integer[], $10::boolean[], $11::boolean[])
                 as d (tenant_id, job_id, logged, errors, status, class, ms, freed, pause, ends, goes))
        update schedule.jobs j
        set logged = d.logged, errors = d.errors, last_at = clock_timestamp(), last_status = d.status,
            last_class = d.class, last_ms = d.ms,
            running_slot = case when d.freed then null else j.running_slot end,
            running_until = case when d.freed then null else j.running_until end,
            due_at = case when j.due_at is not null
                     then greatest(j.due_at, clock_timestamp() + d.pause * interval '1 second') end,
            state = case when d.done then 'done' else j.state end,
            updated_at = case when d.done then clock_timestamp() else j.updated_at end
        from ends d
        where j.job_id = d.job_id and j.tenant_id = d.tenant_id
        returning j.tenant_id, j.job_id, d.done and d.goes";

    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let last = |job: &&LockedJob| job.last.clone().unwrap_or((Outcome::Skipped, None, None));
    let rows: Vec<(Uuid, Uuid, bool)> = holdfast_pg::query_as(SQL)
        .bind(column(jobs, |job| job.tenant))
        .bind(column(jobs, |job| job.job))
        .bind(column(jobs, |job| job.logged))
        .bind(column(jobs, |job| job.errors))
        .bind(column(jobs, |job| last(job).0.as_str()))
        .bind(column(jobs, |job| last(job).1))
        .bind(column(jobs, |job| last(job).2))
        .bind(column(jobs, |job| job.freed))
        .bind(column(jobs, |job| {
            (job.retry_delay_seconds() > 0).then(|| job.retry_delay_seconds())
        }))
        .bind(column(jobs, |job| job.has_ended()))
        .bind(column(jobs, |job| job.is_deleted_at_end()))
        .fetch_all(conn)
        .await?;
    Ok(rows.into_iter().filter(|row| row.2).map(|row| (row.0, row.1)).collect())
}

/// Deletes jobs whose rows are locked, with their firings and log.
async fn delete_jobs(conn: &mut Connection, jobs: &[(Uuid, Uuid)]) -> Result<(), Error> {
    const SQL: [&str; 3] = [
        "delete from schedule.jobs t using unnest($1::uuid[], $2::uuid[]) as k (tenant_id, job_id)
         where t.job_id = k.job_id and t.tenant_id = k.tenant_id",
        "delete from schedule.firings t using unnest($1::uuid[], $2::uuid[]) as k (tenant_id, job_id)
         where t.job_id = k.job_id and t.tenant_id = k.tenant_id",
        "delete from schedule.runs t using unnest($1::uuid[], $2::uuid[]) as k (tenant_id, job_id)
         where t.job_id = k.job_id and t.tenant_id = k.tenant_id",
    ];

    if jobs.is_empty() {
        return Ok(());
    }
    for sql in SQL {
        holdfast_pg::query(sql)
            .bind(column(jobs, |job| job.0))
            .bind(column(jobs, |job| job.1))
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}
