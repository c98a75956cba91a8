//! What became of firings that were handed out.

use std::{collections::HashMap, time::Duration};

use holdfast_types::RunId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    Error, Firing, FiringRef, Jobs, Origin, Outcome, Slot,
    log::{self, Line, class, column},
    row::word,
};

/// A firing that was accepted, and runs; said again, one that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Which one.
    pub firing: FiringRef,
    /// What it became; `None` if it became no run.
    pub run: Option<RunId>,
    /// How long it may run, from now, before it is given up.
    pub lease: Duration,
}

/// A firing that cannot be delivered now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Postponed {
    /// As it was handed out.
    pub firing: Firing,
    /// When it is to be handed out again.
    pub after: Duration,
}

/// A firing that cannot be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// As it was handed out.
    pub firing: Firing,
    /// [`Outcome::Error`], or [`Outcome::Skipped`] if nothing was wrong.
    pub outcome: Outcome,
    /// Why, in a word: never what was said.
    pub class: String,
}

/// A firing that has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which one.
    pub firing: FiringRef,
    /// How.
    pub outcome: Outcome,
    /// What was wrong, in a word: never what was said.
    pub class: Option<String>,
    /// How long it took.
    pub took: Option<Duration>,
}

/// Seconds until a job fires again after so many errors one after another (C-19).
const BACKOFF: [i32; 5] = [30, 60, 300, 900, 3600];

/// How often something that has only one slot is tried again after an error.
const RETRIES: u32 = 3;

