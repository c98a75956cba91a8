//! Delivered firings that are not known to have ended.

use std::time::Duration;

use holdfast_types::SessionId;
use uuid::Uuid;

use crate::store::{Error, FiringRef, Jobs, row::firing_ref};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiring {
    pub firing: FiringRef,
    /// Session that received the firing as a message.
    pub session: SessionId,
    pub seq: i64,
    /// Remaining time before the firing is given up; zero if it is over.
    pub left: Duration,
    /// Whether success requires that the reply was delivered.
    pub arrives: bool,
    /// Whether the turn has ended and the reply is being delivered.
    pub answered: bool,
    /// Time limit from the beginning of the turn, for a firing that waited too long for it.
    pub patience: Option<Duration>,
    until: jiff_sqlx::Timestamp,
}

/// Tenant, job, slot, session, seq, deadline, milliseconds to the deadline, `arrives`, `answered`,
/// milliseconds of the limit from the turn's beginning.
type Row = (Uuid, Uuid, String, Uuid, i64, jiff_sqlx::Timestamp, i64, bool, bool, Option<i64>);

impl Jobs {
    /// Returns up to `limit` delivered firings that ended up as a message, of all tenants, earliest
    /// deadline first. `after` is the last firing of the previous page.
    pub async fn open_firings(
        &self,
        after: Option<&OpenFiring>,
        limit: u32,
    ) -> Result<Vec<OpenFiring>, Error> {
        const SQL: &str = "
            select tenant_id, job_id, slot, session_id, seq, until,
                   (extract(epoch from until - clock_timestamp()) * 1000)::bigint,
                   arrives, answered_at is not null, (patience * 1000)::bigint
            from schedule.firings
            where state = 'delivered' and session_id is not null
              and ($2::timestamptz is null or until >= $2)
              and ($2::timestamptz is null or (until, job_id, slot) > ($2, $3, $4))
            order by until, job_id, slot
            limit $1";

        let mut once = self.pools.system_connection().await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(i64::from(limit))
            .bind(after.map(|after| after.until))
            .bind(after.map(|after| after.firing.job.as_uuid()))
            .bind(after.map(|after| after.firing.slot.to_string()))
            .fetch_all(once.conn())
            .await?;
        once.done();
        rows.into_iter()
            .map(|(tenant, job, slot, session, seq, until, left, arrives, answered, patience)| {
                let millis =
                    |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
                Ok(OpenFiring {
                    firing: firing_ref(tenant, job, &slot)?,
                    session: session.into(),
                    seq,
                    left: millis(left),
                    arrives,
                    answered,
                    patience: patience.map(millis),
                    until,
                })
            })
            .collect()
    }
}
