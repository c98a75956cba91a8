//! Acceptance of messages for many sessions in few round trips, for example when a thousand jobs
//! are due at once.
//!
//! One transaction handles up to [`MOST`] sessions with one message each, and waits for no lock on
//! a session. Left out, and then accepted one by one as by [`ingest`](Sessions::ingest), are
//! messages whose session is locked or full, duplicates, and messages that restart a debounce
//! pause. The effect of a message on its session is decided by the same function in both cases.

use std::collections::{HashMap, HashSet};

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{MessageId, SessionId, SessionSettings, Source, TenantId};
use sqlx::{Row as _, types::Json};
use uuid::Uuid;

use super::ingest::{
    IngestEffect, current_owner, ingest_group, parse_lease_and_depth, request_hash,
};
use crate::{
    Acceptance, Error, NewMessage, Sessions, Views,
    sessions::{FAIR_KEY_STEP, Lease, check_session_limit, priority},
};

/// Maximum number of sessions per transaction. The tenant's counters stay locked until the commit.
const MAX_SESSIONS_PER_TRANSACTION: usize = 500;

/// A message, and the settings for its session.
#[derive(Debug, Clone)]
pub struct MessageWithSettings {
    pub message: NewMessage,
    /// Settings of the session, if it is created; an existing session keeps its own.
    pub settings: SessionSettings,
}

impl Sessions {
    /// Accepts messages for many sessions of a tenant; the results are in the same order.
    ///
    /// # Errors
    ///
    /// After an error it is unknown which messages were accepted: send all again.
    pub async fn ingest_many(
        &self,
        tenant: TenantId,
        openings: &[MessageWithSettings],
    ) -> Result<Vec<Result<Acceptance, Error>>, Error> {
        let mut answers: Vec<Option<Result<Acceptance, Error>>> = Vec::new();
        answers.resize_with(openings.len(), || None);
        let (together, mut alone) = partition_messages(openings);
        for chunk in together.chunks(MAX_SESSIONS_PER_TRANSACTION) {
            let mut new = chunk.to_vec();
            let mut accepted = try_together(&self.pools, tenant, openings, &new).await?;
            if accepted.is_none() {
                let known = duplicates_among(&self.pools, tenant, openings, &new).await?;
                new.retain(|at| !known.contains_key(at));
                for (at, answer) in known {
                    answers[at] = Some(answer);
                }
                accepted = try_together(&self.pools, tenant, openings, &new).await?;
            }
            let accepted = accepted.unwrap_or_default();
            alone.extend(new.iter().filter(|at| !accepted.contains_key(at)));
            for (at, answer) in accepted {
                answers[at] = Some(Ok(answer));
            }
        }
        alone.sort_unstable();
        for at in alone {
            let one = std::slice::from_ref(&openings[at].message);
            let answer = ingest_group(&self.pools, tenant, one, None).await;
            answers[at] =
                Some(answer.and_then(|mut one| one.pop().ok_or(Error::InvalidIdemKey(0))));
        }
        Ok(answers
            .into_iter()
            .map(|answer| answer.unwrap_or(Err(Error::InvalidIdemKey(0))))
            .collect())
    }
}

impl Views<'_> {
    /// Returns the first acceptance of a message with this source and key; `None` if there is none.
    pub async fn find_accepted(
        self,
        tenant: TenantId,
        source: &Source,
        idem_key: &str,
    ) -> Result<Option<Acceptance>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let known = load_accepted(&mut tx, &[(source.as_text(), idem_key.to_owned())]).await?;
        tx.commit().await?;
        Ok(known.into_iter().next().map(|known| known.accepted))
    }
}

