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
//!
//! All runners prune. Rows are deleted in batches, each in a transaction of its own, and rows that
//! another runner is deleting are skipped.

use std::time::Duration;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{SessionId, SessionState, TenantId};
use uuid::Uuid;

use crate::{
    Error, Sessions,
    delete::delete_rows,
    protocol::sweep::FirstError,
    sessions::{lock, tenant_of},
};

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

/// Maximum number of rows that one transaction deletes.
const MAX_ROWS_PER_BATCH: i64 = 1_000;

/// Label of sessions that an API client opened without naming a user.
pub const EPHEMERAL_LABEL: &str = "ephemeral";

impl Sessions {
    /// Deletes what is older than `keep` allows, tenant by tenant.
    ///
    /// # Errors
    ///
    /// The first of all errors. An error in one table or session of a tenant keeps no other from
    /// being pruned.
    pub async fn prune(&self, keep: &Retention) -> Result<PruneCounts, Error> {
        const TENANTS: &str = "select tenant_id from control.tenants";

        let mut once = self.pools.system_connection().await?;
        let tenants: Vec<Uuid> = holdfast_pg::query_scalar(TENANTS).fetch_all(once.conn()).await?;
        once.done();
        let (mut pruned, mut failure) = (PruneCounts::default(), FirstError::default());
        for tenant in tenants.into_iter().map(tenant_of) {
            let inbox = [keep.inbox, keep.keys];
            let deleted = delete_in_batches(&self.pools, tenant, INBOX, &inbox).await;
            pruned.rows += failure.count(deleted);
            for (sql, age) in prunable_rows(keep) {
                let deleted = delete_in_batches(&self.pools, tenant, sql, &[age]).await;
                pruned.rows += failure.count(deleted);
            }
            for (sql, age) in [(EPHEMERAL, keep.ephemeral), (JOB_SESSIONS, keep.runs)] {
                pruned.sessions +=
                    failure.count(prune_sessions(&self.pools, tenant, sql, age).await);
            }
        }
        failure.into_result(pruned)
    }
}

/// Deletes rows of a table, at most `$2`; `$3` is an age in seconds.
macro_rules! delete_old {
    ($table:literal where $old:literal) => {
        concat!(
            "delete from ",
            $table,
            " where ctid = any(array(
                select ctid from ",
            $table,
            " where tenant_id = $1 and ",
            $old,
            " limit $2 for update skip locked))"
        )
    };
}