impl Jobs {
    /// Notes that firings run, and says of how many that counts.
    ///
    /// It counts whoever says so, as it is true: the key made it one. Of one that ended already it
    /// does not.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn delivered(&self, delivered: &[Delivered]) -> Result<u64, Error> {
        const SQL: &str = "
            with told as (
                update schedule.firings f
                set state = 'delivered', held = false, offer_at = null,
                    until = clock_timestamp() + d.lease * interval '1 second',
                    run_id = coalesce(d.run_id, f.run_id),
                    delivered_at = coalesce(f.delivered_at, clock_timestamp())
                from unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::float8[])
                     as d (tenant_id, job_id, slot, run_id, lease)
                where f.job_id = d.job_id and f.slot = d.slot and f.tenant_id = d.tenant_id
                  and f.state in ('pending', 'delivered')
                returning f.tenant_id, f.job_id, f.slot, f.until),
            running as (
                update schedule.jobs j set running_until = t.until
                from told t
                where j.job_id = t.job_id and j.tenant_id = t.tenant_id and j.running_slot = t.slot)
            select count(*) from told";

        if delivered.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pools.system().await?;
        lock(tx.conn(), delivered.iter().map(|one| one.firing)).await?;
        let count: i64 = sqlx::query_scalar(SQL)
            .bind(column(delivered, |one| one.firing.tenant.as_uuid()))
            .bind(column(delivered, |one| one.firing.job.as_uuid()))
            .bind(column(delivered, |one| one.firing.slot.to_string()))
            .bind(column(delivered, |one| one.run.map(RunId::as_uuid)))
            .bind(column(delivered, |one| one.lease.as_secs_f64()))
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(count.unsigned_abs())
    }

    /// Gives firings back for a while, and says of how many that counts: those that are still the
    /// caller's. Nothing is charged.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn postponed(&self, postponed: &[Postponed]) -> Result<u64, Error> {
        const SQL: &str = "
            update schedule.firings f
            set held = false, offer_at = clock_timestamp() + p.after * interval '1 second'
            from unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::float8[])
                 as p (tenant_id, job_id, slot, attempt, after)
            where f.job_id = p.job_id and f.slot = p.slot and f.tenant_id = p.tenant_id
              and f.state = 'pending' and f.attempts = p.attempt";

        if postponed.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pools.system().await?;
        lock(tx.conn(), postponed.iter().map(|one| one.firing.id)).await?;
        let done = sqlx::query(SQL)
            .bind(column(postponed, |one| one.firing.id.tenant.as_uuid()))
            .bind(column(postponed, |one| one.firing.id.job.as_uuid()))
            .bind(column(postponed, |one| one.firing.id.slot.to_string()))
            .bind(column(postponed, |one| one.firing.attempt))
            .bind(column(postponed, |one| one.after.as_secs_f64()))
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(done.rows_affected())
    }

    /// Ends firings that cannot be delivered, and says of how many that counts: those that are
    /// still the caller's. Errors delay the job's next slot, and are tried again if it has none.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn refused(&self, refused: &[Refused]) -> Result<u64, Error> {
        let closing: Vec<Closing> = refused
            .iter()
            .map(|one| Closing {
                id: one.firing.id,
                how: How::Refused,
                attempt: one.firing.attempt,
                outcome: one.outcome,
                class: Some(class(&one.class)),
                millis: None,
            })
            .collect();
        self.close(&closing).await
    }

    /// Ends firings that have run, and says of how many that counts: those that had not ended yet.
    ///
    /// An error delays the job's next slot by 30 s, 1, 5, 15, 60 min, the more there are one after
    /// another; a job that has no slot left is tried three times more. One that has no slot left
    /// and is not tried again is done, or gone if it did well and was to go.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn finished(&self, ended: &[Ended]) -> Result<u64, Error> {
        let closing: Vec<Closing> = ended
            .iter()
            .map(|one| Closing {
                id: one.firing,
                how: How::Finished,
                attempt: 0,
                outcome: one.outcome,
                class: one.class.as_deref().map(class),
                millis: one.took.map(|took| i64::try_from(took.as_millis()).unwrap_or(i64::MAX)),
            })
            .collect();
        self.close(&closing).await
    }

    pub(crate) async fn close(&self, closing: &[Closing]) -> Result<u64, Error> {
        if closing.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pools.system().await?;
        let mut jobs = lock(tx.conn(), closing.iter().map(|one| one.id)).await?;
        let closed = close_firings(tx.conn(), closing).await?;
        let count = closed.len() as u64;
        let mut lines = Vec::new();
        let mut retries = Vec::new();
        for (place, at, origin, run) in closed {
            let one = usize::try_from(place - 1).ok().and_then(|place| closing.get(place));
            let key = one.map(|one| (one.id.tenant.as_uuid(), one.id.job.as_uuid()));
            let (Some(one), Some(job)) = (one, key.and_then(|key| jobs.get_mut(&key))) else {
                continue;
            };
            let origin = word(Origin::parse(&origin))?;
            retries.extend(job.hear(one, origin));
            lines.push(job.line(one, at, origin, run));
        }
        let touched: Vec<&Locked> = jobs.values().filter(|job| job.last.is_some()).collect();
        log::write(tx.conn(), &lines).await?;
        retry(tx.conn(), &retries).await?;
        let gone = write(tx.conn(), &touched).await?;
        forget(tx.conn(), &gone).await?;
        let freed: Vec<(Uuid, Uuid)> = touched.iter().map(|job| (job.tenant, job.job)).collect();
        wake(tx.conn(), &freed).await?;
        let logged: Vec<_> = touched.iter().map(|job| (job.tenant, job.job, job.logged)).collect();
        log::prune(tx.conn(), &logged).await?;
        tx.commit().await?;
        Ok(count)
    }
}

/// How a firing ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It has run, or needed not to.
    Finished,
    /// Whoever has it cannot deliver it.
    Refused,
    /// It has run for longer than it may.
    Lapsed,
}

impl How {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Refused => "refused",
            Self::Lapsed => "lapsed",
        }
    }
}

pub(crate) struct Closing {
    pub id: FiringRef,
    pub how: How,
    /// The fence of one that is refused.
    pub attempt: i32,
    pub outcome: Outcome,
    pub class: Option<String>,
    pub millis: Option<i64>,
}

/// A job whose row is locked, and what its firings' ends make of it.
struct Locked {
    tenant: Uuid,
    job: Uuid,
    logged: i64,
    errors: i32,
    /// Whether it is on and has no slot left.
    is_last: bool,
    delete_after_run: bool,
    running: Option<String>,
    last: Option<(Outcome, Option<String>, Option<i64>)>,
    freed: bool,
    retried: bool,
}

