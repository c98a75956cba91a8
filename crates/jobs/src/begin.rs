//! Saying that a firing is about to be delivered, where that is not plain: it was handed out before,
//! or long ago.
//!
//! A firing that ends every process which delivers it is to be given up, and one that was merely in
//! the same hands is not. So it is charged to a firing that whoever had it was never heard of again
//! only if that was as it was being delivered, and it had been handed out once before.

use crate::{Error, Firing, Jobs, close::lock, log::column};

impl Jobs {
    /// Gives those of these firings that are still the caller's, who is about to deliver them. They
    /// are the caller's for another [`HANDOVER`](crate::HANDOVER). If nothing is heard of them until
    /// then it is charged to them, and those to which that happens [`LOSSES`](crate::LOSSES) times
    /// are delivered no more.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn begun(&self, firings: &[Firing]) -> Result<Vec<Firing>, Error> {
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
        let places: Vec<i64> = sqlx::query_scalar(SQL)
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
