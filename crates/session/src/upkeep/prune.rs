//! Retention: deletion of finished rows after their retention period.
//!
//! | rows | kept for | then |
//! |---|---|---|
//! | finished inbox rows | `inbox` | a tombstone keeps the idempotency key for `keys` more |
//! | finished deliveries | `deliveries` | deleted |
//! | runs, and subagents whose end was announced | `runs` | deleted; the journal keeps the content |
//! | approvals past their deadline | `runs` | deleted; approval rules stay |
//! | system events that were taken | `events` | deleted |
//! | events that a webhook has not accepted and that were given up | `inbox` | deleted |
//! | the log of events | `event_log` | deleted; the log knows up to where |
//! | spending of budgets | `runs` | deleted |
//! | journals of heartbeat sessions | `heartbeats` | deleted; news that still waits in a conversation counts as text from outside |
//! | entries of sessions at rest | `journals`, if it is set | deleted; the session goes on |
//! | records of lost state, and of ended runners | a day | deleted |
//! | idle sessions of API clients that named no user | `ephemeral` | deleted with their journal |
//! | idle sessions of job runs | `runs` | deleted with their journal |
//!
//! A tenant may set periods of its own. Journals are kept until the session is deleted, unless
//! their period is set.
//!
//! One statement finds out which tables of which tenants hold old rows, by the oldest row of each.
//! Only these are pruned, in batches with a transaction each. Rows that another process is deleting
//! are skipped. With an [`Archive`](super::archive::Archive), a batch is written there before its
//! transaction is committed; if that fails, nothing is deleted.

use std::time::Duration;

use holdfast_pg::{Pools, QueryScalar, TenantTx};
use holdfast_types::{SessionId, SessionState, TenantId};
use uuid::Uuid;

use super::{
    Upkeep,
    partial::{FirstError, Partial},
    retention::{Retention, RetentionRow},
};
use crate::{
    Error,
    delete::{KeptRecords, delete_rows},
    sessions::{lock, tenant_of},
};

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

/// Tenants whose oldest rows one statement reads.
const TENANTS_PER_QUERY: i64 = 200;

impl Upkeep<'_> {
    /// Deletes what is older than `keep` or the tenant's own periods allow, tenant by tenant.
    ///
    /// An error in one table or session of a tenant keeps no other from being pruned, and what was
    /// deleted is counted.
    pub async fn prune(self, keep: &Retention) -> Partial<PruneCounts> {
        let (mut pruned, mut failure) = (PruneCounts::default(), FirstError::default());
        pruned.rows += failure.value(delete_lost_state(self.pools).await);
        pruned.rows += failure.value(delete_old_log(self.pools, keep.event_log).await);
        pruned.rows += failure.value(delete_dead_webhook_events(self.pools, keep.inbox).await);
        let mut last = Uuid::nil();
        loop {
            let tenants = failure.value(find_old_rows(self.pools, keep, last).await);
            let Some(&(tenant, ..)) = tenants.last() else { return failure.with(pruned) };
            last = tenant;
            for (tenant, own, is_old) in tenants {
                let keep = keep.with_days(own.into());
                prune_tenant(self, tenant_of(tenant), &keep, &is_old, &mut pruned, &mut failure)
                    .await;
            }
        }
    }
}

/// Id of a tenant, its own retention periods, and whether each of the tables of [`OLD_ROWS`] has a
/// row past its period.
type OldRows = (Uuid, RetentionRow, Vec<bool>);

/// Order of the tables in [`OldRows`].
const OLD_ROWS: [Table; 11] = [
    Table::Inbox,
    Table::Keys,
    Table::Deliveries,
    Table::Runs,
    Table::Subagents,
    Table::Approvals,
    Table::SystemEvents,
    Table::Spending,
    Table::Heartbeats,
    Table::Ephemeral,
    Table::JobSessions,
];

#[derive(Clone, Copy)]
enum Table {
    Inbox,
    Keys,
    Deliveries,
    Runs,
    Subagents,
    Approvals,
    SystemEvents,
    Spending,
    Heartbeats,
    Ephemeral,
    JobSessions,
}

