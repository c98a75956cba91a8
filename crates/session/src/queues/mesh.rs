//! Counts of waiting work over the whole installation, for its operators.

use std::time::Duration;

use holdfast_types::{SessionId, TenantId};
use uuid::Uuid;

use super::Queues;
use crate::Error;

/// Time in which failures are new.
const RECENT: &str = "15 minutes";

/// Session whose work waits longest in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingSession {
    pub tenant: TenantId,
    pub session: SessionId,
}

/// Counts over all tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeshCounts {
    /// Sessions that are ready and not running, and the wait of the oldest.
    pub ready_sessions: i64,
    pub oldest_ready: Duration,
    pub oldest_ready_of: Option<WaitingSession>,
    pub running_sessions: i64,
    /// Messages that are accepted and not finished, and the age of the oldest.
    pub waiting_messages: i64,
    pub oldest_message: Duration,
    pub oldest_message_of: Option<WaitingSession>,
    pub dead_messages: i64,
    pub new_dead_messages: i64,
    /// Deliveries that wait for a bridge, and the age of the oldest.
    pub pending_deliveries: i64,
    pub oldest_delivery: Duration,
    pub oldest_delivery_of: Option<WaitingSession>,
    pub sending_deliveries: i64,
    pub dead_deliveries: i64,
    pub new_dead_deliveries: i64,
    pub new_unknown_deliveries: i64,
}

impl Queues<'_> {
    /// Counts what waits in all tenants. Each part matches a partial index that holds no other rows.
    pub async fn mesh_counts(self) -> Result<MeshCounts, Error> {
        const SESSIONS: &str = "
            with ready as materialized (
                select tenant_id, session_id, ready_at from session.session_lease
                where state = 'READY' and fair_key is not null and paused is null
                union all
                select tenant_id, session_id, ready_at from session.session_lease l
                where state = 'READY' and fair_key is null and paused is null
                  and not exists (select from session.tenant_queue q
                                  where q.tenant_id = l.tenant_id and q.suspended)),
            counted as (
                select (select count(*) from session.session_lease where state = 'RUNNING'), count(*),
                       coalesce(extract(epoch from clock_timestamp() - min(ready_at)), 0)::float8
                from ready)
            select counted.*, oldest.tenant_id, oldest.session_id
            from counted left join (
                select tenant_id, session_id from ready order by ready_at limit 1) oldest on true";
        const MESSAGES: &str = "
            with counted as (
                select count(*), coalesce(extract(epoch from clock_timestamp() - min(accepted_at)), 0)::float8,
                       (select count(*) from session.inbox where state = 'dead'),
                       (select count(*) from session.inbox
                        where state = 'dead' and finished_at > clock_timestamp() - $1::interval)
                from session.inbox where state in ('new', 'seen'))
            select counted.*, oldest.tenant_id, oldest.session_id
            from counted left join (
                select tenant_id, session_id from session.inbox
                where state in ('new', 'seen') order by accepted_at limit 1) oldest on true";
        const DELIVERIES: &str = "
            with counted as (
                select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8,
                       (select count(*) from session.deliveries where state = 'sending'),
                       (select count(*) from session.deliveries where state = 'dead'),
                       (select count(*) from session.deliveries
                        where state in ('sent', 'unknown', 'dead') and state = 'dead'
                          and finished_at > clock_timestamp() - $1::interval),
                       (select count(*) from session.deliveries
                        where state in ('sent', 'unknown', 'dead') and state = 'unknown'
                          and finished_at > clock_timestamp() - $1::interval)
                from session.deliveries where state = 'pending')
            select counted.*, oldest.tenant_id, oldest.session_id
            from counted left join (
                select tenant_id, session_id from session.deliveries
                where state = 'pending' order by created_at limit 1) oldest on true";
        let mut once = self.pools.system_connection().await?;
        let sessions: (i64, i64, f64, Option<Uuid>, Option<Uuid>) =
            holdfast_pg::query_as(SESSIONS).fetch_one(once.conn()).await?;
        let messages: (i64, f64, i64, i64, Option<Uuid>, Option<Uuid>) =
            holdfast_pg::query_as(MESSAGES).bind(RECENT).fetch_one(once.conn()).await?;
        let deliveries: (i64, f64, i64, i64, i64, i64, Option<Uuid>, Option<Uuid>) =
            holdfast_pg::query_as(DELIVERIES).bind(RECENT).fetch_one(once.conn()).await?;
        once.done();
        let age = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Ok(MeshCounts {
            running_sessions: sessions.0,
            ready_sessions: sessions.1,
            oldest_ready: age(sessions.2),
            oldest_ready_of: owner(sessions.3, sessions.4),
            waiting_messages: messages.0,
            oldest_message: age(messages.1),
            oldest_message_of: owner(messages.4, messages.5),
            dead_messages: messages.2,
            new_dead_messages: messages.3,
            pending_deliveries: deliveries.0,
            oldest_delivery: age(deliveries.1),
            oldest_delivery_of: owner(deliveries.6, deliveries.7),
            sending_deliveries: deliveries.2,
            dead_deliveries: deliveries.3,
            new_dead_deliveries: deliveries.4,
            new_unknown_deliveries: deliveries.5,
        })
    }
}

fn owner(tenant: Option<Uuid>, session: Option<Uuid>) -> Option<WaitingSession> {
    Some(WaitingSession { tenant: tenant?.into(), session: session?.into() })
}
