//! Delivery progress of runs, for many runs at once.

use holdfast_types::{RunId, SessionId, TenantId};
use uuid::Uuid;

use crate::{Deliveries, Error};

/// Delivery progress of a run's replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryProgress {
    /// Some deliveries are pending or being sent.
    Pending,
    /// All deliveries are sent, or their outcome is unknown, or there are none.
    Delivered,
    /// Some deliveries are dead.
    Failed,
}

impl Deliveries<'_> {
    /// Returns the delivery progress of each run, in the order given. A dead reaction or pin does
    /// not count as lost: only deliveries with content do.
    pub async fn progress(
        self,
        of: &[(TenantId, SessionId, RunId)],
    ) -> Result<Vec<DeliveryProgress>, Error> {
        const SQL: &str = "
            select k.place, coalesce(bool_or(d.state in ('pending', 'sending')), false),
                   coalesce(bool_or(d.state = 'dead'), false)
            from unnest($1::uuid[], $2::uuid[], $3::uuid[])
                 with ordinality as k (tenant_id, session_id, run_id, place)
            left join session.deliveries d
              on d.tenant_id = k.tenant_id and d.session_id = k.session_id and d.run_id = k.run_id
            group by k.place order by k.place";

        if of.is_empty() {
            return Ok(Vec::new());
        }
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(i64, bool, bool)> = holdfast_pg::query_as(SQL)
            .bind(of.iter().map(|one| one.0.as_uuid()).collect::<Vec<_>>())
            .bind(of.iter().map(|one| one.1.as_uuid()).collect::<Vec<_>>())
            .bind(of.iter().map(|one| one.2.as_uuid()).collect::<Vec<_>>())
            .fetch_all(once.conn())
            .await?;
        once.done();
        let mut arrivals = Vec::with_capacity(of.len());
        for ((_, on_its_way, dead), (tenant, session, run)) in rows.into_iter().zip(of) {
            arrivals.push(match (on_its_way, dead) {
                (true, _) => DeliveryProgress::Pending,
                (false, true) if self.has_dead_content(*tenant, *session, *run).await? => {
                    DeliveryProgress::Failed
                }
                (false, _) => DeliveryProgress::Delivered,
            });
        }
        Ok(arrivals)
    }

    /// Whether a dead delivery of the run had content: text, media, a poll or an embed. Read as the
    /// tenant, because other roles cannot see the content.
    async fn has_dead_content(
        self,
        tenant: TenantId,
        session: SessionId,
        run: RunId,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            select exists (
                select from session.deliveries
                where tenant_id = $1 and session_id = $2 and run_id = $3 and state = 'dead'
                  and (act is null or act->>'act' in ('media', 'poll', 'embed')))";

        let run: Uuid = run.as_uuid();
        let mut tx = self.pools.tenant(tenant).await?;
        let lost: bool = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(run)
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(lost)
    }
}
