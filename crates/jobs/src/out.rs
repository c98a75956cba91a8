//! Firings that are out: delivered as a message, and not known to have ended.

use std::time::Duration;

use holdfast_types::SessionId;
use uuid::Uuid;

use crate::{Error, FiringRef, Jobs, row::firing_ref};

/// A firing that is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Out {
    /// Which one.
    pub firing: FiringRef,
    /// The session whose message it became.
    pub session: SessionId,
    /// The message's place there.
    pub seq: i64,
    /// How long it may still run before it is given up; zero is no longer.
    pub left: Duration,
    /// Whether it has ended well only once the answer has arrived.
    pub arrives: bool,
    /// Whether it was answered, and the answer is on its way.
    pub answered: bool,
    /// How long it may take from when its turn begins, if it has waited for that too long.
    pub patience: Option<Duration>,
    until: jiff_sqlx::Timestamp,
}

/// Tenant, job, slot, session, place, until when, how many milliseconds that is from now.
/// Whether it is to arrive, and is on its way; how many milliseconds it may take once it begins.
type Row = (Uuid, Uuid, String, Uuid, i64, jiff_sqlx::Timestamp, i64, bool, bool, Option<i64>);

impl Jobs {
    /// Up to `limit` firings that are out and whose end is a message's, whosever they are: those
    /// that are given up first come first. `after` is the last of those that were seen already.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn out(&self, after: Option<&Out>, limit: u32) -> Result<Vec<Out>, Error> {
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

        let mut once = self.pools.once().await?;
        let rows: Vec<Row> = sqlx::query_as(SQL)
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
                Ok(Out {
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