/// Reads which tables of the tenants after `last` have old rows: one index probe for each.
async fn find_old_rows(pools: &Pools, keep: &Retention, last: Uuid) -> Result<Vec<OldRows>, Error> {
    const SQL: &str = "
        with tenants as (
            select tenant_id from control.tenants where tenant_id > $1 order by tenant_id limit $2),
        k as materialized (
            select t.tenant_id, q.keep_messages_days, q.keep_keys_days, q.keep_deliveries_days,
                   q.keep_runs_days, q.keep_journals_days,
                   now() - coalesce(make_interval(days => q.keep_messages_days),
                                    $3 * interval '1 second') as messages,
                   now() - coalesce(make_interval(days => q.keep_deliveries_days),
                                    $4 * interval '1 second') as deliveries,
                   now() - coalesce(make_interval(days => q.keep_runs_days),
                                    $5 * interval '1 second') as runs,
                   now() - $6 * interval '1 second' as events,
                   now() - $7 * interval '1 second' as ephemeral
            from tenants t left join session.tenant_queue q using (tenant_id))
        select k.tenant_id, k.keep_messages_days, k.keep_keys_days, k.keep_deliveries_days,
            k.keep_runs_days, k.keep_journals_days, array[
            (select coalesce(min(finished_at) < k.messages, false) from session.inbox
             where tenant_id = k.tenant_id and state in ('done', 'dead')),
            (select coalesce(min(until) < now(), false) from session.tombstones
             where tenant_id = k.tenant_id),
            (select coalesce(min(finished_at) < k.deliveries, false) from session.deliveries
             where tenant_id = k.tenant_id and state in ('sent', 'unknown', 'dead')),
            (select coalesce(min(finished_at) < k.runs, false) from session.runs
             where tenant_id = k.tenant_id and steps >= 0),
            (select coalesce(min(announced_at) < k.runs, false) from session.subagents
             where tenant_id = k.tenant_id and announced_at is not null),
            (select coalesce(min(expires_at) < k.runs, false) from session.approvals
             where tenant_id = k.tenant_id),
            (select coalesce(min(gone_at) < k.events, false) from session.system_events
             where tenant_id = k.tenant_id and gone_at is not null),
            (select coalesce(min(day) < (k.runs at time zone 'utc')::date, false)
             from session.spending where tenant_id = k.tenant_id),
            exists (select from session.sessions
                    where tenant_id = k.tenant_id and kind = 'heartbeat'),
            (select coalesce(min(created_at) < k.ephemeral, false) from session.sessions
             where tenant_id = k.tenant_id and kind = 'api' and label = 'ephemeral'),
            (select coalesce(min(created_at) < k.runs, false) from session.sessions
             where tenant_id = k.tenant_id and kind = 'cron')]
        from k order by k.tenant_id";

    type Row = (Uuid, Option<i32>, Option<i32>, Option<i32>, Option<i32>, Option<i32>, Vec<bool>);
    let mut once = pools.system_connection().await?;
    let rows: Vec<Row> = holdfast_pg::query_as(SQL)
        .bind(last)
        .bind(TENANTS_PER_QUERY)
        .bind(keep.inbox.as_secs_f64())
        .bind(keep.deliveries.as_secs_f64())
        .bind(keep.runs.as_secs_f64())
        .bind(keep.events.as_secs_f64())
        .bind(keep.ephemeral.as_secs_f64())
        .fetch_all(once.conn())
        .await?;
    once.done();
    Ok(rows.into_iter().map(|r| (r.0, (r.1, r.2, r.3, r.4, r.5), r.6)).collect())
}

/// Prunes those tables of a tenant that have old rows.
async fn prune_tenant(
    upkeep: Upkeep<'_>,
    tenant: TenantId,
    keep: &Retention,
    is_old: &[bool],
    pruned: &mut PruneCounts,
    failure: &mut FirstError,
) {
    let old = OLD_ROWS.iter().zip(is_old).filter(|(_, is_old)| **is_old);
    for (table, _) in old {
        let (name, sql, age) = match table {
            Table::Inbox => {
                let ages = [keep.inbox, keep.keys];
                let deleted = upkeep.delete_in_batches(tenant, ("inbox", INBOX), &ages).await;
                pruned.rows += failure.value(deleted);
                continue;
            }
            Table::Ephemeral => {
                let ended =
                    prune_sessions(upkeep, tenant, EPHEMERAL, keep.ephemeral, failure).await;
                pruned.sessions += failure.value(ended);
                continue;
            }
            Table::JobSessions => {
                let ended = prune_sessions(upkeep, tenant, JOB_SESSIONS, keep.runs, failure).await;
                pruned.sessions += failure.value(ended);
                continue;
            }
            Table::Keys => ("tombstones", KEYS, Duration::ZERO),
            Table::Deliveries => ("deliveries", DELIVERIES, keep.deliveries),
            Table::Runs => ("runs", RUNS, keep.runs),
            Table::Subagents => ("subagents", SUBAGENTS, keep.runs),
            Table::Approvals => ("approvals", APPROVALS, keep.runs),
            Table::SystemEvents => ("system_events", SYSTEM_EVENTS, keep.events),
            Table::Spending => ("spending", SPENDING, keep.runs),
            Table::Heartbeats => ("entries", HEARTBEATS, keep.heartbeats),
        };
        let deleted = upkeep.delete_in_batches(tenant, (name, sql), &[age]).await;
        pruned.rows += failure.value(deleted);
    }
    if let Some(age) = keep.journals {
        pruned.rows += failure.value(prune_journals(upkeep, tenant, age).await);
    }
}