/// Accepts the messages in one transaction and returns those that were accepted. Returns
/// `None`, and writes nothing, if one is a duplicate.
async fn try_together(
    pools: &Pools,
    tenant: TenantId,
    openings: &[MessageWithSettings],
    new: &[usize],
) -> Result<Option<HashMap<usize, Acceptance>>, Error> {
    if new.is_empty() {
        return Ok(Some(HashMap::new()));
    }
    let mut tx = pools.tenant(tenant).await?;
    let given: Vec<(usize, &MessageWithSettings)> =
        new.iter().map(|at| (*at, &openings[*at])).collect();
    let found = lock(&mut tx, &given).await?;
    let mut places = Vec::with_capacity(given.len());
    let mut missing = Vec::new();
    let mut taken = HashSet::new();
    for ((at, opening), found) in given.into_iter().zip(found) {
        match found {
            SessionLookup::Missing => missing.push((at, opening)),
            SessionLookup::LockedByOther => {}
            SessionLookup::Locked(lease, depth) => {
                let effect = IngestEffect::of(&lease, std::slice::from_ref(&opening.message));
                if lease.unfinished_messages() < depth
                    && !effect.restart_debounce
                    && taken.insert(lease.session)
                {
                    let lease = *lease;
                    places.push(BatchItem { at, opening, lease, effect, is_new: false });
                }
            }
        }
    }
    for (at, opening, session) in create(&mut tx, missing).await? {
        let lease = Lease::fresh(session);
        let effect = IngestEffect::of(&lease, std::slice::from_ref(&opening.message));
        places.push(BatchItem { at, opening, lease, effect, is_new: true });
    }
    let Some(accepted) = store(&mut tx, &places).await? else {
        tx.rollback().await?;
        return Ok(None);
    };
    tx.commit().await?;
    Ok(Some(accepted))
}

/// Returns the results for messages that were accepted before.
async fn duplicates_among(
    pools: &Pools,
    tenant: TenantId,
    openings: &[MessageWithSettings],
    among: &[usize],
) -> Result<HashMap<usize, Result<Acceptance, Error>>, Error> {
    let keys: Vec<_> = among
        .iter()
        .map(|at| &openings[*at].message)
        .map(|message| (message.source.as_text(), message.idem_key.clone()))
        .collect();
    let mut tx = pools.tenant(tenant).await?;
    let known = load_accepted(&mut tx, &keys).await?;
    tx.commit().await?;
    let answers = known.into_iter().filter_map(|known| {
        let at = *among.get(known.place)?;
        let message = &openings[at].message;
        let is_same = known.hash == request_hash(message);
        let reused = || Err(Error::RequestReused(message.idem_key.clone()));
        Some((at, if is_same { Ok(known.accepted) } else { reused() }))
    });
    Ok(answers.collect())
}

/// Splits the messages into those that can share a transaction (one per session, valid and distinct
/// keys) and the others.
fn partition_messages(openings: &[MessageWithSettings]) -> (Vec<usize>, Vec<usize>) {
    let (mut sessions, mut keys) = (HashSet::new(), HashSet::new());
    (0..openings.len()).partition(|at| {
        let message = &openings[*at].message;
        (1..=256).contains(&message.idem_key.len())
            && sessions.insert(message.key.as_str())
            && keys.insert((message.source.as_text(), message.idem_key.as_str()))
    })
}

enum SessionLookup {
    Missing,
    /// Another transaction has locked the row.
    LockedByOther,
    /// The lease row, and the maximum number of unfinished messages.
    Locked(Box<Lease>, i64),
}

