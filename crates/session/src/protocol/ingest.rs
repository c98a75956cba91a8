//! Acceptance of messages.
//!
//! An accepted message is never lost and is stored once: the insert and the session's readiness are
//! one transaction, and (source, idempotency key) is unique in the tenant. A repetition returns the
//! first acceptance and changes nothing.

use std::time::Duration;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{
    MessageId, QueueMode, QueueSettings, SessionId, SessionState, Source, TenantId, Wait, wakes,
};
use sha2::{Digest as _, Sha256};
use sqlx::{Row as _, types::Json};
use uuid::Uuid;

use crate::{
    Acceptance, Error, NewMessage, SessionOwner, Sessions,
    sessions::{FAIR_KEY_STEP, Lease, LeaseRow, check_session_limit, priority},
};

/// Default for the maximum number of unfinished messages in a session; a tenant's row may override
/// it.
const DEFAULT_INBOX_DEPTH: i64 = 200;

/// Number of unfinished messages at which an idle session runs although none of them wakes it.
///
/// The turn moves the silent messages to the journal. Otherwise a group that never mentions its
/// agent would fill the inbox, and then the message that mentions the agent would be refused.
const UNFINISHED_MESSAGES_BEFORE_TURN: i64 = 50;

/// Bound on the wait of a message in queue mode collect, as a multiple of the debounce pause: further
/// messages restart the pause only so long.
const MAX_DEBOUNCE_PAUSES: i64 = 10;

/// Attempts to store messages if Postgres undoes the transaction because of others.
const MAX_INGEST_ATTEMPTS: u32 = 3;

/// Delay before a sender should retry when the session is full.
const SESSION_FULL_RETRY_DELAY: Duration = Duration::from_secs(5);

impl Sessions {
    /// Accepts one message.
    ///
    /// # Errors
    ///
    /// [`Error::RequestReused`] if the key was used for another request, [`Error::SessionFull`] if
    /// the inbox is full. After any other error the outcome is unknown: send the message again.
    pub async fn ingest(&self, tenant: TenantId, message: NewMessage) -> Result<Acceptance, Error> {
        let mut accepted =
            ingest_group(&self.pools, tenant, std::slice::from_ref(&message), None).await?;
        accepted.pop().ok_or(Error::InvalidIdemKey(0))
    }

    /// Accepts messages of one session, all or none, if no API key has sent a message to it since
    /// `after`. Returns one result per message, in the same order.
    ///
    /// # Errors
    ///
    /// [`Error::NotNewest`] if one has, except by a repetition of this request; otherwise as
    /// [`ingest`](Self::ingest).
    pub async fn ingest_after(
        &self,
        tenant: TenantId,
        messages: &[NewMessage],
        after: MessageId,
    ) -> Result<Vec<Acceptance>, Error> {
        ingest_group(&self.pools, tenant, messages, Some(after)).await
    }

    /// Accepts many messages; neighbours of one session share a transaction.
    ///
    /// Returns one result per message, in the same order.
    pub async fn ingest_batch(
        &self,
        tenant: TenantId,
        messages: Vec<NewMessage>,
    ) -> Vec<Result<Acceptance, Error>> {
        let mut answers = Vec::with_capacity(messages.len());
        for group in messages.chunk_by(|a, b| a.key == b.key) {
            match ingest_group(&self.pools, tenant, group, None).await {
                Ok(accepted) => answers.extend(accepted.into_iter().map(Ok)),
                // One refused message must not reject the others of its session.
                Err(_) if group.len() > 1 => {
                    for message in group {
                        answers.push(self.ingest(tenant, message.clone()).await);
                    }
                }
                Err(error) => answers.push(Err(error)),
            }
        }
        answers
    }
}

/// Accepts messages of one session, all or none; with `after`, only as its next messages. A
/// transaction that Postgres undid because of others is tried again.
pub(crate) async fn ingest_group(
    pools: &Pools,
    tenant: TenantId,
    messages: &[NewMessage],
    after: Option<MessageId>,
) -> Result<Vec<Acceptance>, Error> {
    for _ in 1..MAX_INGEST_ATTEMPTS {
        match try_ingest_group(pools, tenant, messages, after).await {
            Err(Error::Store(error)) if holdfast_pg::is_rolled_back(&error) => {}
            other => return other,
        }
    }
    try_ingest_group(pools, tenant, messages, after).await
}

