//! Sweep: the work that one runner does once a second to recover from crashes and pass deadlines.
//!
//! An idle sweep runs three statements, which read the running sessions and what is overdue or
//! queued, and writes no row. Two sweeps at once are safe.

use std::sync::atomic::Ordering;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{Entry, Note, RunId, SessionId, SessionState, Target, TenantId, Wait};
use sqlx::types::Json;
use uuid::Uuid;

use super::{
    append::insert_deliveries,
    complete::{LeaseChanges, end_claim},
};
use crate::{
    Error, NewDelivery, Sessions, SweepCounts,
    sessions::{CHOICES_PER_FAIR_ONE, FAIR_KEY_STEP, Lease, lock_if_free, tenant_of},
    upkeep::partial::{FirstError, Partial},
};

/// Claims without progress after which the oldest unfinished message becomes a dead letter.
pub const MAX_ATTEMPTS: i32 = 5;

/// Claims without progress after which a session is a suspect. A runner runs at most one suspect at
/// a time, so that a session that kills its runner cannot take another suspect along.
pub const SUSPECT_ATTEMPTS: i32 = 2;

/// Result for the model of a call that was begun before its runner was lost.
const UNKNOWN_OUTCOME_RESULT: &str = "the outcome of this call is unknown: it was begun, and then the process \
                       that ran it was lost; check before you do it again";

/// Reply to the sender of a message that became a dead letter.
const DEAD_LETTER_REPLY: &str = "I could not answer this message: processing it failed five times, so it \
                        was set aside. Whoever runs this assistant can look at it and try again.";

impl Sessions {
    /// Frees expired leases, ends waits past their deadline, admits queued sessions, and turns
    /// messages with too many attempts into dead letters.
    ///
    /// Each part and each session is handled by itself, so an error keeps no other from being
    /// handled, and what succeeded is counted.
    pub async fn sweep(&self) -> Partial<SweepCounts> {
        let mut failure = FirstError::default();
        let mut counts = SweepCounts::default();
        let expired = failure.value(find_expired_leases(&self.pools).await);
        if expired.failing {
            let dead = give_up_failing_messages(&self.pools, &mut failure).await;
            counts.dead = failure.value(dead);
        }
        if expired.unpaused {
            counts.orphaned += failure.value(free_leases(&self.pools, FREE_UNPAUSED).await);
        }
        if expired.paused {
            counts.orphaned += failure.value(free_leases(&self.pools, FREE_PAUSED).await);
        }
        let overdue = end_overdue_waits(&self.pools, &mut failure).await;
        counts.overdue = failure.value(overdue);
        let number = self.sweeps.fetch_add(1, Ordering::Relaxed);
        let promoted = promote(&self.pools, number, &mut failure).await;
        counts.promoted = failure.value(promoted);
        failure.with(counts)
    }
}

/// Which kinds of expired leases there are.
#[derive(Default)]
struct ExpiredLeases {
    /// Of sessions whose oldest message has used up its attempts.
    failing: bool,
    unpaused: bool,
    paused: bool,
}

/// Looks for expired leases in one scan of the running sessions.
async fn find_expired_leases(pools: &Pools) -> Result<ExpiredLeases, Error> {
    const SQL: &str = "
        select coalesce(bool_or(attempts >= $1), false),
               coalesce(bool_or(attempts < $1 and paused is null), false),
               coalesce(bool_or(attempts < $1 and paused is not null), false)
        from session.session_lease where state = 'RUNNING' and lease_until < clock_timestamp()";
    let mut once = pools.system_connection().await?;
    let (failing, unpaused, paused) =
        holdfast_pg::query_as(SQL).bind(MAX_ATTEMPTS).fetch_one(once.conn()).await?;
    once.done();
    Ok(ExpiredLeases { failing, unpaused, paused })
}

/// Frees expired leases of sessions that are not paused.
///
/// The epoch grows here, so that the old owner is fenced before there is a new one. The delay is
/// random, so that sessions lost together do not return together.
const FREE_UNPAUSED: &str = "
    with lost as (
        select tenant_id, session_id from session.session_lease
        where state = 'RUNNING' and lease_until < clock_timestamp() and paused is null
          and attempts < $1
        limit 200 for update skip locked)
    update session.session_lease l
    set state = 'READY', epoch = l.epoch + 1, owner = null, lease_until = null,
        ready_at = clock_timestamp() + case
            when l.attempts <= 1 then interval '0'
            else least(interval '30 seconds', power(2, l.attempts) * interval '100 milliseconds')
                 * (0.55 + 0.45 * random())
            end
    from lost where l.tenant_id = lost.tenant_id and l.session_id = lost.session_id";

