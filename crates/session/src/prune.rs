//! Retention: deletion of finished rows after their retention period.
//!
//! | rows | kept for | then |
//! |---|---|---|
//! | finished inbox rows | `inbox` | a tombstone keeps the idempotency key for `keys` more |
//! | finished deliveries | `deliveries` | deleted |
//! | runs, and subagents whose end was announced | `runs` | deleted; the journal keeps the content |
//! | approvals past their deadline | `runs` | deleted; approval rules stay |
//! | events that could not be published, and system events that were taken | `events` | deleted |
//! | spending of budgets | `runs` | deleted |
//! | journals of heartbeat sessions | `heartbeats` | deleted; not read again |
//! | idle sessions of API clients that named no user | `ephemeral` | deleted with their journal |
//! | idle sessions of job runs | `runs` | deleted with their journal |
//!
//! Journals of other sessions are kept until the session is deleted.

use std::time::Duration;

use holdfast_pg::Pools;
use holdfast_types::{SessionId, TenantId};
use uuid::Uuid;

use crate::{Error, Sessions, delete::delete_without_memories, sessions::tenant_of};

/// Retention periods of finished rows.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Finished messages.
    pub inbox: Duration,
    /// Idempotency keys, counted from the deletion of their message.
    pub keys: Duration,
    /// Finished deliveries.
    pub deliveries: Duration,
    /// Runs, subagents, approvals, spending, and sessions of job runs.
    pub runs: Duration,
    /// Events that could not be published, and system events that were taken.
    pub events: Duration,
    /// Sessions that an API client opened without naming a user.
    pub ephemeral: Duration,
    /// Journals of heartbeat sessions.
    pub heartbeats: Duration,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Retention {
    fn default() -> Self {
        Self {
            inbox: 30 * DAY,
            keys: 30 * DAY,
            deliveries: 30 * DAY,
            runs: 90 * DAY,
            events: 7 * DAY,
            ephemeral: DAY,
            heartbeats: 7 * DAY,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneCounts {
    /// Deleted rows in all tables except sessions.
    pub rows: u64,
    pub sessions: u64,
}

/// Maximum number of sessions that one query returns.
const MAX_SESSIONS_PER_QUERY: i64 = 1_000;

/// Label of sessions that an API client opened without naming a user.
pub const EPHEMERAL_LABEL: &str = "ephemeral";

impl Sessions {
    /// Deletes what is older than `keep` allows, tenant by tenant.
    ///
    /// # Errors
    ///
    /// Each tenant is pruned in its own transactions: what was deleted before an error stays
    /// deleted.
    pub async fn prune(&self, keep: &Retention) -> Result<PruneCounts, Error> {
        const TENANTS: &str = "select tenant_id from control.tenants";

        let mut pruned = PruneCounts::default();
        let mut once = self.pools.system_connection().await?;
        let tenants: Vec<Uuid> = sqlx::query_scalar(TENANTS).fetch_all(once.conn()).await?;
        once.done();
        for tenant in tenants {
            let tenant = tenant_of(tenant);
            pruned.rows += prune_rows(&self.pools, tenant, keep).await?;
            pruned.sessions += prune_sessions(&self.pools, tenant, keep).await?;
        }
        Ok(pruned)
    }
}

async fn prune_rows(pools: &Pools, tenant: TenantId, keep: &Retention) -> Result<u64, Error> {
    const INBOX: &str = "
        with gone as (
            delete from session.inbox
            where tenant_id = $1 and state in ('done', 'dead')
              and finished_at < clock_timestamp() - $2 * interval '1 second'
            returning *)
        insert into session.tombstones
            (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
        select tenant_id, source, idem_key, hash, session_id, seq, message_id,
               clock_timestamp() + $3 * interval '1 second' from gone
        on conflict do nothing";
    const KEYS: &str =
        "delete from session.tombstones where tenant_id = $1 and until < clock_timestamp()";
    const DELIVERIES: &str = "
        delete from session.deliveries
        where tenant_id = $1 and state in ('sent', 'unknown', 'dead')
          and finished_at < clock_timestamp() - $2 * interval '1 second'";
    const RUNS: &str = "
        delete from session.runs
        where tenant_id = $1 and steps >= 0
          and finished_at < clock_timestamp() - $2 * interval '1 second'";
    const SUBAGENTS: &str = "
        delete from session.subagents
        where tenant_id = $1 and announced_at < clock_timestamp() - $2 * interval '1 second'";
    const APPROVALS: &str = "
        delete from session.approvals
        where tenant_id = $1 and expires_at < clock_timestamp() - $2 * interval '1 second'";
    const EVENTS: &str = "
        delete from session.events
        where tenant_id = $1 and created_at < clock_timestamp() - $2 * interval '1 second'";
    const SYSTEM_EVENTS: &str = "
        delete from session.system_events
        where tenant_id = $1 and gone_at < clock_timestamp() - $2 * interval '1 second'";
    const SPENDING: &str = "
        delete from session.spending
        where tenant_id = $1
          and day < (clock_timestamp() at time zone 'utc' - $2 * interval '1 second')::date";
    const HEARTBEATS: &str = "
        delete from session.entries e using session.sessions s
        where s.tenant_id = $1 and s.kind <> '' and s.kind = 'heartbeat'
          and e.tenant_id = s.tenant_id and e.session_id = s.session_id
          and e.created_at < clock_timestamp() - $2 * interval '1 second'";

    let mut tx = pools.tenant(tenant).await?;
    let mut rows = 0;
    rows += sqlx::query(INBOX)
        .bind(tenant.as_uuid())
        .bind(keep.inbox.as_secs_f64())
        .bind(keep.keys.as_secs_f64())
        .execute(tx.conn())
        .await?
        .rows_affected();
    rows += sqlx::query(KEYS).bind(tenant.as_uuid()).execute(tx.conn()).await?.rows_affected();
    for (sql, age) in [
        (DELIVERIES, keep.deliveries),
        (RUNS, keep.runs),
        (SUBAGENTS, keep.runs),
        (APPROVALS, keep.runs),
        (EVENTS, keep.events),
        (SYSTEM_EVENTS, keep.events),
        (SPENDING, keep.runs),
        (HEARTBEATS, keep.heartbeats),
    ] {
        rows += sqlx::query(sql)
            .bind(tenant.as_uuid())
            .bind(age.as_secs_f64())
            .execute(tx.conn())
            .await?
            .rows_affected();
    }
    tx.commit().await?;
    Ok(rows)
}

async fn prune_sessions(pools: &Pools, tenant: TenantId, keep: &Retention) -> Result<u64, Error> {
    const EPHEMERAL: &str = "
        select s.session_id from session.sessions s
        join session.session_lease l using (tenant_id, session_id)
        where s.tenant_id = $1 and s.kind <> '' and s.kind = 'api' and s.label = 'ephemeral'
          and l.state = 'WAIT' and s.updated_at < clock_timestamp() - $2 * interval '1 second'
        limit $3";
    // Each run of a job has its own session, which no other run uses.
    const JOB_SESSIONS: &str = "
        select s.session_id from session.sessions s
        join session.session_lease l using (tenant_id, session_id)
        where s.tenant_id = $1 and s.kind = 'cron' and l.state = 'WAIT'
          and s.created_at < clock_timestamp() - $2 * interval '1 second'
          and s.updated_at < clock_timestamp() - $2 * interval '1 second'
        order by s.created_at limit $3";

    let mut deleted = 0;
    for (sql, age) in [(EPHEMERAL, keep.ephemeral), (JOB_SESSIONS, keep.runs)] {
        // There may be many: a job that runs each minute creates over a thousand in a day.
        loop {
            let mut tx = pools.tenant(tenant).await?;
            let old: Vec<Uuid> = sqlx::query_scalar(sql)
                .bind(tenant.as_uuid())
                .bind(age.as_secs_f64())
                .bind(MAX_SESSIONS_PER_QUERY)
                .fetch_all(tx.conn())
                .await?;
            tx.finish_reading();
            if old.is_empty() {
                break;
            }
            for session in old {
                match delete_without_memories(pools, tenant, SessionId::from(session)).await {
                    Ok(()) => deleted += 1,
                    // All runners prune: another one has deleted it.
                    Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(deleted)
}
