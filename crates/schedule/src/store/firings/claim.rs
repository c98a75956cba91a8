//! Claim of due jobs: decides each slot once, in one transaction with the job's next slot.
//!
//! Jobs are claimed by due time, or in turns: first the oldest due job of each tenant, then the
//! second of each. In turns, thousands of due jobs of one tenant do not delay the single job of
//! another. Ranking reads all due jobs, so it is used only if one claim did not take everything.
//!
//! Jobs of suspended tenants are passed over. When the tenant is active again, slots that it has
//! missed are treated as if no scheduler had run.

use std::time::Duration;

use holdfast_types::TenantId;
use jiff::Timestamp;

use super::decide::{DecisionBatch, DueRow};
use crate::store::{Error, Firing, JobKind, Jobs, Overlap, log::column};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimResult {
    /// Firings for the caller to deliver and then report as delivered.
    pub firings: Vec<Firing>,
    /// Number of jobs that were due. If it equals the limit, there may be more.
    pub jobs: usize,
    /// Database time at the beginning; `None` if nothing was due.
    pub at: Option<Timestamp>,
}

/// Columns and conditions of the query for due jobs.
macro_rules! due {
    ($from:literal, $due:literal) => {
        concat!(
            "select j.tenant_id, j.job_id, j.kind, j.spec, j.slot_at, j.overlap,
                    coalesce(j.running_until > now(), false),
                    case when j.overlap = 'queue' and j.running_until > now() then (
                        select count(*) from schedule.firings f
                        where f.job_id = j.job_id and f.tenant_id = j.tenant_id
                          and f.state = 'pending' and not f.held)
                    else 0 end,
                    j.logged, now()
             from ",
            $from,
            " where ",
            $due,
            // Kinds and overlaps that only a later version knows are left to that version.
            " and not j.suspended and j.kind = any($2) and j.overlap = any($3)
              and j.tenant_id <> all($4)"
        )
    };
}

impl Jobs {
    /// Decides the slots of up to `limit` due jobs of all tenants and hands out their firings. The
    /// caller holds these for [`HANDOVER`](crate::store::HANDOVER_TIMEOUT).
    ///
    /// Jobs that another replica is deciding are skipped, not waited for. If nothing is due,
    /// nothing is written.
    ///
    /// # Errors
    ///
    /// If the database fails. Slots that were decided nevertheless are handed out by the sweep.
    pub async fn claim_due(&self, limit: u32) -> Result<ClaimResult, Error> {
        const SQL: &str = concat!(
            due!("schedule.jobs j", "j.due_at <= now()"),
            " order by j.due_at limit $1 for update skip locked"
        );

        self.claim(SQL, limit, &[]).await
    }

    /// Like [`claim_due`](Self::claim_due), but in turns: the oldest due job of each tenant, then
    /// the next of each. Skips the tenants in `but`.
    pub async fn claim_in_turn(&self, limit: u32, but: &[TenantId]) -> Result<ClaimResult, Error> {
        // Twice the limit is read, since other replicas may lock some rows. `coalesce` keeps the
        // planner from using the index on `due_at`: the rows are to be looked up by their keys.
        const SQL: &str = concat!(
            "with turns as materialized (
                select tenant_id, job_id, due_at,
                       row_number() over (partition by tenant_id order by due_at) as turn
                from schedule.jobs
                where due_at <= now() and not suspended and kind = any($2) and overlap = any($3)
                  and tenant_id <> all($4)
                order by turn, due_at
                limit 2 * $1) ",
            due!(
                "turns t join schedule.jobs j on j.job_id = t.job_id and j.tenant_id = t.tenant_id",
                "coalesce(j.due_at <= now(), false)"
            ),
            " order by t.turn, t.due_at limit $1 for update of j skip locked"
        );

        self.claim(SQL, limit, but).await
    }

    async fn claim(
        &self,
        sql: &'static str,
        limit: u32,
        but: &[TenantId],
    ) -> Result<ClaimResult, Error> {
        let mut tx = self.pools.system().await?;
        let rows: Vec<DueRow> = holdfast_pg::query_as(sql)
            .bind(i64::from(limit))
            .bind(column(JobKind::ALL, |kind| kind.as_str()))
            .bind(column(Overlap::ALL, |overlap| overlap.as_str()))
            .bind(column(but, |tenant| tenant.as_uuid()))
            .fetch_all(tx.conn())
            .await?;
        let jobs = rows.len();
        if jobs == 0 {
            tx.commit().await?;
            return Ok(ClaimResult::default());
        }
        let at = rows.first().map(|row| row.9.to_jiff());
        let mut decided = DecisionBatch::default();
        for row in rows {
            decided.add(row, self.planner.as_ref())?;
        }
        let firings = decided.store(tx.conn(), self.handover).await?;
        tx.commit().await?;
        Ok(ClaimResult { firings, jobs, at })
    }

    /// Returns the time until the next slot, offer or timeout is due: zero if something is due
    /// already, `None` if nothing is scheduled.
    pub async fn next_due(&self) -> Result<Option<Duration>, Error> {
        const SQL: &str = "
            select (extract(epoch from least(
                (select min(due_at) from schedule.jobs where due_at is not null and not suspended),
                (select min(offer_at) from schedule.firings where state = 'pending'),
                (select min(until) from schedule.firings where state = 'delivered'))
                - clock_timestamp()) * 1000)::bigint";

        let mut once = self.pools.system_connection().await?;
        let millis: Option<i64> = holdfast_pg::query_scalar(SQL).fetch_one(once.conn()).await?;
        once.done();
        Ok(millis.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))))
    }
}