/// Frees expired leases of paused sessions.
///
/// A paused session gives up its slot in flight; resuming requests one again. Two sweeps lock the
/// counters in the same order, so they cannot deadlock.
const FREE_PAUSED: &str = "
    with lost as materialized (
        select tenant_id, session_id from session.session_lease
        where state = 'RUNNING' and lease_until < clock_timestamp() and paused is not null
          and attempts < $1
        limit 200 for update skip locked),
    left_flight as materialized (
        select tenant_id, session.shard(session_id) as shard, count(*)::integer as count
        from lost group by 1, 2),
    counters as materialized (
        select f.tenant_id, f.shard, c.count
        from session.tenant_flight f join left_flight c using (tenant_id, shard)
        order by f.tenant_id, f.shard for update of f),
    counted as (
        update session.tenant_flight f set in_flight = f.in_flight - c.count
        from counters c where f.tenant_id = c.tenant_id and f.shard = c.shard)
    update session.session_lease l
    set state = 'READY', epoch = l.epoch + 1, owner = null, lease_until = null,
        ready_at = clock_timestamp(), fair_key = null
    from lost where l.tenant_id = lost.tenant_id and l.session_id = lost.session_id";

/// Makes sessions with expired leases ready again: at once the first time, then with backoff.
async fn free_leases(pools: &Pools, sql: &'static str) -> Result<u64, Error> {
    let mut once = pools.system_connection().await?;
    let freed = holdfast_pg::query(sql).bind(MAX_ATTEMPTS).execute(once.conn()).await?;
    once.done();
    Ok(freed.rows_affected())
}

/// Gives up the oldest unfinished message of each session that lost too many runners.
async fn give_up_failing_messages(pools: &Pools, failure: &mut FirstError) -> Result<u64, Error> {
    // In random order: sessions that fail must not keep the others out for ever.
    const SQL: &str = "
        select tenant_id, session_id from session.session_lease
        where state = 'RUNNING' and lease_until < clock_timestamp() and attempts >= $1
        order by random() limit 100";

    let mut once = pools.system_connection().await?;
    let found: Vec<(Uuid, Uuid)> =
        holdfast_pg::query_as(SQL).bind(MAX_ATTEMPTS).fetch_all(once.conn()).await?;
    once.done();
    let mut dead = 0;
    for (tenant, session) in found {
        let session = SessionId::from(session);
        let given_up = give_up_oldest_message(pools, tenant_of(tenant), session).await;
        dead += failure.value(given_up.map(u64::from).map_err(|error| error.in_session(session)));
    }
    Ok(dead)
}

async fn give_up_oldest_message(
    pools: &Pools,
    tenant: TenantId,
    session: SessionId,
) -> Result<bool, Error> {
    let mut tx = pools.tenant(tenant).await?;
    // Another sweep may have handled the session since: only the row under its lock counts. A locked
    // row is left to the next sweep, so that it delays no other session.
    let Some(lease) = lock_if_free(&mut tx, session).await? else { return Ok(false) };
    if lease.state != SessionState::Running
        || lease.attempts < MAX_ATTEMPTS
        || !is_lease_expired(&mut tx, session).await?
    {
        tx.rollback().await?;
        return Ok(false);
    }
    let Some(oldest) = oldest_message(&mut tx, session).await? else {
        return end_expired_claim(tx, lease, 0, 0, 0).await;
    };

    let run = RunId::from(holdfast_types::MessageId::from(oldest.message));
    let reason = format!("{MAX_ATTEMPTS} attempts failed without an answer");
    let mut entries = unknown_results(&mut tx, session).await?;
    entries.push(Entry::noted(Note::Failed, reason.as_str()));
    let deliveries: Vec<NewDelivery> = oldest
        .target
        .into_iter()
        .map(|target| NewDelivery {
            target,
            text: DEAD_LETTER_REPLY.to_owned(),
            act: None,
            id: holdfast_types::DeliveryId::generate(),
            delay: std::time::Duration::ZERO,
        })
        .collect();
    append_entries(&mut tx, &lease, run, &entries).await?;
    insert_deliveries(&mut tx, session, run, lease.next_out, &deliveries).await?;
    let finished = mark_dead(&mut tx, &lease, oldest.seq, run, &reason).await?;
    metrics::counter!("holdfast_session_dead_letters_total").increment(1);
    let count = |items: usize| i64::try_from(items).unwrap_or(i64::MAX);
    end_expired_claim(tx, lease, finished, count(entries.len()), count(deliveries.len())).await
}