/// A firing to come: of which job, which, and after how many seconds.
type Retry = (Uuid, Uuid, Slot, i32);

impl Locked {
    /// Takes note of an end, and says what is to be tried again.
    fn hear(&mut self, one: &Closing, origin: Origin) -> Option<Retry> {
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
        if one.outcome != Outcome::Error || !self.is_last || !is_own || n >= RETRIES {
            return None;
        }
        self.retried = true;
        Some((self.tenant, self.job, Slot::Again { at, n: n + 1 }, self.pause()))
    }

    fn line(
        &mut self,
        one: &Closing,
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
            slots: 1,
            origin,
            outcome: one.outcome,
            class: one.class.clone(),
            millis: one.millis,
            run,
        }
    }

    /// Seconds until it may fire again.
    fn pause(&self) -> i32 {
        match (&self.last, usize::try_from(self.errors)) {
            (Some((Outcome::Error, _, _)), Ok(errors)) if errors > 0 => {
                BACKOFF[errors.min(BACKOFF.len()) - 1]
            }
            _ => 0,
        }
    }

    fn ends(&self) -> bool {
        self.is_last && !self.retried
    }

    fn goes(&self) -> bool {
        self.delete_after_run && matches!(self.last, Some((Outcome::Ok, _, _)))
    }
}

/// Locks jobs' rows, in the order that everybody does.
async fn lock(
    conn: &mut PgConnection,
    firings: impl Iterator<Item = FiringRef>,
) -> Result<HashMap<(Uuid, Uuid), Locked>, Error> {
    const SQL: &str = "
        select j.tenant_id, j.job_id, j.logged, j.errors, j.due_at is null and j.state = 'active',
               j.delete_after_run, j.running_slot
        from unnest($1::uuid[], $2::uuid[]) as k (tenant_id, job_id)
        join schedule.jobs j on j.job_id = k.job_id and j.tenant_id = k.tenant_id
        order by j.job_id, j.tenant_id
        for update of j";
    type Row = (Uuid, Uuid, i64, i32, bool, bool, Option<String>);

    let mut keys: Vec<(Uuid, Uuid)> =
        firings.map(|one| (one.job.as_uuid(), one.tenant.as_uuid())).collect();
    keys.sort_unstable();
    keys.dedup();
    let rows: Vec<Row> = sqlx::query_as(SQL)
        .bind(column(&keys, |key| key.1))
        .bind(column(&keys, |key| key.0))
        .fetch_all(conn)
        .await?;
    Ok(rows
        .into_iter()
        .map(|(tenant, job, logged, errors, is_last, delete_after_run, running)| {
            let locked = Locked {
                tenant,
                job,
                logged,
                errors,
                is_last,
                delete_after_run,
                running,
                last: None,
                freed: false,
                retried: false,
            };
            ((tenant, job), locked)
        })
        .collect())
}

/// A firing that was closed: its place among those given, from 1; its time, origin and run.
type ClosedRow = (i64, jiff_sqlx::Timestamp, String, Option<Uuid>);

async fn close_firings(
    conn: &mut PgConnection,
    closing: &[Closing],
) -> Result<Vec<ClosedRow>, Error> {
    const SQL: &str = "
        update schedule.firings f
        set state = case when e.how = 'refused' then 'refused' else 'done' end,
            held = false, offer_at = null, until = null, closed_at = clock_timestamp()
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::integer[])
             with ordinality as e (tenant_id, job_id, slot, how, attempt, place)
        where f.job_id = e.job_id and f.slot = e.slot and f.tenant_id = e.tenant_id
          and case e.how
                when 'finished' then f.state in ('pending', 'delivered')
                when 'refused' then f.state = 'pending' and f.attempts = e.attempt
                else f.state = 'delivered' and f.until <= clock_timestamp()
              end
        returning e.place, f.slot_at, f.origin, f.run_id";

    let mut rows: Vec<ClosedRow> = sqlx::query_as(SQL)
        .bind(column(closing, |one| one.id.tenant.as_uuid()))
        .bind(column(closing, |one| one.id.job.as_uuid()))
        .bind(column(closing, |one| one.id.slot.to_string()))
        .bind(column(closing, |one| one.how.as_str()))
        .bind(column(closing, |one| one.attempt))
        .fetch_all(conn)
        .await?;
    rows.sort_by_key(|row| (row.1.to_jiff(), row.0));
    Ok(rows)
}

