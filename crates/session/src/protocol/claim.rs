//! Claim, renewal and release of sessions.

use std::{
    collections::BTreeMap,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use holdfast_pg::{Connection, Pools, TenantTx};
use holdfast_types::{RunId, RunnerId, SessionId, Wait};
use tracing::warn;
use uuid::Uuid;

use super::{
    append::insert_deliveries,
    complete::{LeaseChanges, end_claim},
    sweep::{MAX_ATTEMPTS, SUSPECT_ATTEMPTS},
};
use crate::{
    Claim, CompletionResult, Error, FreeSlots, NewDelivery, RenewalResult, RenewedLease, Sessions,
    TurnClass,
    queues::runner_pools::is_of_pool,
    sessions::{CHOICES_PER_FAIR_ONE, Lease, lock_claimed},
};

/// Maximum time for leases that other transactions have locked, per renewal.
const LOCKED_LEASES_TIMEOUT: Duration = Duration::from_secs(2);

/// Turns that may end with a transient failure, without progress in between, before their attempts
/// count: about ten minutes.
const UNCHARGED_RETRIES: i16 = 25;

/// Sessions that are ready and were not claimed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextReady {
    /// Time until the earliest session that is not yet due; `None` if there is none.
    pub after: Option<Duration>,
    /// A session of each runner that holds the state of sessions that are due.
    pub held: BTreeMap<RunnerId, SessionId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReleaseReason {
    StepBoundary,
    TransientFailure,
    /// The agent rests for this time.
    Rest(Duration),
}

/// Renews the leases of a runner's claims, `$1` to `$5`.
macro_rules! renew {
    ($locked:literal) => {
        concat!(
            "with held as (
                select l.tenant_id, l.session_id
                from unnest($2::uuid[], $3::uuid[], $4::bigint[]) as h (tenant_id, session_id, epoch)
                join session.session_lease l using (tenant_id, session_id)
                where l.epoch = h.epoch and l.owner = $1 and l.state = 'RUNNING'
                order by l.session_id
                for update of l ",
            $locked,
            "),
            rooms as materialized (
                select w.tenant_id, w.workspace from session.workspace_lease w
                join held h using (tenant_id, session_id)
                order by w.tenant_id, w.workspace
                for update of w ",
            $locked,
            "),
            kept_rooms as (
                update session.workspace_lease w
                set lease_until = clock_timestamp() + interval '120 seconds'
                from rooms r where w.tenant_id = r.tenant_id and w.workspace = r.workspace)
            update session.session_lease l
            set lease_until = clock_timestamp() + $5 * interval '1 second'
            from held h
            where l.tenant_id = h.tenant_id and l.session_id = h.session_id
              -- A session whose workspace is locked is tried again by itself.
              and not exists (
                  select from session.workspace_lease w
                  where w.tenant_id = l.tenant_id and w.session_id = l.session_id
                    and not exists (select from rooms r
                                    where r.tenant_id = w.tenant_id and r.workspace = w.workspace))
            returning l.tenant_id, l.session_id, l.epoch, l.paused is not null, l.cancel_upto, l.next_in"
        )
    };
}

const RENEW: &str = renew!("");
const RENEW_UNLOCKED: &str = renew!("skip locked");

/// The claim; the parameter is the order of the ready sessions.
///
/// Each class has candidates of its own, so that sessions beyond the share of their class leave no
/// slot idle that another class may take. For the same reason tenants that may take no slot have no
/// candidates. A session that a process of a version without priorities has created gets its class
/// here, from its second claim on.
macro_rules! claim {
    ($order:literal) => {
        concat!(
            "with classes (priority, free, first) as (
                values (0::smallint, $6::bigint, $7::bigint),
                       (1::smallint, $8::bigint, $9::bigint),
                       (2::smallint, $10::bigint, $11::bigint)),
            tenants as (
                select * from unnest($14::uuid[], $15::bigint[]) as u (tenant_id, running)),
            -- Whether at most one tenant of the pool has ever had a session: then no slot is reserved.
            alone as materialized (
                select count(*) < 2 as is_alone from (
                    (select f.tenant_id from session.tenant_flight f
                     where $13::text is null
                       and f.tenant_id <> all (array(select q.tenant_id from session.tenant_queue q
                                                     where q.pool is not null))
                     group by f.tenant_id limit 2)
                    union all
                    (select q.tenant_id from session.tenant_queue q
                     where q.pool = $13::text and exists (
                         select from session.tenant_flight f where f.tenant_id = q.tenant_id)
                     limit 2)) spoken),
            ready as materialized (
                select r.*, c.first, row_number() over (
                           partition by r.priority order by r.fair_key) as place
                from classes c cross join lateral (
                    select l.tenant_id, l.session_id, l.workspace, l.fair_key, l.attempts,
                           l.priority
                    from session.session_lease l
                    where l.state = 'READY' and l.fair_key is not null and l.paused is null
                      and l.priority = c.priority
                      and l.ready_at <= clock_timestamp()
                      and ",
            is_of_pool!(13),
            "
                      and (l.workspace is null or not exists (
                          select from session.workspace_lease w
                          where w.tenant_id = l.tenant_id and w.workspace = l.workspace
                            and w.session_id <> l.session_id
                            and w.lease_until > clock_timestamp()))
                      -- Only reserved slots are free, and the tenant has its share.
                      and ($2 > $16::bigint
                           or not exists (
                               select from tenants t
                               where t.tenant_id = l.tenant_id and t.running >= $17::bigint)
                           or (select is_alone from alone))
                      -- State that another runner holds: it has the first go while it lives.
                      and (l.holder is null or l.holder = $1
                           or l.ready_at <= clock_timestamp() - $12 * interval '1 second'
                           or not exists (
                               select from session.runners h
                               where h.runner_id = l.holder and h.live_until > clock_timestamp()
                                 and h.pool is not distinct from $13::text))
                      -- Asked once, and only if there is a suspect.
                      and (l.attempts < $4 or not exists (
                          select from session.session_lease h
                          where h.state = 'RUNNING' and h.owner = $1 and h.attempts > $4))
                    order by l.fair_key
                    limit least(c.free, $2)
                    for update of l skip locked) r),
            ranked as materialized (
                select r.*, row_number() over (order by ",
            $order,
            ") as number, row_number() over (partition by priority > 0 order by ",
            $order,
            ") as number_in_part
                from ready r
                where attempts < $4 or session_id = (
                    select session_id from ready where attempts >= $4
                    order by ",
            $order,
            " limit 1)),
            within_share as materialized (
                select r.*, row_number() over (order by number) as slot
                from ranked r where priority = 0 or number_in_part <= $5),
            placed as (
                select r.*, row_number() over (partition by tenant_id order by slot) as turn
                from within_share r where slot <= $2),
            chosen as materialized (
                select r.* from placed r left join tenants t on t.tenant_id = r.tenant_id
                where r.slot <= $2 - $16 or r.turn + coalesce(t.running, 0) <= $17
                      or (select is_alone from alone)),
            rooms as (
                insert into session.workspace_lease as w (tenant_id, workspace, session_id, lease_until)
                select distinct on (tenant_id, workspace)
                       tenant_id, workspace, session_id, clock_timestamp() + interval '120 seconds'
                from chosen where workspace is not null
                order by tenant_id, workspace, session_id
                on conflict (tenant_id, workspace) do update
                    set session_id = excluded.session_id, lease_until = excluded.lease_until
                    where w.session_id is null or w.lease_until <= clock_timestamp()
                          or w.session_id = excluded.session_id
                returning w.tenant_id, w.session_id),
            taken as (
                update session.session_lease l
                set state = 'RUNNING', epoch = l.epoch + 1, owner = $1, attempts = l.attempts + 1,
                    lease_until = clock_timestamp() + $3 * interval '1 second',
                    priority = case when l.priority > 0 then l.priority
                                    when k.kind = 'subagent' then 1
                                    when k.kind in ('cron', 'heartbeat') then 2 else 0 end
                from chosen r left join session.sessions k using (tenant_id, session_id)
                where l.tenant_id = r.tenant_id and l.session_id = r.session_id
                  and (r.workspace is null or exists (
                      select from rooms where rooms.tenant_id = r.tenant_id
                                          and rooms.session_id = r.session_id))
                returning l.tenant_id, l.session_id, l.epoch, l.attempts, l.fair_key, l.priority)
            select tenant_id, session_id, epoch, attempts, priority,
                   setval('session.vclock', greatest(fair_key, (select last_value from session.vclock)))
            from taken"
        )
    };
}

impl Sessions {
    /// Claims up to `slots` ready sessions: by class, and in the fair order within one. A class that
    /// has less than its reserved share comes first. Every fourth claim ignores the classes, so that
    /// no session starves.
    ///
    /// The attempt is counted here, before the run, so that a message that kills its runner is
    /// detected. One statement, which is its own transaction; it waits for no lock and writes
    /// nothing if no session is ready.
    ///
    /// A session whose state another runner holds is left to that runner while it lives, for at most
    /// [`with_holder_wait`](Sessions::with_holder_wait).
    ///
    /// Claims at most one suspect (see [`SUSPECT_ATTEMPTS`]), and none while this runner runs one that has
    /// made no progress yet. Sessions behind a suspect in the order are claimed all the same.
    ///
    /// Of the sessions with one local workspace only one is claimed. The workspace's lease of 120 s is
    /// longer than the session's, so that a session whose runner died goes on before the others.
    ///
    /// Claims sessions of the tenants of its pool only (see [`in_pool`](Sessions::in_pool)).
    ///
    /// A tenant that has its share of the runner's turns leaves the reserved slots to others (see
    /// [`TenantSlots`](crate::TenantSlots)).
    ///
    /// # Errors
    ///
    /// After an error sessions may have been claimed; their leases expire.
    pub async fn claim(
        &self,
        runner: RunnerId,
        slots: impl Into<FreeSlots>,
    ) -> Result<Vec<Claim>, Error> {
        const BY_PRIORITY: &str = claim!("place > first, priority, fair_key");
        const FAIR: &str = claim!("fair_key");

        let number = self.claims.fetch_add(1, Ordering::Relaxed);
        let is_fair = number % CHOICES_PER_FAIR_ONE == CHOICES_PER_FAIR_ONE - 1;
        let mut once = self.pools.system_connection().await?;
        let slots = slots.into();
        let (tenants, running): (Vec<Uuid>, Vec<i64>) = slots
            .tenants
            .running
            .iter()
            .map(|(id, turns)| (id.as_uuid(), i64::from(*turns)))
            .unzip();
        let rows: Vec<(Uuid, Uuid, i64, i32, i16, i64)> =
            holdfast_pg::query_as(if is_fair { FAIR } else { BY_PRIORITY })
                .bind(runner.as_uuid())
                .bind(i64::from(slots.all))
                .bind(self.lease.as_secs_f64())
                .bind(SUSPECT_ATTEMPTS)
                .bind(i64::from(slots.background))
                .bind(i64::from(slots.interactive.free))
                .bind(i64::from(slots.interactive.first))
                .bind(i64::from(slots.subagents.free))
                .bind(i64::from(slots.subagents.first))
                .bind(i64::from(slots.jobs.free))
                .bind(i64::from(slots.jobs.first))
                .bind(self.holder_wait.as_secs_f64())
                .bind(self.pool_name())
                .bind(tenants)
                .bind(running)
                .bind(i64::from(slots.tenants.reserved))
                .bind(i64::from(slots.tenants.share))
                .fetch_all(once.conn())
                .await?;
        once.done();
        Ok(rows
            .into_iter()
            .map(|(tenant, session, epoch, attempts, priority, _)| Claim {
                tenant: tenant.into(),
                session: session.into(),
                runner,
                epoch,
                attempts,
                class: TurnClass::from_priority(priority),
            })
            .collect())
    }

    /// Extends the leases of a runner's claims, in one statement.
    ///
    /// A lease that another transaction has locked delays no other: it is tried again by itself.
    /// After a failure the leases that were not tried yet are among the locked ones.
    ///
    /// # Errors
    ///
    /// If no lease was renewed. After an error the leases may keep their old expiry.
    pub async fn renew(&self, runner: RunnerId, held: &[Claim]) -> Result<RenewalResult, Error> {
        if held.is_empty() {
            return Ok(RenewalResult::default());
        }
        let mut once = self.pools.renewal_connection().await?;
        let renewed = renew_leases(once.conn(), RENEW_UNLOCKED, self.lease, (runner, held)).await?;
        let mut result = RenewalResult { renewed, locked: Vec::new() };
        let until = Instant::now() + LOCKED_LEASES_TIMEOUT;
        let mut has_failed = false;
        for claim in held {
            if result.renewed.iter().any(|renewed| renewed.session == claim.session) {
                continue;
            }
            if has_failed || Instant::now() >= until {
                result.locked.push(claim.session);
                continue;
            }
            let one = std::slice::from_ref(claim);
            match renew_leases(once.conn(), RENEW, self.lease, (runner, one)).await {
                Ok(renewed) => result.renewed.extend(renewed),
                Err(error) if holdfast_pg::is_lock_timeout(&error) => {
                    result.locked.push(claim.session);
                }
                Err(error) if result.renewed.is_empty() => return Err(error.into()),
                Err(error) => {
                    warn!(%error, "some leases could not be renewed");
                    has_failed = true;
                    result.locked.push(claim.session);
                }
            }
        }
        once.done();
        Ok(result)
    }

    /// Returns a session at a step boundary, in the middle of a turn. No attempt is charged, and
    /// another runner can continue at once.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn release(&self, claim: &Claim) -> Result<(), Error> {
        end_by_release(&self.pools, claim, ReleaseReason::StepBoundary, None).await
    }

    /// Returns a session whose agent rests. No attempt is charged; it is ready again after `rest`, or
    /// earlier if a message comes. The notice is sent once for its id.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn release_to_rest(
        &self,
        claim: &Claim,
        rest: Duration,
        notice: Option<(RunId, NewDelivery)>,
    ) -> Result<(), Error> {
        end_by_release(&self.pools, claim, ReleaseReason::Rest(rest), notice).await
    }

    /// Returns a session whose turn ended with a transient failure. The next turn waits half a
    /// second, and twice as long after each failure without progress, up to half a minute. After
    /// 25 of them the attempt counts, so that a message that always fails becomes a dead
    /// letter.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn release_after_failure(&self, claim: &Claim) -> Result<(), Error> {
        end_by_release(&self.pools, claim, ReleaseReason::TransientFailure, None).await
    }

    /// Makes a claimed session idle that has nothing to do; no run is recorded.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn yield_session(
        &self,
        claim: &Claim,
        wait: Wait,
    ) -> Result<CompletionResult, Error> {
        let mut tx = self.pools.tenant(claim.tenant).await?;
        let lease = lock_claimed(&mut tx, claim).await?;
        let completed = end_claim(
            &mut tx,
            &lease,
            LeaseChanges { finished: 0, finishes: &[], entries: 0, replies: 0, wait: &wait },
        )
        .await?;
        tx.commit().await?;
        Ok(completed)
    }

    /// Returns what an unsuccessful claim left: the earliest session that is ready but not yet due,
    /// and sessions that wait for the runner that holds their state.
    pub async fn next_ready(&self) -> Result<NextReady, Error> {
        const SQL: &str = concat!(
            "select (extract(epoch from min(ready_at) filter (where not is_held)
                            - clock_timestamp()) * 1000)::bigint,
                   coalesce(array_agg(session_id) filter (where is_held), '{}'),
                   coalesce(array_agg(holder) filter (where is_held), '{}')
            from (select session_id, ready_at, holder,
                         holder is not null and ready_at <= clock_timestamp() as is_held
                  from session.session_lease l
                  where state = 'READY' and fair_key is not null and paused is null
                    and ",
            is_of_pool!(1),
            ") ready"
        );
        let mut once = self.pools.system_connection().await?;
        let (millis, sessions, holders): (Option<i64>, Vec<Uuid>, Vec<Uuid>) =
            holdfast_pg::query_as(SQL).bind(self.pool_name()).fetch_one(once.conn()).await?;
        once.done();
        let after = millis.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
        let held = sessions.into_iter().map(SessionId::from);
        Ok(NextReady { after, held: holders.into_iter().map(RunnerId::from).zip(held).collect() })
    }
}