/// Ends an expired claim: the session continues with the remaining messages, under a new epoch.
async fn end_expired_claim(
    mut tx: TenantTx,
    lease: Lease,
    finished: i64,
    entries: i64,
    replies: i64,
) -> Result<bool, Error> {
    const RESET_ATTEMPTS: &str = "
        update session.session_lease set epoch = epoch + 1, attempts = 0, retries = 0
        where tenant_id = $1 and session_id = $2";

    // A wait that a running session still has is over: its deadline began the turn.
    let wait = &Wait::Anything;
    end_claim(&mut tx, &lease, LeaseChanges { finished, finishes: &[], entries, replies, wait })
        .await?;
    let tenant = tx.tenant();
    holdfast_pg::query(RESET_ATTEMPTS)
        .bind(tenant.as_uuid())
        .bind(lease.session.as_uuid())
        .execute(tx.conn())
        .await?;
    tx.commit().await?;
    Ok(finished > 0)
}

/// Makes sessions ready whose wait is past its deadline.
async fn end_overdue_waits(pools: &Pools, failure: &mut FirstError) -> Result<u64, Error> {
    const SQL: &str = "
        select tenant_id, session_id from session.session_lease
        where wait_until < clock_timestamp() order by random() limit 100";

    let mut once = pools.system_connection().await?;
    let found: Vec<(Uuid, Uuid)> = holdfast_pg::query_as(SQL).fetch_all(once.conn()).await?;
    once.done();
    let mut ended = 0;
    for (tenant, session) in found {
        let session = SessionId::from(session);
        let result = end_overdue_wait(pools, tenant_of(tenant), session).await;
        ended += failure.value(result.map(u64::from).map_err(|error| error.in_session(session)));
    }
    Ok(ended)
}

async fn end_overdue_wait(
    pools: &Pools,
    tenant: TenantId,
    session: SessionId,
) -> Result<bool, Error> {
    let mut tx = pools.tenant(tenant).await?;
    let Some(lease) = lock_if_free(&mut tx, session).await? else { return Ok(false) };
    // The session may wait for something else by now.
    if !matches!(lease.state, SessionState::WaitForMsg | SessionState::WaitForEvent)
        || !is_wait_over(&mut tx, session).await?
    {
        tx.rollback().await?;
        return Ok(false);
    }
    make_ready(&mut tx, &lease, KeepWait::Yes).await?;
    tx.commit().await?;
    Ok(true)
}

/// Admits queued sessions of the tenant `$1`; the parameter is the order of its queue.
macro_rules! admit {
    ($order:literal) => {
        concat!(
            "with place as materialized (
                 select p.fair_key, p.step,
                        coalesce((select open_cap from session.tenant_queue where tenant_id = $1), 64)
                        - (select coalesce(sum(in_flight), 0) from session.tenant_flight
                           where tenant_id = $1) as free,
                        coalesce((select open_cap from session.tenant_queue where tenant_id = $1), 64)
                        / 4 as reserved
                 from session.place($1, $2) p),
             next as (
                 select session_id, number as place
                 from (select session_id, priority, row_number() over (order by ",
            $order,
            ") as number
                       from (select session_id, priority, ready_at from session.session_lease
                             where tenant_id = $1 and state = 'READY' and fair_key is null
                               and paused is null
                             order by ",
            $order,
            " limit (select greatest(free, 0) from place)
                             for update skip locked) queued) numbered
                 where priority = 0 or number <= (select free - reserved from place)),
             moved as (
                insert into session.tenant_flight as f (tenant_id, shard, in_flight, vfinish)
                select $1, 0, c.count, place.fair_key + c.count * place.step
                from place, (select count(*)::integer as count from next) c where c.count > 0
                on conflict (tenant_id, shard) do update
                    set in_flight = f.in_flight + excluded.in_flight,
                        vfinish = greatest(f.vfinish, excluded.vfinish))
            update session.session_lease l
            set fair_key = place.fair_key + (next.place - 1) * place.step,
                ready_at = case when l.holder is null then l.ready_at else clock_timestamp() end
            from place, next
            where l.tenant_id = $1 and l.session_id = next.session_id"
        )
    };
}

