//! Queues of tenants: their shares of the runners, and their backlog.

mod agents;
pub(crate) mod mesh;
pub(crate) mod runner_pools;
pub(crate) mod self_improvements;
mod urgent;
pub(crate) mod waiting;

use std::time::Duration;

use holdfast_pg::Pools;
use holdfast_types::TenantId;

use crate::{
    Error, Sessions, TenantCounts, sessions::DEFAULT_MAX_SESSIONS, view::activity::is_requeued,
};

/// Backlog of the whole installation, for metrics.
#[derive(Debug, Clone, Default)]
pub struct Gauges {
    /// Number of sessions that are ready and not running, of tenants of the default pool.
    pub waiting_sessions: i64,
    /// Waiting time of the oldest of them.
    pub oldest_wait: Duration,
    /// Number of deliveries by state: pending, sending, unknown and dead.
    pub deliveries: Vec<(String, i64)>,
}

/// A tenant's share of the runners, and its limit on sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantShare {
    /// Share relative to other tenants, 1 to 100.
    pub weight: u32,
    /// Maximum number of sessions that are ready or running at once.
    pub cap: u32,
    /// Maximum number of sessions, whatever their state.
    pub max_sessions: u32,
}

/// Changes to a [`TenantShare`]; `None` leaves a value as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShareChanges {
    pub weight: Option<u32>,
    pub cap: Option<u32>,
    pub max_sessions: Option<u32>,
}

/// Queues of tenants, from [`Sessions::queues`].
#[derive(Debug, Clone, Copy)]
pub struct Queues<'a> {
    pub(crate) pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn queues(&self) -> Queues<'_> {
        Queues { pools: &self.pools }
    }
}

impl Queues<'_> {
    /// Returns a tenant's share of the runners, and its limit on sessions.
    pub async fn share(self, tenant: TenantId) -> Result<TenantShare, Error> {
        const SQL: &str = "
            select weight, cap, max_sessions from session.tenant_queue where tenant_id = $1";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<(i32, i32, i32)> =
            holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).fetch_optional(tx.conn()).await?;
        tx.commit().await?;
        let (weight, cap, max_sessions) = row.unwrap_or((1, 64, DEFAULT_MAX_SESSIONS));
        // Check constraints keep them positive.
        let count = |value: i32| u32::try_from(value).unwrap_or(1);
        Ok(TenantShare {
            weight: count(weight),
            cap: count(cap),
            max_sessions: count(max_sessions),
        })
    }

    /// Changes those values of a tenant's share that are given.
    pub async fn set_share(self, tenant: TenantId, changes: ShareChanges) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.tenant_queue (tenant_id, weight, cap, max_sessions)
            values ($1, coalesce($2, 1), coalesce($3, 64), coalesce($4, $5))
            on conflict (tenant_id) do update
                set weight = coalesce($2, tenant_queue.weight), cap = coalesce($3, tenant_queue.cap),
                    max_sessions = coalesce($4, tenant_queue.max_sessions)";
        let small = |value: Option<u32>| value.and_then(|value| i32::try_from(value).ok());
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(small(changes.weight))
            .bind(small(changes.cap))
            .bind(small(changes.max_sessions))
            .bind(DEFAULT_MAX_SESSIONS)
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Returns counts of a tenant's sessions, deliveries and messages.
    pub async fn counts(self, tenant: TenantId) -> Result<TenantCounts, Error> {
        const SESSIONS: &str = "
            select case when l.paused is not null then 'PAUSE' else l.state end, count(*)
            from session.sessions s join session.session_lease l using (tenant_id, session_id)
            where s.tenant_id = $1 and s.kind <> '' group by 1 order by 1";
        const DELIVERIES: &str = "
            select state, count(*) from session.deliveries
            where tenant_id = $1 and part >= 0 group by 1 order by 1";
        // Starts from the sessions with unfinished messages, so that finished messages are not
        // read.
        const INBOX: &str = concat!(
            "
            select count(i.seq),
                   coalesce((extract(epoch from clock_timestamp() - min(i.accepted_at)) * 1000)::bigint, 0),
                   (select count(*) from session.inbox d
                    where d.tenant_id = $1 and d.state = 'dead' and not ",
            is_requeued!("d"),
            ")
            from session.sessions s
            join session.session_lease l using (tenant_id, session_id)
            join session.inbox i on i.tenant_id = l.tenant_id and i.session_id = l.session_id
                 and i.state in ('new', 'seen')
            where s.tenant_id = $1 and s.kind <> '' and l.next_in - 1 > l.done_in"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let sessions =
            holdfast_pg::query_as(SESSIONS).bind(tenant.as_uuid()).fetch_all(tx.conn()).await?;
        let deliveries =
            holdfast_pg::query_as(DELIVERIES).bind(tenant.as_uuid()).fetch_all(tx.conn()).await?;
        let (waiting, oldest, dead): (i64, i64, i64) =
            holdfast_pg::query_as(INBOX).bind(tenant.as_uuid()).fetch_one(tx.conn()).await?;
        tx.commit().await?;
        let oldest_wait = Duration::from_millis(u64::try_from(oldest).unwrap_or(0));
        Ok(TenantCounts { sessions, deliveries, waiting, oldest_wait, dead })
    }

    /// Returns the backlog of the whole installation.
    pub async fn gauges(self) -> Result<Gauges, Error> {
        // Each part matches one partial index, which holds no other rows.
        const READY_SESSIONS: &str = "
            select coalesce(sum(count), 0)::bigint,
                   coalesce((extract(epoch from clock_timestamp() - min(oldest)) * 1000)::bigint, 0)
            from (
                select count(*) as count, min(ready_at) as oldest from session.session_lease
                where state = 'READY' and fair_key is not null and paused is null
                  and tenant_id <> all (array(select tenant_id from session.tenant_queue
                                              where pool is not null))
                union all
                -- Sessions of suspended tenants wait for no runner.
                select count(*), min(ready_at) from session.session_lease l
                where state = 'READY' and fair_key is null and paused is null
                  and not exists (select from session.tenant_queue q
                                  where q.tenant_id = l.tenant_id
                                    and (q.suspended or q.pool is not null))) ready";
        const DELIVERIES: &str = "
            select 'pending', count(*) from session.deliveries where state = 'pending'
            union all
            select 'sending', count(*) from session.deliveries where state = 'sending'
            union all
            select state, count(*) from session.deliveries
            where state in ('unknown', 'dead') group by 1";
        let mut once = self.pools.system_connection().await?;
        let (waiting_sessions, oldest): (i64, i64) =
            holdfast_pg::query_as(READY_SESSIONS).fetch_one(once.conn()).await?;
        let deliveries = holdfast_pg::query_as(DELIVERIES).fetch_all(once.conn()).await?;
        once.done();
        let oldest_wait = Duration::from_millis(u64::try_from(oldest).unwrap_or(0));
        Ok(Gauges { waiting_sessions, oldest_wait, deliveries })
    }
}
