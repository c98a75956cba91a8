//! Deciding slots that have come: each once, in one transaction with the job's next slot.
//!
//! By time, or by turns: of each tenant the first that is due, then of each the second. What one
//! tenant has due by the thousand then comes after the one thing of another's. Ranking takes all that
//! is due into account, so it is for whoever has found more than one claim takes.

use std::time::Duration;

use holdfast_types::TenantId;
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

/// What is read of a job that is due, and what must be true of it then.
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
            // What only a later version knows is left to it.
            " and j.kind = any($2) and j.overlap = any($3)
              and j.tenant_id <> all($4)"
        )
    };
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
        const SQL: &str = concat!(
            due!("schedule.jobs j", "j.due_at <= now()"),
            " order by j.due_at limit $1 for update skip locked"
        );

        self.claim(SQL, limit, &[]).await
    }

    /// The same by turns: of each tenant the job that has been due for longest, then of each the
    /// next. None of these tenants' is taken.
    ///
    /// # Errors
    ///
    /// As [`claim_due`](Self::claim_due).
    pub async fn claim_in_turn(&self, limit: u32, but: &[TenantId]) -> Result<Claimed, Error> {
        // Twice as many as are asked for are looked at, since others may hold some. Their rows are
        // got by their keys, however few of them the planner expects: hence the `coalesce`, which no
        // index knows.
        const SQL: &str = concat!(
            "with turns as materialized (
                select tenant_id, job_id, due_at,
                       row_number() over (partition by tenant_id order by due_at) as turn
                from schedule.jobs
                where due_at <= now() and kind = any($2) and overlap = any($3)
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
    ) -> Result<Claimed, Error> {
        let mut tx = self.pools.system().await?;
        let rows: Vec<DueRow> = sqlx::query_as(sql)
            .bind(i64::from(limit))
            .bind(column(JobKind::ALL, |kind| kind.as_str()))
            .bind(column(Overlap::ALL, |overlap| overlap.as_str()))
            .bind(column(but, |tenant| tenant.as_uuid()))
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