/// Admits queued sessions of tenants that are below their cap, one statement per tenant: by
/// priority, and in one sweep of [`CHOICES_PER_FAIR_ONE`] those that wait longest.
async fn promote(pools: &Pools, sweep: u64, failure: &mut FirstError) -> Result<u64, Error> {
    // Reads one row for each tenant that has queued sessions.
    const TENANTS: &str = "
        with recursive queued as (
            (select tenant_id from session.session_lease
             where state = 'READY' and fair_key is null and paused is null
             order by tenant_id limit 1)
            union all
            select (select l.tenant_id from session.session_lease l
                    where l.state = 'READY' and l.fair_key is null and l.paused is null
                      and l.tenant_id > q.tenant_id
                    order by l.tenant_id limit 1)
            from queued q where q.tenant_id is not null)
        select tenant_id from queued
        where tenant_id is not null and (session.place(tenant_id, $1)).room
        limit 100";
    const BY_PRIORITY: &str = admit!("priority, ready_at");
    const FAIR: &str = admit!("ready_at");

    let mut once = pools.system_connection().await?;
    let tenants: Vec<Uuid> =
        holdfast_pg::query_scalar(TENANTS).bind(FAIR_KEY_STEP).fetch_all(once.conn()).await?;
    let sql =
        if sweep % CHOICES_PER_FAIR_ONE == CHOICES_PER_FAIR_ONE - 1 { FAIR } else { BY_PRIORITY };
    let mut promoted = 0;
    for tenant in tenants {
        let done =
            holdfast_pg::query(sql).bind(tenant).bind(FAIR_KEY_STEP).execute(once.conn()).await;
        promoted += failure.value(done.map(|done| done.rows_affected()).map_err(Error::from));
    }
    once.done();
    Ok(promoted)
}

/// Appends entries to the journal, under a locked lease row.
pub(crate) async fn append_entries(
    tx: &mut TenantTx,
    lease: &Lease,
    run: RunId,
    entries: &[Entry],
) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
        select $1, $2, $3 + e.n - 1, $4, $5, e.kind, e.body
        from unnest($6::text[], $7::jsonb[]) with ordinality as e (kind, body, n)";

    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(lease.session.as_uuid())
        .bind(lease.next_entry)
        .bind(lease.epoch)
        .bind(run.as_uuid())
        .bind(entries.iter().map(Entry::kind).collect::<Vec<_>>())
        .bind(entries.iter().map(Json).collect::<Vec<_>>())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Whether a session that becomes ready keeps its wait, so that the turn knows what it waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepWait {
    /// The deadline passed: the turn must know which wait ended.
    Yes,
    /// A message ended the wait.
    No,
}

/// Makes an idle session ready; a paused one gets no slot in flight. Returns whether it got one.
pub(crate) async fn make_ready(
    tx: &mut TenantTx,
    lease: &Lease,
    keep: KeepWait,
) -> Result<bool, Error> {
    const SQL: &str = "
        with place as materialized (
            select fair_key, step
            from session.place($1, $3, (
                select priority from session.session_lease
                where tenant_id = $1 and session_id = $2))
            where room and not $4),
        admitted as (
            insert into session.tenant_flight as f (tenant_id, shard, in_flight, vfinish)
            select $1, session.shard($2), 1, fair_key + step from place
            on conflict (tenant_id, shard) do update
                set in_flight = f.in_flight + 1, vfinish = greatest(f.vfinish, excluded.vfinish))
        update session.session_lease
        set state = 'READY', wait = case when $5 then wait end, wait_until = null,
            ready_at = clock_timestamp(), fair_key = (select fair_key from place)
        where tenant_id = $1 and session_id = $2
        returning fair_key is not null";

    let tenant = tx.tenant();
    Ok(holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(lease.session.as_uuid())
        .bind(FAIR_KEY_STEP)
        .bind(lease.paused)
        .bind(keep == KeepWait::Yes)
        .fetch_one(tx.conn())
        .await?)
}

