//! Firings whose turn has ended and whose reply is being delivered.

use std::time::Duration;

use holdfast_types::RunId;
use uuid::Uuid;

use super::{close::lock, rows::wake};
use crate::store::{Error, FiringRef, Jobs, log::column};

/// Firing whose turn has ended and whose reply is not delivered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredFiring {
    pub firing: FiringRef,
    pub run: Option<RunId>,
    /// Time that the delivery of the reply may take, from now.
    pub patience: Duration,
}

impl Jobs {
    /// Records that replies are being delivered. Returns the number of firings for which that is
    /// new. The firings stay open, but their jobs' next firings need not wait for them.
    pub async fn mark_answered(&self, answered: &[AnsweredFiring]) -> Result<u64, Error> {
        const SQL: &str = "
            with told as (
                update schedule.firings f
                set answered_at = clock_timestamp(), run_id = coalesce(a.run_id, f.run_id),
                    until = clock_timestamp() + a.patience * interval '1 second'
                from unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::float8[])
                     as a (tenant_id, job_id, slot, run_id, patience)
                where f.job_id = a.job_id and f.slot = a.slot and f.tenant_id = a.tenant_id
                  and f.state = 'delivered' and f.answered_at is null
                returning f.tenant_id, f.job_id, f.slot),
            freed as (
                update schedule.jobs j set running_slot = null, running_until = null
                from told t
                where j.job_id = t.job_id and j.tenant_id = t.tenant_id and j.running_slot = t.slot
                returning j.tenant_id, j.job_id, t.slot)
            select t.tenant_id, t.job_id, f.job_id is not null
            from told t left join freed f using (tenant_id, job_id, slot)";

        if answered.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pools.system().await?;
        lock(tx.conn(), answered.iter().map(|one| one.firing)).await?;
        let rows: Vec<(Uuid, Uuid, bool)> = holdfast_pg::query_as(SQL)
            .bind(column(answered, |one| one.firing.tenant.as_uuid()))
            .bind(column(answered, |one| one.firing.job.as_uuid()))
            .bind(column(answered, |one| one.firing.slot.to_string()))
            .bind(column(answered, |one| one.run.map(RunId::as_uuid)))
            .bind(column(answered, |one| one.patience.as_secs_f64()))
            .fetch_all(tx.conn())
            .await?;
        let freed: Vec<(Uuid, Uuid)> =
            rows.iter().filter(|row| row.2).map(|row| (row.0, row.1)).collect();
        wake(tx.conn(), &freed).await?;
        tx.commit().await?;
        Ok(rows.len() as u64)
    }
}
