//! Sweep: runs on every replica once a second and recovers what a crash left behind.
//!
//! An idle sweep is two reads of small indexes and writes no row.

use std::time::Duration;

use holdfast_types::TenantId;
use jiff_sqlx::Timestamp;
use uuid::Uuid;

use super::close::{EndKind, FiringEnd};
use crate::store::{
    Error, Firing, JobKind, Jobs, Outcome,
    log::column,
    row::{FiringRow, firing, firing_ref},
};

/// Number of lost holders after which a firing is not delivered again ([`begun`](Jobs::begin_delivery)).
pub const MAX_LOSSES: i32 = 5;

/// Error class of a run that exceeded its time.
const CLASS_LOST: &str = "lost";
/// Error class of a firing that was given up after [`MAX_LOSSES`] and whose message is in no inbox.
pub const CLASS_ABANDONED: &str = "abandoned";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Firings for the caller to deliver and then report as delivered.
    pub firings: Vec<Firing>,
    /// Firings that are not delivered again, since every holder was lost. Check whether the message
    /// reached its inbox: report the firing as [delivered](Jobs::mark_delivered), or
    /// [refuse](Jobs::refuse) it as [`CLASS_ABANDONED`].
    pub abandoned: Vec<Firing>,
    /// Number of runs that were ended because they exceeded their time.
    pub ended: u64,
}

/// Jobs deleted per statement.
const DELETE_BATCH_SIZE: i64 = 1_000;

/// Statement that hands out firings; the arguments are extra CTEs, tables, condition and order.
///
/// A job without overlap gets one firing at a time, first the one that is recorded as running. The
/// others wait until the end of the running one wakes them; those of a paused job wait until it is
/// resumed. Heartbeats check for themselves whether they are paused.
macro_rules! offer {
    ($before:literal, $from:literal, $due:literal, $order:literal) => {
        concat!(
            "with ",
            $before,
            " waiting as materialized (
                select f.tenant_id, f.job_id, f.slot, f.slot_at, j.kind, j.overlap,
                       j.running_slot is not distinct from f.slot as own,
                       j.overlap = 'allow' or j.running_slot is null or j.running_slot = f.slot
                       or j.running_until <= now() as free,
                       j.state <> 'paused' or f.origin = 'forced' or j.kind = 'heartbeat' as is_on
    ",
            $from,
            "
                where ",
            $due,
            " and j.kind = any($3)
                  and not (f.held and f.lost >= $5)
                  and f.tenant_id <> all($4) ",
            $order,
            " limit $1
                for update of f, j skip locked),
            ranked as materialized (
                select w.*, w.is_on and w.free and (w.overlap = 'allow' or row_number() over (
                    partition by w.tenant_id, w.job_id
                    order by w.is_on desc, w.own desc, w.slot_at, w.slot) = 1) as goes
                from waiting w),
            offered as (
                update schedule.firings f
                set attempts = f.attempts + 1, held = true,
                    offer_at = clock_timestamp() + $2 * interval '1 second'
                from ranked r
                where r.goes
                  and f.job_id = r.job_id and f.slot = r.slot and f.tenant_id = r.tenant_id
                returning f.tenant_id, f.job_id, f.slot, f.slot_at, f.origin, f.attempts, r.kind,
                          f.offer_at, r.overlap, f.lost),
            waits as (
                update schedule.firings f set offer_at = null, held = false
                from ranked r
                where not r.goes
                  and f.job_id = r.job_id and f.slot = r.slot and f.tenant_id = r.tenant_id),
            running as (
                update schedule.jobs j set running_slot = o.slot, running_until = o.offer_at
                from offered o
                where o.overlap <> 'allow' and j.job_id = o.job_id and j.tenant_id = o.tenant_id)
            select tenant_id, job_id, slot, slot_at, origin, attempts, kind, lost from offered"
        )
    };
}

impl Jobs {
    /// Hands out up to `limit` firings that nobody holds: firings of lost holders, requested runs,
    /// and waiting firings whose turn has come. Ends runs that exceeded their time.
    ///
    /// # Errors
    ///
    /// If the database fails; steps that were committed before remain.
    pub async fn sweep(&self, limit: u32) -> Result<SweepResult, Error> {
        const SQL: &str = offer!(
            "",
            "from schedule.firings f
             join schedule.jobs j on j.job_id = f.job_id and j.tenant_id = f.tenant_id",
            "f.state = 'pending' and f.offer_at <= now()",
            "order by f.offer_at"
        );

        let (abandoned, ended) = self.end_lapsed(limit).await?;
        let firings = self.offer(SQL, limit, &[]).await?;
        Ok(SweepResult { firings, abandoned, ended })
    }