async fn retry(conn: &mut PgConnection, retries: &[Retry]) -> Result<(), Error> {
    const SQL: &str = "
        insert into schedule.firings (tenant_id, job_id, slot, slot_at, origin, offer_at)
        select tenant_id, job_id, slot, slot_at, 'retry',
               clock_timestamp() + pause * interval '1 second'
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::integer[])
             as r (tenant_id, job_id, slot, slot_at, pause)
        on conflict (job_id, slot, tenant_id) do nothing";

    if retries.is_empty() {
        return Ok(());
    }
    let at = |slot: &Slot| match slot {
        Slot::At(at) | Slot::Again { at, .. } => Some(jiff_sqlx::Timestamp::from(*at)),
        Slot::Now(_) => None,
    };
    sqlx::query(SQL)
        .bind(column(retries, |retry| retry.0))
        .bind(column(retries, |retry| retry.1))
        .bind(column(retries, |retry| retry.2.to_string()))
        .bind(column(retries, |retry| at(&retry.2)))
        .bind(column(retries, |retry| retry.3))
        .execute(conn)
        .await?;
    Ok(())
}

/// Writes jobs' rows, and says which jobs are to go.
async fn write(conn: &mut PgConnection, jobs: &[&Locked]) -> Result<Vec<(Uuid, Uuid)>, Error> {
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
    let last = |job: &&Locked| job.last.clone().unwrap_or((Outcome::Skipped, None, None));
    let rows: Vec<(Uuid, Uuid, bool)> = sqlx::query_as(SQL)
        .bind(column(jobs, |job| job.tenant))
        .bind(column(jobs, |job| job.job))
        .bind(column(jobs, |job| job.logged))
        .bind(column(jobs, |job| job.errors))
        .bind(column(jobs, |job| last(job).0.as_str()))
        .bind(column(jobs, |job| last(job).1))
        .bind(column(jobs, |job| last(job).2))
        .bind(column(jobs, |job| job.freed))
        .bind(column(jobs, |job| (job.pause() > 0).then(|| job.pause())))
        .bind(column(jobs, |job| job.ends()))
        .bind(column(jobs, |job| job.goes()))
        .fetch_all(conn)
        .await?;
    Ok(rows.into_iter().filter(|row| row.2).map(|row| (row.0, row.1)).collect())
}

/// Takes jobs away whose rows are locked.
async fn forget(conn: &mut PgConnection, jobs: &[(Uuid, Uuid)]) -> Result<(), Error> {
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
        sqlx::query(sql)
            .bind(column(jobs, |job| job.0))
            .bind(column(jobs, |job| job.1))
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}

/// Lets the oldest firing that waits for its turn be handed out, of each of these jobs.
pub(crate) async fn wake(conn: &mut PgConnection, jobs: &[(Uuid, Uuid)]) -> Result<(), Error> {
    const SQL: &str = "
        update schedule.firings f set offer_at = clock_timestamp()
        from unnest($1::uuid[], $2::uuid[]) as k (tenant_id, job_id)
        cross join lateral (
            select w.slot from schedule.firings w
            where w.job_id = k.job_id and w.tenant_id = k.tenant_id
              and w.state = 'pending' and w.offer_at is null
            order by w.slot_at limit 1) next
        where f.job_id = k.job_id and f.tenant_id = k.tenant_id and f.slot = next.slot";

    if jobs.is_empty() {
        return Ok(());
    }
    sqlx::query(SQL)
        .bind(column(jobs, |job| job.0))
        .bind(column(jobs, |job| job.1))
        .execute(conn)
        .await?;
    Ok(())
}