async fn try_ingest_group(
    pools: &Pools,
    tenant: TenantId,
    messages: &[NewMessage],
    after: Option<MessageId>,
) -> Result<Vec<Acceptance>, Error> {
    let Some(first) = messages.first() else { return Ok(Vec::new()) };
    if let Some(bad) = messages.iter().find(|m| !(1..=256).contains(&m.idem_key.len())) {
        return Err(Error::InvalidIdemKey(bad.idem_key.len()));
    }
    let hashes: Vec<Vec<u8>> = messages.iter().map(request_hash).collect();

    let mut tx = pools.tenant(tenant).await?;
    let (lease, depth, queue) = lock_or_create_session(&mut tx, first).await?;
    let changed = queue.map(|queue| with_queue_settings(messages, queue));
    let messages = changed.as_deref().unwrap_or(messages);

    if let Some(after) = after
        && has_newer_message(&mut tx, lease.session, after).await?
    {
        let known = find_duplicates(&mut tx, messages, &hashes).await;
        tx.rollback().await?;
        return known?.ok_or(Error::NotNewest);
    }
    let room = depth - lease.unfinished_messages();
    let wanted = i64::try_from(messages.len()).unwrap_or(i64::MAX);
    if wanted > room {
        // A repetition is answered even if the inbox is full.
        let known = find_duplicates(&mut tx, messages, &hashes).await;
        tx.rollback().await?;
        return match known? {
            Some(known) => Ok(known),
            None => Err(Error::SessionFull {
                waiting: lease.unfinished_messages(),
                limit: depth,
                retry_after: SESSION_FULL_RETRY_DELAY,
            }),
        };
    }

    let ids: Vec<MessageId> = messages.iter().map(|_| MessageId::generate()).collect();
    let StoreResult { count, wake } = store(&mut tx, &lease, messages, &ids, &hashes).await?;
    if count < wanted {
        // Some messages were stored before. Undo everything, then accept each message alone.
        tx.rollback().await?;
        return ingest_one_by_one(pools, tenant, messages, &hashes).await;
    }
    tx.commit().await?;

    let running = current_owner(&lease);
    Ok(ids
        .into_iter()
        .zip(lease.next_in..)
        .map(|(message, seq)| Acceptance {
            message,
            session: lease.session,
            seq,
            duplicate: false,
            wake,
            running,
        })
        .collect())
}

/// Accepts messages of which some are duplicates, one transaction for each.
async fn ingest_one_by_one(
    pools: &Pools,
    tenant: TenantId,
    messages: &[NewMessage],
    hashes: &[Vec<u8>],
) -> Result<Vec<Acceptance>, Error> {
    let mut answers = Vec::with_capacity(messages.len());
    for (message, hash) in messages.iter().zip(hashes) {
        let one = std::slice::from_ref(message);
        let mut tx = pools.tenant(tenant).await?;
        let known = find_duplicates(&mut tx, one, std::slice::from_ref(hash)).await?;
        tx.commit().await?;
        match known.and_then(|mut known| known.pop()) {
            Some(known) => answers.push(known),
            None => answers.extend(Box::pin(ingest_group(pools, tenant, one, None)).await?),
        }
    }
    Ok(answers)
}

/// Whether an API key or a person has sent a message to the session since `after`.
async fn has_newer_message(
    tx: &mut TenantTx,
    session: SessionId,
    after: MessageId,
) -> Result<bool, Error> {
    const SQL: &str = "
        select exists (
            select from session.inbox
            where tenant_id = $1 and session_id = $2 and (starts_with(source, 'key_') or starts_with(source, 'per_'))
              and seq > (select seq from session.inbox where tenant_id = $1 and message_id = $3))";
    let tenant = tx.tenant();
    Ok(holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(after.as_uuid())
        .fetch_one(tx.conn())
        .await?)
}

/// Returns the hash that distinguishes two requests with one idempotency key. It covers only what
/// the sender decides.
///
/// Values that come from the tenant's settings (the session a channel message is routed to, the
/// tools it may use) can differ between two tries of the same message.
pub(crate) fn request_hash(message: &NewMessage) -> Vec<u8> {
    let body = &message.body;
    let sender = body.sender.as_ref().map(|sender| sender.id.as_str());
    let session = match message.source {
        Source::Channel(_) => None,
        Source::Key(_) | Source::Internal(_) => Some(message.key.as_str()),
    };
    let said =
        (session, &body.text, sender, &body.message_id, &body.attachments, &body.role, &body.event);
    // None of these can fail to be written as JSON.
    let mut hasher = Sha256::new_with_prefix(serde_json::to_vec(&said).unwrap_or_default());
    if let Some(options) = &body.answer_options {
        hasher.update(serde_json::to_vec(options).unwrap_or_default());
    }
    if !(body.calls.is_empty() && body.results.is_empty()) {
        hasher.update(serde_json::to_vec(&(&body.calls, &body.results)).unwrap_or_default());
    }
    hasher.finalize().to_vec()
}