    /// Like [`sweep`](Self::sweep), but in turns: the oldest firing of each tenant, then the next
    /// of each. Skips the tenants in `but`.
    pub async fn sweep_in_turn(&self, limit: u32, but: &[TenantId]) -> Result<SweepResult, Error> {
        // Twice the limit is read, since other replicas may lock some rows. `case` keeps the
        // planner from using the index on `offer_at`: the rows are to be looked up by their keys.
        const SQL: &str = offer!(
            "turns as materialized (
                select tenant_id, job_id, slot,
                       row_number() over (partition by tenant_id order by offer_at) as turn
                from schedule.firings
                where state = 'pending' and offer_at <= now() and tenant_id <> all($4)
                order by turn, offer_at
                limit 2 * $1),",
            "from turns t
             join schedule.firings f
                  on f.job_id = t.job_id and f.slot = t.slot and f.tenant_id = t.tenant_id
             join schedule.jobs j on j.job_id = f.job_id and j.tenant_id = f.tenant_id",
            "case when f.state = 'pending' then f.offer_at <= now() else false end",
            "order by t.turn, f.offer_at"
        );

        let (abandoned, ended) = self.end_lapsed(limit).await?;
        let firings = self.offer(SQL, limit, but).await?;
        Ok(SweepResult { firings, abandoned, ended })
    }

    /// Ends runs that exceeded their time. Returns the abandoned firings and the number of ended
    /// runs.
    async fn end_lapsed(&self, limit: u32) -> Result<(Vec<Firing>, u64), Error> {
        const SQL: &str = "
            (select tenant_id, job_id, slot, slot_at, origin, attempts, '' as kind, lost, true
             from schedule.firings
             where state = 'delivered' and until <= now() order by until limit $1)
            union all
            (select f.tenant_id, f.job_id, f.slot, f.slot_at, f.origin, f.attempts, j.kind, f.lost, false
             from schedule.firings f
             join schedule.jobs j on j.job_id = f.job_id and j.tenant_id = f.tenant_id
             where f.state = 'pending' and f.offer_at <= now() and f.held and f.lost >= $2
               and j.kind = any($3)
             order by f.offer_at limit $1)";
        type Row = (Uuid, Uuid, String, Timestamp, String, i32, String, i32, bool);

        let mut once = self.pools.system_connection().await?;
        let found: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(i64::from(limit))
            .bind(MAX_LOSSES)
            .bind(column(JobKind::ALL, |kind| kind.as_str()))
            .fetch_all(once.conn())
            .await?;
        once.done();
        let mut closing = Vec::new();
        let mut abandoned = Vec::new();
        for (tenant, job, slot, at, origin, attempt, kind, lost, has_run) in found {
            if has_run {
                closing.push(FiringEnd {
                    id: firing_ref(tenant, job, &slot)?,
                    how: EndKind::Lapsed,
                    attempt,
                    outcome: Outcome::Error,
                    class: Some(CLASS_LOST.to_owned()),
                    millis: None,
                });
            } else {
                abandoned.push(firing((tenant, job, slot, at, origin, attempt, kind, lost))?);
            }
        }
        Ok((abandoned, self.close(&closing).await?))
    }

    async fn offer(
        &self,
        sql: &'static str,
        limit: u32,
        but: &[TenantId],
    ) -> Result<Vec<Firing>, Error> {
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<FiringRow> = holdfast_pg::query_as(sql)
            .bind(i64::from(limit))
            .bind(self.handover.as_secs_f64())
            .bind(column(JobKind::ALL, |kind| kind.as_str()))
            .bind(column(but, |tenant| tenant.as_uuid()))
            .bind(MAX_LOSSES)
            .fetch_all(once.conn())
            .await?;
        once.done();
        rows.into_iter().map(firing).collect()
    }

    /// Deletes all jobs that have been done for longer than `older`, in batches. Returns how many.
    pub async fn delete_done(&self, older: Duration) -> Result<u64, Error> {
        const SQL: &str = "
            with old as (
                select tenant_id, job_id from schedule.jobs
                where state = 'done' and updated_at < now() - $1 * interval '1 second'
                order by updated_at limit $2 for update skip locked),
            firings as (
                delete from schedule.firings t using old k
                where t.job_id = k.job_id and t.tenant_id = k.tenant_id),
            runs as (
                delete from schedule.runs t using old k
                where t.job_id = k.job_id and t.tenant_id = k.tenant_id)
            delete from schedule.jobs t using old k
            where t.job_id = k.job_id and t.tenant_id = k.tenant_id";

        let mut all = 0;
        loop {
            let mut once = self.pools.system_connection().await?;
            let gone = holdfast_pg::query(SQL)
                .bind(older.as_secs_f64())
                .bind(DELETE_BATCH_SIZE)
                .execute(once.conn())
                .await?
                .rows_affected();
            once.done();
            all += gone;
            if gone < DELETE_BATCH_SIZE.unsigned_abs() {
                return Ok(all);
            }
        }
    }
}