struct OldestMessage {
    seq: i64,
    message: Uuid,
    target: Option<Target>,
}

async fn is_lease_expired(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<bool> {
    const SQL: &str = "
        select coalesce(lease_until < clock_timestamp(), true) from session.session_lease
        where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_one(tx.conn())
        .await
}

async fn is_wait_over(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<bool> {
    const SQL: &str = "
        select coalesce(wait_until < clock_timestamp(), false) from session.session_lease
        where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_one(tx.conn())
        .await
}

async fn oldest_message(
    tx: &mut TenantTx,
    session: SessionId,
) -> sqlx::Result<Option<OldestMessage>> {
    // The oldest message that is not silent comes first: it most likely started the turn that
    // failed.
    const SQL: &str = "
        select seq, message_id, target from session.inbox
        where tenant_id = $1 and session_id = $2 and state in ('new', 'seen')
        order by coalesce((body->>'silent')::boolean, false), seq limit 1";
    let tenant = tx.tenant();
    let row: Option<(i64, Uuid, Option<Json<Target>>)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(|(seq, message, target)| OldestMessage {
        seq,
        message,
        target: target.map(|t| t.0),
    }))
}

/// Returns results with an unknown outcome for the calls of the last thought that have none.
async fn unknown_results(tx: &mut TenantTx, session: SessionId) -> Result<Vec<Entry>, Error> {
    const SQL: &str = "
        select body from session.entries
        where tenant_id = $1 and session_id = $2 and seq >= (
            select max(seq) from session.entries
            where tenant_id = $1 and session_id = $2 and kind = 'thought')
        order by seq";
    let tenant = tx.tenant();
    let tail: Vec<Json<serde_json::Value>> = holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_all(tx.conn())
        .await?;

    // An entry that cannot be read must not keep its session from ever being freed.
    let tail: Vec<Entry> =
        tail.into_iter().filter_map(|entry| serde_json::from_value(entry.0).ok()).collect();
    let Some(Entry::Thought { calls, .. }) = tail.first() else {
        return Ok(Vec::new());
    };
    let returned = |id: &str| {
        tail.iter().any(|entry| matches!(entry, Entry::Returned { call, .. } if call == id))
    };
    Ok(calls
        .iter()
        .filter(|call| !returned(&call.id))
        .map(|call| Entry::returned(&call.id, UNKNOWN_OUTCOME_RESULT, true))
        .collect())
}

/// Marks a message as dead. Other messages that its turn had seen become new again.
async fn mark_dead(
    tx: &mut TenantTx,
    lease: &Lease,
    seq: i64,
    run: RunId,
    reason: &str,
) -> Result<i64, Error> {
    const SQL: &str = "
        with dead as (
            update session.inbox
            set state = 'dead', outcome = 'dead', reason = $5, run_id = $4, finished_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and seq = $3 and state in ('new', 'seen')
            returning 1),
        again as (
            update session.inbox set state = 'new', run_id = null
            where tenant_id = $1 and session_id = $2 and state = 'seen' and seq <> $3),
        run as (
            insert into session.runs
                (tenant_id, run_id, session_id, agent_id, epoch, outcome, reason, started_at)
            select $1, $4, $2, agent_id, $6, 'dead', $5, clock_timestamp()
            from session.sessions where tenant_id = $1 and session_id = $2
            on conflict (tenant_id, run_id) do nothing),
        event as (
            insert into session.events (tenant_id, family, session_id, name, payload)
            values ($1, 'messages', $2, 'MessageDied',
                    jsonb_build_object('run', $4::uuid, 'seq', $3::bigint, 'reason', $5::text)))
        select count(*) from dead";
    let tenant = tx.tenant();
    Ok(holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(lease.session.as_uuid())
        .bind(seq)
        .bind(run.as_uuid())
        .bind(reason)
        .bind(lease.epoch)
        .fetch_one(tx.conn())
        .await?)
}