/// Applies what `/queue` has set in the session to messages of people and programs.
fn with_queue_settings(messages: &[NewMessage], queue: QueueSettings) -> Vec<NewMessage> {
    let mut messages = messages.to_vec();
    for message in &mut messages {
        if matches!(message.source, Source::Internal(_)) {
            continue;
        }
        let is_chosen =
            message.body.options.as_ref().is_some_and(|options| options.is_queue_chosen);
        let queue = match is_chosen {
            true => QueueSettings { mode: Some(message.mode), ..queue },
            false => queue,
        };
        message.mode = queue.mode.unwrap_or(message.mode);
        if let Some(pause) = queue.debounce_ms {
            message.debounce = Duration::from_millis(u64::from(pause));
        }
        let mut options = message.body.options.take().map(|options| *options).unwrap_or_default();
        options.channel.queue = queue.or(options.channel.queue);
        message.body.options = options.boxed();
    }
    messages
}

/// Locks the session's lease row, or creates the session. Also returns the maximum number of
/// unfinished messages, and the queue settings of the session.
async fn lock_or_create_session(
    tx: &mut TenantTx,
    message: &NewMessage,
) -> Result<(Lease, i64, Option<QueueSettings>), Error> {
    // Not `session_id = coalesce(…)`: row-level security keeps that from the index, and every
    // message would read all sessions of its tenant.
    const LOCK: &str = "
        with named as materialized (
            select session_id, settings->'queue' as queue from session.sessions
            where tenant_id = $1 and key = $2)
        select l.*, (select depth::bigint from session.tenant_queue q where q.tenant_id = $1),
               named.queue
        from named cross join lateral (
            select session_id, state, paused is not null, wait, epoch, owner, next_in, done_in,
                   next_out, next_entry, attempts, workspace
            from session.session_lease l
            where l.tenant_id = $1 and l.session_id = named.session_id
            for update) l";
    const CREATE: &str = "
        with made as (
            insert into session.sessions (tenant_id, session_id, key, kind, agent_id, label)
            values ($1, $3, $2, $4, $5, $6)
            on conflict on constraint sessions_key do nothing
            returning session_id)
        insert into session.session_lease (tenant_id, session_id, priority)
        select $1, session_id, $7 from made";

    let tenant = tx.tenant();
    let key = &message.key;
    loop {
        let row = holdfast_pg::query(LOCK)
            .bind(tenant.as_uuid())
            .bind(key.as_str())
            .fetch_optional(tx.conn())
            .await?;
        if let Some(row) = row {
            let (lease, depth) = parse_lease_and_depth(&row)?;
            let queue: Option<Json<QueueSettings>> = row.try_get(13)?;
            return Ok((lease, depth, queue.map(|queue| queue.0)));
        }
        check_session_limit(tx, 1).await?;
        let session = SessionId::generate();
        let made = holdfast_pg::query(CREATE)
            .bind(tenant.as_uuid())
            .bind(key.as_str())
            .bind(session.as_uuid())
            .bind(key.kind().as_str())
            .bind(message.agent.as_uuid())
            .bind(message.label.unwrap_or_default())
            .bind(priority(key.kind()))
            .execute(tx.conn())
            .await?
            .rows_affected();
        if made == 1 {
            return Ok((Lease::fresh(session), DEFAULT_INBOX_DEPTH, None));
        }
        // Another transaction created the session; the next iteration locks it.
    }
}

pub(crate) fn parse_lease_and_depth(row: &sqlx::postgres::PgRow) -> sqlx::Result<(Lease, i64)> {
    use sqlx::FromRow as _;
    // The tuple takes the first twelve columns.
    let lease = LeaseRow::from_row(row)?;
    let depth: Option<i64> = row.try_get(12)?;
    Ok((Lease::from(lease), depth.unwrap_or(DEFAULT_INBOX_DEPTH)))
}

