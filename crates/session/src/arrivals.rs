//! Whether what turns said has arrived, asked for many at once by whoever waits for it.

use holdfast_types::{RunId, SessionId, TenantId};
use uuid::Uuid;

use crate::{Error, Sessions};

/// How far what a turn said has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Some of it is still to be sent.
    OnItsWay,
    /// All of it was sent, or nothing was to be; or nobody can know of some of it.
    Arrived,
    /// Some of it was given up.
    Lost,
}

impl Sessions {
    /// How far what these turns said has got, in the order in which they are named. A reaction or
    /// a pin that the platform refused is nothing that was said.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn arrivals(
        &self,
        of: &[(TenantId, SessionId, RunId)],
    ) -> Result<Vec<Arrival>, Error> {
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
        let mut once = self.pools.once().await?;
        let rows: Vec<(i64, bool, bool)> = sqlx::query_as(SQL)
            .bind(of.iter().map(|one| one.0.as_uuid()).collect::<Vec<_>>())
            .bind(of.iter().map(|one| one.1.as_uuid()).collect::<Vec<_>>())
            .bind(of.iter().map(|one| one.2.as_uuid()).collect::<Vec<_>>())
            .fetch_all(once.conn())
            .await?;
        once.done();
        let mut arrivals = Vec::with_capacity(of.len());
        for ((_, on_its_way, dead), (tenant, session, run)) in rows.into_iter().zip(of) {
            arrivals.push(match (on_its_way, dead) {
                (true, _) => Arrival::OnItsWay,
                (false, true) if self.lost_words(*tenant, *session, *run).await? => Arrival::Lost,
                (false, _) => Arrival::Arrived,
            });
        }
        Ok(arrivals)
    }

    /// Whether any of what was given up was something to read: what it was only its tenant sees.
    async fn lost_words(
        &self,
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
        let lost: bool = sqlx::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(run)
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(lost)
    }
}