/// Deletes records of state that was lost a day ago, and of runners that ended a day ago.
async fn delete_lost_state(pools: &Pools) -> Result<u64, Error> {
    const SQL: &str = "
        with ended as (
            delete from session.runners where live_until < clock_timestamp() - interval '1 day')
        delete from session.held_state where lost_at < clock_timestamp() - interval '1 day'";
    let mut once = pools.system_connection().await?;
    let deleted = holdfast_pg::query(SQL).execute(once.conn()).await?.rows_affected();
    once.done();
    Ok(deleted)
}

/// Deletes old rows of the logs of events of all tenants, and notes up to where each log is deleted.
async fn delete_old_log(pools: &Pools, age: Duration) -> Result<u64, Error> {
    const SQL: &str = "
        with gone as (
            delete from session.event_log where ctid = any(array(
                select ctid from session.event_log
                where created_at < clock_timestamp() - $2 * interval '1 second'
                order by created_at limit $1))
            returning tenant_id, last),
        moved as (
            update session.event_positions p
            set deleted = greatest(p.deleted, g.last), published = greatest(p.published, g.last)
            from (select tenant_id, max(last) as last from gone group by tenant_id) g
            where p.tenant_id = g.tenant_id)
        select count(*) from gone";
    let mut deleted = 0;
    loop {
        let mut once = pools.system_connection().await?;
        let batch: i64 = holdfast_pg::query_scalar(SQL)
            .bind(MAX_ROWS_PER_BATCH)
            .bind(age.as_secs_f64())
            .fetch_one(once.conn())
            .await?;
        once.done();
        deleted += batch.unsigned_abs();
        if batch < MAX_ROWS_PER_BATCH {
            return Ok(deleted);
        }
    }
}

/// Deletes events that webhooks have not accepted and that were given up long ago. They are few.
async fn delete_dead_webhook_events(pools: &Pools, age: Duration) -> Result<u64, Error> {
    const SQL: &str = "
        delete from session.webhook_events
        where dead_at < clock_timestamp() - $1 * interval '1 second'";
    let mut once = pools.system_connection().await?;
    let deleted =
        holdfast_pg::query(SQL).bind(age.as_secs_f64()).execute(once.conn()).await?.rows_affected();
    once.done();
    Ok(deleted)
}

/// Deletes old entries of a tenant's sessions that have nothing to do. Entries of a turn that is
/// not finished stay: it continues from them.
async fn prune_journals(upkeep: Upkeep<'_>, tenant: TenantId, age: Duration) -> Result<u64, Error> {
    const SESSIONS: &str = "
        select s.session_id, l.next_in - 1 = l.done_in and l.state <> 'RUNNING'
        from session.sessions s join session.session_lease l using (tenant_id, session_id)
        where s.tenant_id = $1 and s.kind <> '' and s.session_id > $2
        order by s.session_id limit $3";

    let (mut deleted, mut last) = (0, Uuid::nil());
    loop {
        let mut tx = upkeep.pools.tenant(tenant).await?;
        let page: Vec<(Uuid, bool)> = holdfast_pg::query_as(SESSIONS)
            .bind(tenant.as_uuid())
            .bind(last)
            .bind(MAX_SESSIONS_PER_QUERY)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let Some((session, _)) = page.last() else { return Ok(deleted) };
        last = *session;
        let idle: Vec<Uuid> =
            page.into_iter().filter(|(_, idle)| *idle).map(|(id, _)| id).collect();
        loop {
            let bind = |query: Rows| query.bind(age.as_secs_f64()).bind(&idle);
            let batch = upkeep.delete_batch(tenant, ("entries", JOURNALS), bind).await?;
            deleted += batch;
            if batch < MAX_ROWS_PER_BATCH.unsigned_abs() {
                break;
            }
        }
    }
}