impl Lease {
    /// Returns the lease row of a session that was just created.
    pub(crate) fn fresh(session: SessionId) -> Self {
        Self {
            session,
            state: SessionState::Wait,
            paused: false,
            wait: Wait::Anything,
            epoch: 0,
            owner: None,
            next_in: 1,
            done_in: 0,
            next_out: 1,
            next_entry: 1,
            attempts: 0,
            workspace: None,
        }
    }
}

/// Result of storing messages.
struct StoreResult {
    /// Number of new messages; if fewer than all, the transaction must be rolled back.
    count: i64,
    /// Delay after which a wake-up should be sent; `None` if none is needed.
    wake: Option<Duration>,
}

/// First part of the statements below: inserts the messages that are new.
macro_rules! stored {
    ($rest:literal) => {
        concat!(
            "with stored as (
                 insert into session.inbox (tenant_id, session_id, seq, message_id, source, idem_key,
                                            hash, body, mode, target, trace)
                 select $1, $2, m.seq, m.id, m.source, m.idem_key, m.hash, m.body, m.mode, m.target,
                        m.trace
                 from unnest($3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::bytea[],
                             $8::jsonb[], $9::text[], $10::jsonb[], $11::text[])
                      as m (seq, id, source, idem_key, hash, body, mode, target, trace)
                 where not exists (
                     select from session.tombstones t
                     where t.tenant_id = $1 and t.source = m.source and t.idem_key = m.idem_key)
                 on conflict on constraint inbox_idem_key do nothing
                 returning 1),
             event as (
                 insert into session.events (tenant_id, family, session_id, name, payload)
                 select $1, 'messages', $2, 'MessageAccepted',
                        jsonb_build_object('messages', $3::bigint[]))",
            $rest
        )
    };
}