const INBOX: &str = "
    with gone as (
        delete from session.inbox
        where ctid = any(array(
            select ctid from session.inbox
            where tenant_id = $1 and state in ('done', 'dead')
              and finished_at < clock_timestamp() - $3 * interval '1 second'
            limit $2 for update skip locked))
        returning *),
    kept as (
        insert into session.tombstones
            (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
        select tenant_id, source, idem_key, hash, session_id, seq, message_id,
               clock_timestamp() + $4 * interval '1 second' from gone
        on conflict do nothing)
    select from gone";
const KEYS: &str =
    delete_old!("session.tombstones" where "until < clock_timestamp() - $3 * interval '1 second'");
const DELIVERIES: &str = delete_old!(
    "session.deliveries" where "state in ('sent', 'unknown', 'dead')
     and finished_at < clock_timestamp() - $3 * interval '1 second'");
const RUNS: &str = delete_old!(
    "session.runs" where "steps >= 0
     and finished_at < clock_timestamp() - $3 * interval '1 second'");
const SUBAGENTS: &str = delete_old!(
    "session.subagents" where "announced_at < clock_timestamp() - $3 * interval '1 second'");
const APPROVALS: &str = delete_old!(
    "session.approvals" where "expires_at < clock_timestamp() - $3 * interval '1 second'");
const EVENTS: &str = delete_old!(
    "session.events" where "created_at < clock_timestamp() - $3 * interval '1 second'");
const SYSTEM_EVENTS: &str = delete_old!(
    "session.system_events" where "gone_at < clock_timestamp() - $3 * interval '1 second'");
const SPENDING: &str = delete_old!(
    "session.spending" where
    "day < (clock_timestamp() at time zone 'utc' - $3 * interval '1 second')::date");
const HEARTBEATS: &str = "
    delete from session.entries
    where ctid = any(array(
        select e.ctid from session.sessions s join session.entries e using (tenant_id, session_id)
        where s.tenant_id = $1 and s.kind <> '' and s.kind = 'heartbeat'
          and e.created_at < clock_timestamp() - $3 * interval '1 second'
        limit $2 for update of e skip locked))";

const EPHEMERAL: &str = "
    select s.session_id from session.sessions s
    join session.session_lease l using (tenant_id, session_id)
    where s.tenant_id = $1 and s.kind <> '' and s.kind = 'api' and s.label = 'ephemeral'
      and l.state = 'WAIT' and l.next_in - 1 = l.done_in
      and s.updated_at < clock_timestamp() - $2 * interval '1 second'
    limit $3";
// Each run of a job has its own session, which no other run uses.
const JOB_SESSIONS: &str = "
    select s.session_id from session.sessions s
    join session.session_lease l using (tenant_id, session_id)
    where s.tenant_id = $1 and s.kind = 'cron' and l.state = 'WAIT' and l.next_in - 1 = l.done_in
      and s.created_at < clock_timestamp() - $2 * interval '1 second'
      and s.updated_at < clock_timestamp() - $2 * interval '1 second'
    order by s.created_at limit $3";

/// Statements that delete rows, each with the age of the rows.
const fn prunable_rows(keep: &Retention) -> [(&'static str, Duration); 9] {
    [
        (KEYS, Duration::ZERO),
        (DELIVERIES, keep.deliveries),
        (RUNS, keep.runs),
        (SUBAGENTS, keep.runs),
        (APPROVALS, keep.runs),
        (EVENTS, keep.events),
        (SYSTEM_EVENTS, keep.events),
        (SPENDING, keep.runs),
        (HEARTBEATS, keep.heartbeats),
    ]
}

/// Runs a statement with a limit until it deletes less. `ages` are its parameters from `$3`.
async fn delete_in_batches(
    pools: &Pools,
    tenant: TenantId,
    sql: &'static str,
    ages: &[Duration],
) -> Result<u64, Error> {
    let mut deleted = 0;
    loop {
        let mut tx = pools.tenant(tenant).await?;
        let query = holdfast_pg::query(sql).bind(tenant.as_uuid()).bind(MAX_ROWS_PER_BATCH);
        let query = ages.iter().fold(query, |query, age| query.bind(age.as_secs_f64()));
        let batch = query.execute(tx.conn()).await?.rows_affected();
        tx.commit().await?;
        deleted += batch;
        if batch < MAX_ROWS_PER_BATCH.unsigned_abs() {
            return Ok(deleted);
        }
    }
}

async fn prune_sessions(
    pools: &Pools,
    tenant: TenantId,
    sql: &'static str,
    age: Duration,
) -> Result<u64, Error> {
    let (mut deleted, mut failure) = (0, FirstError::default());
    // There may be many: a job that runs each minute creates over a thousand in a day.
    loop {
        let mut tx = pools.tenant(tenant).await?;
        let old: Vec<Uuid> = holdfast_pg::query_scalar(sql)
            .bind(tenant.as_uuid())
            .bind(age.as_secs_f64())
            .bind(MAX_SESSIONS_PER_QUERY)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let mut batch = 0;
        for session in old.into_iter().map(SessionId::from) {
            let result = delete_if_idle(pools, tenant, session, age).await;
            batch += failure.count(result.map(u64::from).map_err(|e| e.in_session(session)));
        }
        deleted += batch;
        if batch == 0 {
            return failure.into_result(deleted);
        }
    }
}

/// Deletes a session unless it was used since it was found. Another runner may have deleted it.
async fn delete_if_idle(
    pools: &Pools,
    tenant: TenantId,
    session: SessionId,
    age: Duration,
) -> Result<bool, Error> {
    let mut tx = pools.tenant(tenant).await?;
    let lease = lock(&mut tx, session).await?;
    let is_idle = lease
        .is_some_and(|lease| lease.state == SessionState::Wait && lease.unfinished_messages() == 0);
    if !is_idle || !is_unused_for(&mut tx, session, age).await? {
        tx.rollback().await?;
        return Ok(false);
    }
    delete_rows(&mut tx, session).await?;
    tx.commit().await?;
    Ok(true)
}

async fn is_unused_for(tx: &mut TenantTx, session: SessionId, age: Duration) -> sqlx::Result<bool> {
    const SQL: &str = "
        select updated_at < clock_timestamp() - $3 * interval '1 second' from session.sessions
        where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(age.as_secs_f64())
        .fetch_one(tx.conn())
        .await
}