/// Finds the sessions, and locks those that no other transaction has locked.
async fn lock(
    tx: &mut TenantTx,
    given: &[(usize, &MessageWithSettings)],
) -> Result<Vec<SessionLookup>, Error> {
    // Batches of one tenant run one after the other. The number of free slots is read without a
    // lock; the possible error is small for one session, but not for hundreds.
    const SQL: &str = "
        with turn as materialized (
            select pg_advisory_xact_lock(hashtextextended('session.batch ' || $1::uuid::text, 0))),
        named as materialized (
            select k.place, s.session_id
            from unnest($2::text[]) with ordinality as k (key, place)
            cross join lateral (
                select session_id from session.sessions
                where tenant_id = $1 and key = k.key limit 1) s)
        select l.*, (select depth::bigint from session.tenant_queue q where q.tenant_id = $1), n.place
        from turn left join named n on true left join lateral (
            select session_id, state, paused is not null, wait, epoch, owner, next_in, done_in,
                   next_out, next_entry, attempts, workspace
            from session.session_lease l
            where l.tenant_id = $1 and l.session_id = n.session_id
            for update skip locked) l on true";

    let tenant = tx.tenant();
    let keys: Vec<&str> = given.iter().map(|(_, one)| one.message.key.as_str()).collect();
    let rows =
        holdfast_pg::query(SQL).bind(tenant.as_uuid()).bind(keys).fetch_all(tx.conn()).await?;
    let mut found = Vec::with_capacity(given.len());
    found.resize_with(given.len(), || SessionLookup::Missing);
    for row in rows {
        // No row has a session: every session of the batch is missing.
        let Some(place) = row.try_get::<Option<i64>, _>(13)? else { continue };
        let session: Option<Uuid> = row.try_get(0)?;
        let one = match session {
            None => SessionLookup::LockedByOther,
            Some(_) => {
                let (lease, depth) = parse_lease_and_depth(&row)?;
                SessionLookup::Locked(Box::new(lease), depth)
            }
        };
        if let Some(place) = usize::try_from(place - 1).ok().and_then(|at| found.get_mut(at)) {
            *place = one;
        }
    }
    Ok(found)
}

/// Creates sessions; leaves out those that another transaction creates at the same time, and all of
/// them if the tenant may not create so many.
async fn create<'a>(
    tx: &mut TenantTx,
    missing: Vec<(usize, &'a MessageWithSettings)>,
) -> Result<Vec<(usize, &'a MessageWithSettings, SessionId)>, Error> {
    // Sorted by key, so that two transactions that create the same sessions cannot deadlock.
    const SQL: &str = "
        insert into session.sessions (tenant_id, session_id, key, kind, agent_id, label, settings)
        select $1, g.session_id, g.key, g.kind, g.agent_id, g.label, g.settings
        from unnest($2::uuid[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::jsonb[])
             as g (session_id, key, kind, agent_id, label, settings)
        order by g.key
        on conflict on constraint sessions_key do nothing
        returning session_id";

    if missing.is_empty() {
        return Ok(Vec::new());
    }
    match check_session_limit(tx, missing.len()).await {
        // Those for which there is room are created one by one.
        Err(Error::TooManySessions { .. }) => return Ok(Vec::new()),
        checked => checked?,
    }
    let tenant = tx.tenant();
    let ids: Vec<SessionId> = missing.iter().map(|_| SessionId::generate()).collect();
    let messages = || missing.iter().map(|(_, opening)| &opening.message);
    let made: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(ids.iter().map(|id| id.as_uuid()).collect::<Vec<_>>())
        .bind(messages().map(|m| m.key.as_str()).collect::<Vec<_>>())
        .bind(messages().map(|m| m.key.kind().as_str()).collect::<Vec<_>>())
        .bind(messages().map(|m| m.agent.as_uuid()).collect::<Vec<_>>())
        .bind(messages().map(|m| m.label.unwrap_or_default()).collect::<Vec<_>>())
        .bind(missing.iter().map(|(_, opening)| Json(&opening.settings)).collect::<Vec<_>>())
        .fetch_all(tx.conn())
        .await?;
    let made: HashSet<Uuid> = made.into_iter().collect();
    let all = missing.into_iter().zip(ids).map(|((at, opening), id)| (at, opening, id));
    Ok(all.filter(|(_, _, id)| made.contains(&id.as_uuid())).collect())
}

/// A message and its session, which is locked or was just created.
struct BatchItem<'a> {
    at: usize,
    opening: &'a MessageWithSettings,
    lease: Lease,
    effect: IngestEffect,
    is_new: bool,
}