/// Stores the messages, and makes the session ready if one of them wakes it. One statement, because
/// the session's row and its tenant's counters stay locked until the commit.
async fn store(
    tx: &mut TenantTx,
    lease: &Lease,
    messages: &[NewMessage],
    ids: &[MessageId],
    hashes: &[Vec<u8>],
) -> Result<StoreResult, Error> {
    const STORE_ONLY: &str = stored!(
        " update session.session_lease
         set next_in = next_in + $12
         where tenant_id = $1 and session_id = $2
         returning (select count(*) from stored), false"
    );
    const STORE_AND_DEBOUNCE: &str = stored!(
        " update session.session_lease
         set next_in = next_in + $12,
             ready_at = greatest(ready_at, least(
                 clock_timestamp() + $13 * interval '1 millisecond',
                 (select min(i.accepted_at) + $14 * interval '1 millisecond'
                  from session.inbox i
                  where i.tenant_id = $1 and i.session_id = $2 and i.state in ('new', 'seen')
                    and not coalesce((i.body->>'silent')::boolean, false))))
         where tenant_id = $1 and session_id = $2
         returning (select count(*) from stored), true"
    );
    const STORE_AND_MAKE_READY: &str = stored!(
        ", place as materialized (
             select fair_key, step
             from session.place($1, $14, (
                 select priority from session.session_lease
                 where tenant_id = $1 and session_id = $2))
             where room),
         admitted as (
             insert into session.tenant_flight as f (tenant_id, shard, in_flight, vfinish)
             select $1, session.shard($2), 1, fair_key + step from place
             on conflict (tenant_id, shard) do update
                 set in_flight = f.in_flight + 1, vfinish = greatest(f.vfinish, excluded.vfinish))
         update session.session_lease
         set next_in = next_in + $12, state = 'READY', wait = null, wait_until = null,
             ended = false, ready_at = clock_timestamp() + $13 * interval '1 millisecond',
             fair_key = (select fair_key from place)
         where tenant_id = $1 and session_id = $2
         returning (select count(*) from stored), fair_key is not null"
    );

    let tenant = tx.tenant();
    let count = i64::try_from(messages.len()).unwrap_or(i64::MAX);
    let IngestEffect { wake, restart_debounce: gather, debounce } =
        IngestEffect::of(lease, messages);
    let millis = i64::try_from(debounce.as_millis()).unwrap_or(i64::MAX);

    let sql = match (wake, gather) {
        (true, _) => STORE_AND_MAKE_READY,
        (false, true) => STORE_AND_DEBOUNCE,
        (false, false) => STORE_ONLY,
    };
    let query = holdfast_pg::query_as(sql)
        .bind(tenant.as_uuid())
        .bind(lease.session.as_uuid())
        .bind((lease.next_in..).take(messages.len()).collect::<Vec<i64>>())
        .bind(ids.iter().map(|id| id.as_uuid()).collect::<Vec<_>>())
        .bind(messages.iter().map(|m| m.source.as_text()).collect::<Vec<_>>())
        .bind(messages.iter().map(|m| m.idem_key.as_str()).collect::<Vec<_>>())
        .bind(hashes)
        .bind(messages.iter().map(|m| Json(&m.body)).collect::<Vec<_>>())
        .bind(messages.iter().map(|m| m.mode.as_str()).collect::<Vec<_>>())
        .bind(messages.iter().map(|m| m.target.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(messages.iter().map(|m| m.trace.as_deref()).collect::<Vec<_>>())
        .bind(count);
    let query = if wake || gather { query.bind(millis) } else { query };
    let query = match (wake, gather) {
        (true, _) => query.bind(FAIR_KEY_STEP),
        (false, true) => query.bind(millis.saturating_mul(MAX_DEBOUNCE_PAUSES)),
        (false, false) => query,
    };
    let (count, somebody): (i64, bool) = query.fetch_one(tx.conn()).await?;
    Ok(StoreResult { count, wake: somebody.then_some(debounce) })
}

/// Effect of messages on their session.
pub(crate) struct IngestEffect {
    /// The session becomes ready.
    pub wake: bool,
    /// The session is ready and collecting: the debounce pause starts again.
    pub restart_debounce: bool,
    /// Length of the debounce pause.
    pub debounce: Duration,
}

impl IngestEffect {
    pub fn of(lease: &Lease, messages: &[NewMessage]) -> Self {
        let count = i64::try_from(messages.len()).unwrap_or(i64::MAX);
        let interrupts = |message: &&NewMessage| {
            lease.wait.is_for_approval()
                && message.mode == QueueMode::Interrupt
                && !message.body.silent
                && message.body.command().is_none()
        };
        let waker = messages
            .iter()
            .find(|message| wakes(&lease.wait, &message.body) || interrupts(message));
        let debounce = match waker {
            Some(message) if message.mode == QueueMode::Collect => message.debounce,
            _ => Duration::ZERO,
        };
        let crowded = lease.wait == Wait::Anything
            && lease.unfinished_messages() + count >= UNFINISHED_MESSAGES_BEFORE_TURN;
        let resting = !matches!(lease.state, SessionState::Ready | SessionState::Running);
        Self {
            wake: (waker.is_some() || crowded) && resting && !lease.paused,
            restart_debounce: waker.is_some()
                && lease.state == SessionState::Ready
                && !debounce.is_zero(),
            debounce,
        }
    }
}

pub(crate) fn current_owner(lease: &Lease) -> Option<SessionOwner> {
    match (lease.state, lease.owner) {
        (SessionState::Running, Some(owner)) => {
            Some(SessionOwner { owner: owner.into(), epoch: lease.epoch })
        }
        _ => None,
    }
}

/// Returns the first acceptances if every message is a duplicate; `None` if one is new.
async fn find_duplicates(
    tx: &mut TenantTx,
    messages: &[NewMessage],
    hashes: &[Vec<u8>],
) -> Result<Option<Vec<Acceptance>>, Error> {
    const SQL: &str = "
        select message_id, session_id, seq, hash from session.inbox
        where tenant_id = $1 and source = $2 and idem_key = $3
        union all
        select message_id, session_id, seq, hash from session.tombstones
        where tenant_id = $1 and source = $2 and idem_key = $3
        limit 1";

    let tenant = tx.tenant();
    let mut known = Vec::with_capacity(messages.len());
    for (message, hash) in messages.iter().zip(hashes) {
        let row: Option<(Uuid, Uuid, i64, Vec<u8>)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(message.source.as_text())
            .bind(&message.idem_key)
            .fetch_optional(tx.conn())
            .await?;
        let Some((id, session, seq, first)) = row else { return Ok(None) };
        if first != *hash {
            return Err(Error::RequestReused(message.idem_key.clone()));
        }
        known.push(Acceptance {
            message: id.into(),
            session: session.into(),
            seq,
            duplicate: true,
            wake: None,
            running: None,
        });
    }
    Ok(Some(known))
}