/// Wraps a statement that deletes: its result is a row for each deleted one, with that as JSON if
/// `$1` is true. `$2` is the tenant, `$3` the maximum number of rows.
macro_rules! returning {
    ($($delete:tt)+) => {
        concat!(
            "with gone as (",
            $($delete)+,
            " returning *)
            select case when $1 then row_to_json(gone)::text end from gone"
        )
    };
}

/// Selects the rows of a session in a table, each as JSON.
macro_rules! content {
    ($table:literal) => {
        concat!(
            "select row_to_json(t)::text from ",
            $table,
            " t where tenant_id = $1 and session_id = $2"
        )
    };
}

/// Deletes rows of a table, at most `$3`; `$4` is an age in seconds.
macro_rules! delete_old {
    ($table:literal where $old:literal) => {
        returning!(
            "delete from ",
            $table,
            " where ctid = any(array(
                select ctid from ",
            $table,
            " where tenant_id = $2 and ",
            $old,
            " limit $3 for update skip locked))"
        )
    };
}

const INBOX: &str = "
    with gone as (
        delete from session.inbox
        where ctid = any(array(
            select ctid from session.inbox
            where tenant_id = $2 and state in ('done', 'dead')
              and finished_at < clock_timestamp() - $4 * interval '1 second'
            limit $3 for update skip locked))
        returning *),
    kept as (
        insert into session.tombstones
            (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
        select tenant_id, source, idem_key, hash, session_id, seq, message_id,
               clock_timestamp() + $5 * interval '1 second' from gone
        on conflict do nothing)
    select case when $1 then row_to_json(gone)::text end from gone";
/// Reads one entry of a session that has no old ones: the first.
const JOURNALS: &str = returning!(
    "delete from session.entries where ctid = any(array(
        select e.ctid from unnest($5::uuid[]) as s (session_id)
        cross join lateral (
            select created_at from session.entries
            where tenant_id = $2 and session_id = s.session_id order by seq limit 1) first
        cross join lateral (
            select ctid, created_at from session.entries
            where tenant_id = $2 and session_id = s.session_id
              and first.created_at < now() - $4 * interval '1 second'
            order by seq limit $3) e
        where e.created_at < now() - $4 * interval '1 second' limit $3))"
);
const KEYS: &str =
    delete_old!("session.tombstones" where "until < clock_timestamp() - $4 * interval '1 second'");