async fn renew_leases(
    conn: &mut Connection,
    sql: &'static str,
    lease: Duration,
    (runner, held): (RunnerId, &[Claim]),
) -> sqlx::Result<Vec<RenewedLease>> {
    let rows: Vec<(Uuid, Uuid, i64, bool, i64, i64)> = holdfast_pg::query_as(sql)
        .bind(runner.as_uuid())
        .bind(held.iter().map(|claim| claim.tenant.as_uuid()).collect::<Vec<_>>())
        .bind(held.iter().map(|claim| claim.session.as_uuid()).collect::<Vec<_>>())
        .bind(held.iter().map(|claim| claim.epoch).collect::<Vec<_>>())
        .bind(lease.as_secs_f64())
        .fetch_all(conn)
        .await?;
    Ok(rows
        .into_iter()
        .map(|(tenant, session, epoch, pause, cancel_upto, next_in)| RenewedLease {
            tenant: tenant.into(),
            session: session.into(),
            epoch,
            pause,
            cancel_upto,
            next_in,
        })
        .collect())
}

async fn end_by_release(
    pools: &Pools,
    claim: &Claim,
    reason: ReleaseReason,
    notice: Option<(RunId, NewDelivery)>,
) -> Result<(), Error> {
    // After the last attempt the lease expires at once, and the next sweep gives the message up.
    const EXPIRE_LEASE: &str = "
        update session.session_lease set lease_until = clock_timestamp()
        where tenant_id = $1 and session_id = $2 and retries >= $3 and attempts >= $4";
    const SQL: &str = "
        with left_flight as (
            update session.tenant_flight set in_flight = in_flight - 1
            where $3 and tenant_id = $1 and shard = session.shard($2)),
        freed as (
            update session.workspace_lease
                set session_id = case when drains then session_id end,
                    lease_until = case when drains then 'infinity'::timestamptz end
            where tenant_id = $1 and workspace = $6 and session_id = $2)
        update session.session_lease
        set state = 'READY', epoch = epoch + 1, owner = null, lease_until = null,
            fair_key = case when not $3 then fair_key end,
            attempts = case when $4 and retries >= $5 then attempts
                            else greatest(attempts - 1, 0) end,
            retries = case when $4 then least(retries + 1, 1000) else retries end,
            ready_at = clock_timestamp()
                + case when $4 then least(30, 0.5 * 2 ^ least(retries, 10)) else $7::float8 end
                * interval '1 second',
            next_out = next_out + $8
        where tenant_id = $1 and session_id = $2";

    let mut tx = pools.tenant(claim.tenant).await?;
    let lease = lock_claimed(&mut tx, claim).await?;
    if reason == ReleaseReason::TransientFailure {
        let expired = holdfast_pg::query(EXPIRE_LEASE)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(UNCHARGED_RETRIES)
            .bind(MAX_ATTEMPTS)
            .execute(tx.conn())
            .await?;
        if expired.rows_affected() > 0 {
            return Ok(tx.commit().await?);
        }
    }
    let sent = match notice {
        Some(notice) => send_notice(&mut tx, &lease, notice).await?,
        None => 0,
    };
    holdfast_pg::query(SQL)
        .bind(claim.tenant.as_uuid())
        .bind(claim.session.as_uuid())
        .bind(lease.paused)
        .bind(reason == ReleaseReason::TransientFailure)
        .bind(UNCHARGED_RETRIES)
        .bind(&lease.workspace)
        .bind(match reason {
            ReleaseReason::Rest(rest) => rest.as_secs_f64(),
            ReleaseReason::StepBoundary | ReleaseReason::TransientFailure => 0.0,
        })
        .bind(sent)
        .execute(tx.conn())
        .await?;
    Ok(tx.commit().await?)
}

/// Sends a message that belongs to no turn, once. Returns the number of deliveries.
async fn send_notice(
    tx: &mut TenantTx,
    lease: &Lease,
    (run, delivery): (RunId, NewDelivery),
) -> Result<i64, Error> {
    const IS_SENT: &str = "
        select exists (select from session.deliveries where tenant_id = $1 and delivery_id = $2)";

    let tenant = tx.tenant();
    let is_sent: bool = holdfast_pg::query_scalar(IS_SENT)
        .bind(tenant.as_uuid())
        .bind(delivery.id.as_uuid())
        .fetch_one(tx.conn())
        .await?;
    if is_sent {
        return Ok(0);
    }
    insert_deliveries(tx, lease.session, run, lease.next_out, &[delivery]).await?;
    Ok(1)
}
