//! Deciding slots that have come: each once, in one transaction with the job's next slot.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    Error, Firing, JobKind, Jobs, Overlap,
    decide::{Decided, DueRow},
    log::column,
};

/// What a claim found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// What is to be delivered, and then said to be.
    pub firings: Vec<Firing>,
    /// How many jobs were due; as many as were asked for means that there may be more.
    pub jobs: usize,
    /// The database's time as it began; `None` if nothing was due.
    pub at: Option<Timestamp>,
}

impl Jobs {
    /// Decides the slots of up to `limit` jobs that are due, whoever's they are, and hands out
    /// those that fire; they are this caller's for [`HANDOVER`](crate::HANDOVER).
    ///
    /// It waits for nobody: jobs that another replica is deciding are left to it. If nothing is
    /// due, nothing is written.
    ///
    /// # Errors
    ///
    /// If the database does not answer. If slots were decided all the same, the sweep hands them
    /// out.
    pub async fn claim_due(&self, limit: u32) -> Result<Claimed, Error> {
        const SQL: &str = "
            select tenant_id, job_id, kind, spec, slot_at, overlap,
                   coalesce(running_until > now(), false),
                   case when overlap = 'queue' and running_until > now() then (
                       select count(*) from schedule.firings f
                       where f.job_id = j.job_id and f.tenant_id = j.tenant_id and f.state = 'pending'
                         and not f.held)
                   else 0 end,
                   logged, now()
            from schedule.jobs j
            -- What only a later version knows is left to it.
            where due_at <= now() and kind = any($2) and overlap = any($3)
            order by due_at
            limit $1
            for update skip locked";

        let mut tx = self.pools.system().await?;
        let rows: Vec<DueRow> = sqlx::query_as(SQL)
            .bind(i64::from(limit))
            .bind(column(JobKind::ALL, |kind| kind.as_str()))
            .bind(column(Overlap::ALL, |overlap| overlap.as_str()))
            .fetch_all(tx.conn())
            .await?;
        let jobs = rows.len();
        if jobs == 0 {
            tx.commit().await?;
            return Ok(Claimed::default());
        }
        let at = rows.first().map(|row| row.9.to_jiff());
        let mut decided = Decided::default();
        for row in rows {
            decided.add(row, self.planner.as_ref())?;
        }
        let firings = decided.store(tx.conn(), self.handover).await?;
        tx.commit().await?;
        Ok(Claimed { firings, jobs, at })
    }

    /// How long until something is due: a slot, a firing that nobody spoke of, a run that takes
    /// too long. `None` if there is nothing; zero if it is due already.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn next_due(&self) -> Result<Option<Duration>, Error> {
        const SQL: &str = "
            select (extract(epoch from least(
                (select min(due_at) from schedule.jobs where due_at is not null),
                (select min(offer_at) from schedule.firings where state = 'pending'),
                (select min(until) from schedule.firings where state = 'delivered'))
                - clock_timestamp()) * 1000)::bigint";

        let mut once = self.pools.once().await?;
        let millis: Option<i64> = sqlx::query_scalar(SQL).fetch_one(once.conn()).await?;
        once.done();
        Ok(millis.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))))
    }
}