/// Stores the messages, and makes the sessions ready that they wake. Returns `None` if one of the
/// messages is a duplicate; the transaction must then be rolled back.
async fn store(
    tx: &mut TenantTx,
    places: &[BatchItem<'_>],
) -> Result<Option<HashMap<usize, Acceptance>>, Error> {
    // Sessions get consecutive places in the fair order up to the tenant's cap; the rest wait in
    // the tenant's queue. All are counted in one shard, because only the sum of the shards is used.
    const SQL: &str = "
        with given as materialized (
            select * from unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::text[],
                                 $7::bytea[], $8::jsonb[], $9::text[], $10::jsonb[], $11::text[],
                                 $12::boolean[], $13::bigint[], $14::boolean[], $17::smallint[])
                 with ordinality
                 as g (session_id, seq, id, source, idem_key, hash, body, mode, target, trace,
                       wakes, millis, is_new, priority, place)),
        share as materialized (
            select p.fair_key, p.step,
                   coalesce((select open_cap from session.tenant_queue where tenant_id = $1), 64)
                   - (select coalesce(sum(in_flight), 0) from session.tenant_flight
                      where tenant_id = $1) as free,
                   coalesce((select open_cap from session.tenant_queue where tenant_id = $1), 64) / 4
                   as reserved
            from session.place($1, $15) p),
        ready as materialized (
            select g.session_id, g.priority, row_number() over (order by g.place) as n
            from given g where g.wakes),
        admitted as materialized (
            select r.session_id, s.fair_key + (r.n - 1) * s.step as fair_key
            from ready r, share s
            where r.n <= s.free - case when r.priority > 0 then s.reserved else 0 end),
        moved as (
            insert into session.tenant_flight as f (tenant_id, shard, in_flight, vfinish)
            select $1, session.shard($16), c.count, s.fair_key + c.count * s.step
            from share s, (select count(*)::integer as count from admitted) c
            where c.count > 0
            on conflict (tenant_id, shard) do update
                set in_flight = f.in_flight + excluded.in_flight,
                    vfinish = greatest(f.vfinish, excluded.vfinish)),
        stored as (
            insert into session.inbox (tenant_id, session_id, seq, message_id, source, idem_key,
                                       hash, body, mode, target, trace)
            select $1, g.session_id, g.seq, g.id, g.source, g.idem_key, g.hash, g.body, g.mode,
                   g.target, g.trace
            from given g
            where not exists (
                select from session.tombstones t
                where t.tenant_id = $1 and t.source = g.source and t.idem_key = g.idem_key)
            order by g.idem_key
            on conflict on constraint inbox_idem_key do nothing
            returning 1),
        events as (
            insert into session.events (tenant_id, family, session_id, name, payload)
            select $1, 'messages', g.session_id, 'MessageAccepted',
                   jsonb_build_object('messages', array[g.seq])
            from given g order by g.place),
        made as (
            insert into session.session_lease
                (tenant_id, session_id, priority, next_in, state, ready_at, fair_key)
            select $1, g.session_id, g.priority, g.seq + 1, case when g.wakes then 'READY' else 'WAIT' end,
                   case when g.wakes
                        then clock_timestamp() + g.millis * interval '1 millisecond' end,
                   a.fair_key
            from given g left join admitted a on a.session_id = g.session_id
            where g.is_new),
        told as (
            update session.session_lease l
            set next_in = l.next_in + 1,
                state = case when g.wakes then 'READY' else l.state end,
                wait = case when g.wakes then null else l.wait end,
                wait_until = case when g.wakes then null else l.wait_until end,
                ended = l.ended and not g.wakes,
                ready_at = case when g.wakes
                           then clock_timestamp() + g.millis * interval '1 millisecond'
                           else l.ready_at end,
                fair_key = case when g.wakes then a.fair_key else l.fair_key end
            from given g left join admitted a on a.session_id = g.session_id
            where not g.is_new and l.tenant_id = $1 and l.session_id = g.session_id)
        select (select count(*) from stored), array(select session_id from admitted)";

    // A new session's counters are locked since it was created. To lock another shard after it could
    // be a deadlock with a batch that locks the two in order.
    let shard = places.iter().find(|place| place.is_new).or(places.first());
    let Some(shard) = shard else { return Ok(Some(HashMap::new())) };
    let tenant = tx.tenant();
    let messages = || places.iter().map(|place| &place.opening.message);
    let ids: Vec<MessageId> = places.iter().map(|_| MessageId::generate()).collect();
    let millis = |place: &BatchItem<'_>| {
        i64::try_from(place.effect.debounce.as_millis()).unwrap_or(i64::MAX)
    };
    let (count, admitted): (i64, Vec<Uuid>) = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(places.iter().map(|place| place.lease.session.as_uuid()).collect::<Vec<_>>())
        .bind(places.iter().map(|place| place.lease.next_in).collect::<Vec<_>>())
        .bind(ids.iter().map(|id| id.as_uuid()).collect::<Vec<_>>())
        .bind(messages().map(|m| m.source.as_text()).collect::<Vec<_>>())
        .bind(messages().map(|m| m.idem_key.as_str()).collect::<Vec<_>>())
        .bind(messages().map(request_hash).collect::<Vec<_>>())
        .bind(messages().map(|m| Json(&m.body)).collect::<Vec<_>>())
        .bind(messages().map(|m| m.mode.as_str()).collect::<Vec<_>>())
        .bind(messages().map(|m| m.target.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(messages().map(|m| m.trace.as_deref()).collect::<Vec<_>>())
        .bind(places.iter().map(|place| place.effect.wake).collect::<Vec<_>>())
        .bind(places.iter().map(millis).collect::<Vec<_>>())
        .bind(places.iter().map(|place| place.is_new).collect::<Vec<_>>())
        .bind(FAIR_KEY_STEP)
        .bind(shard.lease.session.as_uuid())
        .bind(messages().map(|m| priority(m.key.kind())).collect::<Vec<_>>())
        .fetch_one(tx.conn())
        .await?;
    if usize::try_from(count).ok() != Some(places.len()) {
        return Ok(None);
    }
    let admitted: HashSet<Uuid> = admitted.into_iter().collect();
    let accepted = places.iter().zip(ids).map(|(place, message)| {
        let session = place.lease.session;
        let accepted = Acceptance {
            message,
            session,
            seq: place.lease.next_in,
            duplicate: false,
            wake: admitted.contains(&session.as_uuid()).then_some(place.effect.debounce),
            running: current_owner(&place.lease),
        };
        (place.at, accepted)
    });
    Ok(Some(accepted.collect()))
}

/// A message that was accepted before.
struct DuplicateMessage {
    place: usize,
    accepted: Acceptance,
    hash: Vec<u8>,
}

/// Returns the first acceptances of messages with these sources and keys.
async fn load_accepted(
    tx: &mut TenantTx,
    keys: &[(String, String)],
) -> Result<Vec<DuplicateMessage>, Error> {
    const SQL: &str = "
        select k.place, f.message_id, f.session_id, f.seq, f.hash
        from unnest($2::text[], $3::text[]) with ordinality as k (source, idem_key, place)
        cross join lateral (
            select message_id, session_id, seq, hash from session.inbox
            where tenant_id = $1 and source = k.source and idem_key = k.idem_key
            union all
            select message_id, session_id, seq, hash from session.tombstones
            where tenant_id = $1 and source = k.source and idem_key = k.idem_key
            limit 1) f";

    let tenant = tx.tenant();
    let rows: Vec<(i64, Uuid, Uuid, i64, Vec<u8>)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(keys.iter().map(|key| key.0.as_str()).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.1.as_str()).collect::<Vec<_>>())
        .fetch_all(tx.conn())
        .await?;
    Ok(rows
        .into_iter()
        .filter_map(|(place, message, session, seq, hash)| {
            let accepted = Acceptance {
                message: message.into(),
                session: session.into(),
                seq,
                duplicate: true,
                wake: None,
                running: None,
            };
            Some(DuplicateMessage { place: usize::try_from(place - 1).ok()?, accepted, hash })
        })
        .collect())
}
