//! Counts of waiting work over the whole installation, for its operators.

use std::time::Duration;

use super::Queues;
use crate::Error;

/// Time in which failures are new.
const RECENT: &str = "15 minutes";

/// Counts over all tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeshCounts {
    /// Sessions that are ready and not running, and the wait of the oldest.
    pub ready_sessions: i64,
    pub oldest_ready: Duration,
    pub running_sessions: i64,
    /// Messages that are accepted and not finished, and the age of the oldest.
    pub waiting_messages: i64,
    pub oldest_message: Duration,
    pub dead_messages: i64,
    pub new_dead_messages: i64,
    /// Deliveries that wait for a bridge, and the age of the oldest.
    pub pending_deliveries: i64,
    pub oldest_delivery: Duration,
    pub sending_deliveries: i64,
    pub dead_deliveries: i64,
    pub new_dead_deliveries: i64,
    pub new_unknown_deliveries: i64,
}

impl Queues<'_> {
    /// Counts what waits in all tenants. Each part matches a partial index that holds no other rows.
    pub async fn mesh_counts(self) -> Result<MeshCounts, Error> {
        const SESSIONS: &str = "
            select (select count(*) from session.session_lease where state = 'RUNNING'), count(*),
                   coalesce(extract(epoch from clock_timestamp() - min(ready_at)), 0)::float8
            from (
                select ready_at from session.session_lease
                where state = 'READY' and fair_key is not null and paused is null
                union all
                select ready_at from session.session_lease l
                where state = 'READY' and fair_key is null and paused is null
                  and not exists (select from session.tenant_queue q
                                  where q.tenant_id = l.tenant_id and q.suspended)) ready";
        const MESSAGES: &str = "
            select count(*), coalesce(extract(epoch from clock_timestamp() - min(accepted_at)), 0)::float8,
                   (select count(*) from session.inbox where state = 'dead'),
                   (select count(*) from session.inbox
                    where state = 'dead' and finished_at > clock_timestamp() - $1::interval)
            from session.inbox where state in ('new', 'seen')";
        const DELIVERIES: &str = "
            select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8,
                   (select count(*) from session.deliveries where state = 'sending'),
                   (select count(*) from session.deliveries where state = 'dead'),
                   (select count(*) from session.deliveries
                    where state in ('sent', 'unknown', 'dead') and state = 'dead'
                      and finished_at > clock_timestamp() - $1::interval),
                   (select count(*) from session.deliveries
                    where state in ('sent', 'unknown', 'dead') and state = 'unknown'
                      and finished_at > clock_timestamp() - $1::interval)
            from session.deliveries where state = 'pending'";
        let mut once = self.pools.system_connection().await?;
        let sessions: (i64, i64, f64) =
            holdfast_pg::query_as(SESSIONS).fetch_one(once.conn()).await?;
        let messages: (i64, f64, i64, i64) =
            holdfast_pg::query_as(MESSAGES).bind(RECENT).fetch_one(once.conn()).await?;
        let deliveries: (i64, f64, i64, i64, i64, i64) =
            holdfast_pg::query_as(DELIVERIES).bind(RECENT).fetch_one(once.conn()).await?;
        once.done();
        let age = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Ok(MeshCounts {
            running_sessions: sessions.0,
            ready_sessions: sessions.1,
            oldest_ready: age(sessions.2),
            waiting_messages: messages.0,
            oldest_message: age(messages.1),
            dead_messages: messages.2,
            new_dead_messages: messages.3,
            pending_deliveries: deliveries.0,
            oldest_delivery: age(deliveries.1),
            sending_deliveries: deliveries.2,
            dead_deliveries: deliveries.3,
            new_dead_deliveries: deliveries.4,
            new_unknown_deliveries: deliveries.5,
        })
    }
}