const DELIVERIES: &str = delete_old!(
    "session.deliveries" where "state in ('sent', 'unknown', 'dead')
     and finished_at < clock_timestamp() - $4 * interval '1 second'");
const RUNS: &str = delete_old!(
    "session.runs" where "steps >= 0
     and finished_at < clock_timestamp() - $4 * interval '1 second'");
const SUBAGENTS: &str = delete_old!(
    "session.subagents" where "announced_at < clock_timestamp() - $4 * interval '1 second'");
const APPROVALS: &str = delete_old!(
    "session.approvals" where "expires_at < clock_timestamp() - $4 * interval '1 second'");
const SYSTEM_EVENTS: &str = delete_old!(
    "session.system_events" where "gone_at < clock_timestamp() - $4 * interval '1 second'");
const SPENDING: &str = delete_old!(
    "session.spending" where
    "day < (clock_timestamp() at time zone 'utc' - $4 * interval '1 second')::date");
const HEARTBEATS: &str = returning!(
    "delete from session.entries
    where ctid = any(array(
        select e.ctid from session.sessions s join session.entries e using (tenant_id, session_id)
        where s.tenant_id = $2 and s.kind = 'heartbeat'
          and e.created_at < clock_timestamp() - $4 * interval '1 second'
        limit $3 for update of e skip locked))"
);

const EPHEMERAL: &str = "
    select s.session_id from session.sessions s
    join session.session_lease l using (tenant_id, session_id)
    where s.tenant_id = $1 and s.kind = 'api' and s.label = 'ephemeral'
      and l.state = 'WAIT' and l.next_in - 1 = l.done_in
      and s.created_at < clock_timestamp() - $2 * interval '1 second'
      and s.updated_at < clock_timestamp() - $2 * interval '1 second'
    order by s.created_at limit $3";
// Each run of a job has its own session, which no other run uses.
const JOB_SESSIONS: &str = "
    select s.session_id from session.sessions s
    join session.session_lease l using (tenant_id, session_id)
    where s.tenant_id = $1 and s.kind = 'cron' and l.state = 'WAIT' and l.next_in - 1 = l.done_in
      and s.created_at < clock_timestamp() - $2 * interval '1 second'
      and s.updated_at < clock_timestamp() - $2 * interval '1 second'
    order by s.created_at limit $3";

/// A statement of [`returning!`].
type Rows = QueryScalar<Option<String>>;

impl Upkeep<'_> {
    /// Runs a statement of [`returning!`] until it deletes less than its limit. `ages` are its
    /// parameters from `$4`.
    async fn delete_in_batches(
        self,
        tenant: TenantId,
        (table, sql): (&'static str, &'static str),
        ages: &[Duration],
    ) -> Result<u64, Error> {
        let mut deleted = 0;
        loop {
            let bind =
                |query: Rows| ages.iter().fold(query, |query, age| query.bind(age.as_secs_f64()));
            let batch = self.delete_batch(tenant, (table, sql), bind).await?;
            deleted += batch;
            if batch < MAX_ROWS_PER_BATCH.unsigned_abs() {
                return Ok(deleted);
            }
        }
    }

    /// Deletes one batch, after it was archived. Returns the number of rows.
    async fn delete_batch(
        self,
        tenant: TenantId,
        (table, sql): (&'static str, &'static str),
        bind: impl FnOnce(Rows) -> Rows,
    ) -> Result<u64, Error> {
        let query = bind(
            holdfast_pg::query_scalar(sql)
                .bind(self.archive.is_some())
                .bind(tenant.as_uuid())
                .bind(MAX_ROWS_PER_BATCH),
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows = query.fetch_all(tx.conn()).await?;
        let deleted = rows.len() as u64;
        if let Some(archive) = self.archive {
            archive.write(tenant, table, rows.into_iter().flatten().collect()).await?;
        }
        tx.commit().await?;
        Ok(deleted)
    }

    /// Archives the content of a locked session that is deleted next.
    async fn archive_session(self, tx: &mut TenantTx, session: SessionId) -> Result<(), Error> {
        const CONTENT: [(&str, &str); 5] = [
            ("sessions", content!("session.sessions")),
            ("inbox", content!("session.inbox")),
            ("entries", content!("session.entries")),
            ("runs", content!("session.runs")),
            ("deliveries", content!("session.deliveries")),
        ];
        let Some(archive) = self.archive else { return Ok(()) };
        let tenant = tx.tenant();
        for (table, sql) in CONTENT {
            let rows: Vec<String> = holdfast_pg::query_scalar(sql)
                .bind(tenant.as_uuid())
                .bind(session.as_uuid())
                .fetch_all(tx.conn())
                .await?;
            archive.write(tenant, table, rows).await?;
        }
        Ok(())
    }
}

async fn prune_sessions(
    upkeep: Upkeep<'_>,
    tenant: TenantId,
    sql: &'static str,
    age: Duration,
    failure: &mut FirstError,
) -> Result<u64, Error> {
    let mut deleted = 0;
    // There may be many: a job that runs each minute creates over a thousand in a day.
    loop {
        let mut tx = upkeep.pools.tenant(tenant).await?;
        let old: Vec<Uuid> = holdfast_pg::query_scalar(sql)
            .bind(tenant.as_uuid())
            .bind(age.as_secs_f64())
            .bind(MAX_SESSIONS_PER_QUERY)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let mut batch = 0;
        for session in old.into_iter().map(SessionId::from) {
            let result = delete_if_idle(upkeep, tenant, session, age).await;
            batch += failure.value(result.map(u64::from).map_err(|e| e.in_session(session)));
        }
        deleted += batch;
        if batch == 0 {
            return Ok(deleted);
        }
    }
}

/// Deletes a session unless it was used since it was found. Another runner may have deleted it.
async fn delete_if_idle(
    upkeep: Upkeep<'_>,
    tenant: TenantId,
    session: SessionId,
    age: Duration,
) -> Result<bool, Error> {
    let mut tx = upkeep.pools.tenant(tenant).await?;
    let lease = lock(&mut tx, session).await?;
    let is_idle = lease
        .is_some_and(|lease| lease.state == SessionState::Wait && lease.unfinished_messages() == 0);
    if !is_idle || !is_unused_for(&mut tx, session, age).await? {
        tx.rollback().await?;
        return Ok(false);
    }
    upkeep.archive_session(&mut tx, session).await?;
    delete_rows(&mut tx, session, KeptRecords::Nothing).await?;
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
