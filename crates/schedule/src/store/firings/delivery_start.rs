//! Announcement of a delivery, for firings that were handed out before or long ago.
//!
//! A firing that crashes every process that delivers it must be given up; a firing that only
//! happened to be held by a crashed process must not. So a loss is counted only if the holder
//! disappeared during the delivery itself and the firing had been handed out before.

use super::close::lock;
use crate::store::{Error, Firing, Jobs, log::column};

impl Jobs {
    /// Returns those of the firings that the caller still holds, and extends its hold by
    /// [`HANDOVER`](crate::store::HANDOVER_TIMEOUT). Call this right before delivering. If the caller is not heard
    /// of until then, the firing's loss counter grows; after [`LOSSES`](crate::store::MAX_LOSSES) losses the
    /// firing is not delivered again.
    pub async fn begin_delivery(&self, firings: &[Firing]) -> Result<Vec<Firing>, Error> {
        const SQL: &str = "
            with begun as (
                update schedule.firings f
                set lost = f.lost + 1, offer_at = clock_timestamp() + $5 * interval '1 second'
                from unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[])
                     with ordinality as b (tenant_id, job_id, slot, attempt, place)
                where f.job_id = b.job_id and f.slot = b.slot and f.tenant_id = b.tenant_id
                  and f.state = 'pending' and f.held and f.attempts = b.attempt
                returning f.tenant_id, f.job_id, f.slot, f.offer_at, b.place),
            running as (
                update schedule.jobs j set running_until = greatest(j.running_until, b.offer_at)
                from begun b
                where j.job_id = b.job_id and j.tenant_id = b.tenant_id and j.running_slot = b.slot)
            select place from begun order by place";

        if firings.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.pools.system().await?;
        lock(tx.conn(), firings.iter().map(|firing| firing.id)).await?;
        let places: Vec<i64> = holdfast_pg::query_scalar(SQL)
            .bind(column(firings, |firing| firing.id.tenant.as_uuid()))
            .bind(column(firings, |firing| firing.id.job.as_uuid()))
            .bind(column(firings, |firing| firing.id.slot.to_string()))
            .bind(column(firings, |firing| firing.attempt))
            .bind(self.handover.as_secs_f64())
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        let ours = places.into_iter().filter_map(|place| usize::try_from(place - 1).ok());
        Ok(ours.filter_map(|place| firings.get(place).copied()).collect())
    }
}
