//! Firings whose messages wait for a turn to begin. The wait does not count against their time
//! limit.

use std::time::Duration;

use super::close::lock;
use crate::store::{Error, FiringRef, Jobs, log::column};

impl Jobs {
    /// Extends firings that have used up their time but have not begun. Returns how many. They are
    /// checked again after `more`; once they begin, they get the time of their first delivery again
    /// ([`crate::store::OpenFiring`]).
    pub async fn extend_queued(&self, queued: &[FiringRef], more: Duration) -> Result<u64, Error> {
        const SQL: &str = "
            with told as (
                update schedule.firings f
                set patience = coalesce(f.patience, extract(epoch from greatest(
                        f.until - f.delivered_at, interval '0'))),
                    until = clock_timestamp() + $4 * interval '1 second'
                from unnest($1::uuid[], $2::uuid[], $3::text[]) as q (tenant_id, job_id, slot)
                where f.job_id = q.job_id and f.slot = q.slot and f.tenant_id = q.tenant_id
                  and f.state = 'delivered'
                returning f.tenant_id, f.job_id, f.slot, f.until),
            running as (
                update schedule.jobs j set running_until = t.until
                from told t
                where j.job_id = t.job_id and j.tenant_id = t.tenant_id and j.running_slot = t.slot)
            select count(*) from told";

        if queued.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pools.system().await?;
        lock(tx.conn(), queued.iter().copied()).await?;
        let count: i64 = holdfast_pg::query_scalar(SQL)
            .bind(column(queued, |one| one.tenant.as_uuid()))
            .bind(column(queued, |one| one.job.as_uuid()))
            .bind(column(queued, |one| one.slot.to_string()))
            .bind(more.as_secs_f64())
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(count.unsigned_abs())
    }
}
