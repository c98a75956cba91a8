//! Entry point of the crate, and the lock and fence that all verbs share.
//!
//! The verbs of the protocol are methods of [`Sessions`]. Each other topic has a type of its own,
//! which borrows the `Sessions`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{MessageId, SessionId, SessionKind, SessionState, TenantId, Wait};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Claim, Error, RunnerPool, TurnClass, journal_cache::JournalCache};

/// How long a claim lasts without renewal.
pub const CLAIM_LEASE: Duration = Duration::from_secs(30);

/// How long a ready session waits for the runner that holds its state.
pub const HOLDER_WAIT: Duration = Duration::from_secs(30);

/// The session protocol over a database. Clones share their state.
#[derive(Debug, Clone)]
pub struct Sessions {
    pub(crate) pools: Pools,
    pub(crate) lease: Duration,
    pub(crate) holder_wait: Duration,
    /// Pool of the runner that uses it; `None` is the default pool.
    pub(crate) pool: Option<RunnerPool>,
    pub(crate) journal_cache: Arc<JournalCache>,
    /// Number of claims so far.
    pub(crate) claims: Arc<AtomicU64>,
    /// Number of sweeps so far.
    pub(crate) sweeps: Arc<AtomicU64>,
    /// Account up to which the last claim of deliveries has looked, by channel.
    pub(crate) delivery_cursors: Arc<Mutex<HashMap<String, Uuid>>>,
}

/// Distance by which a ready session moves its tenant in the fair order, at weight 1. A multiple of
/// every weight up to 16, so that integer division gives exact shares.
pub(crate) const FAIR_KEY_STEP: i64 = 720_720;

impl Sessions {
    #[must_use]
    pub fn new(pools: Pools) -> Self {
        Self {
            pools,
            lease: CLAIM_LEASE,
            holder_wait: HOLDER_WAIT,
            pool: None,
            journal_cache: Arc::default(),
            claims: Arc::default(),
            sweeps: Arc::default(),
            delivery_cursors: Arc::default(),
        }
    }

    /// Replaces the lease duration of claims, [`CLAIM_LEASE`] by default.
    ///
    /// All runners of a database should use the same value. A shorter lease detects a lost runner
    /// sooner, and also loses a slow runner sooner.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Replaces the time for which a ready session waits for the runner that holds its state,
    /// [`HOLDER_WAIT`] by default.
    #[must_use]
    pub fn with_holder_wait(self, holder_wait: Duration) -> Self {
        Self { holder_wait, ..self }
    }

    /// Works for the tenants of a pool only; by default, for those without one.
    #[must_use]
    pub fn in_pool(self, pool: Option<RunnerPool>) -> Self {
        Self { pool, ..self }
    }
}

/// Default for the maximum number of a tenant's sessions.
pub(crate) const DEFAULT_MAX_SESSIONS: i32 = 1_000_000;

/// One of so many choices among waiting sessions takes the one that waits longest, whatever its
/// priority, so that none starves.
pub(crate) const CHOICES_PER_FAIR_ONE: u64 = 4;

/// Priority of a session's turns when slots are short; lower ones run first.
pub(crate) const fn priority(kind: SessionKind) -> i16 {
    TurnClass::of(kind).priority()
}

/// A session's lease row, locked by the current transaction.
#[derive(Debug)]
pub(crate) struct Lease {
    pub session: SessionId,
    pub state: SessionState,
    pub paused: bool,
    pub wait: Wait,
    pub epoch: i64,
    pub owner: Option<Uuid>,
    pub next_in: i64,
    pub done_in: i64,
    pub next_out: i64,
    pub next_entry: i64,
    pub attempts: i32,
    pub workspace: Option<String>,
}

pub(crate) type LeaseRow = (
    Uuid,
    String,
    bool,
    Option<Json<Wait>>,
    i64,
    Option<Uuid>,
    i64,
    i64,
    i64,
    i64,
    i32,
    Option<String>,
);

impl From<LeaseRow> for Lease {
    fn from(row: LeaseRow) -> Self {
        Self {
            session: row.0.into(),
            // A check constraint allows no other values.
            state: SessionState::parse(&row.1).unwrap_or(SessionState::Wait),
            paused: row.2,
            wait: row.3.map_or(Wait::Anything, |wait| wait.0),
            epoch: row.4,
            owner: row.5,
            next_in: row.6,
            done_in: row.7,
            next_out: row.8,
            next_entry: row.9,
            attempts: row.10,
            workspace: row.11,
        }
    }
}

impl Lease {
    /// Returns the number of accepted messages that are not finished.
    pub const fn unfinished_messages(&self) -> i64 {
        self.next_in - 1 - self.done_in
    }
}

macro_rules! select_lease {
    ($lock:literal) => {
        concat!(
            "select session_id, state, paused is not null, wait, epoch, owner, next_in, done_in,
                    next_out, next_entry, attempts, workspace
             from session.session_lease
             where tenant_id = $1 and session_id = $2
             ",
            $lock
        )
    };
}

/// Locks a session's lease row, whoever owns the session. Returns `None` if the tenant has no such
/// session.
pub(crate) async fn lock(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<Option<Lease>> {
    select_lease(tx, session, select_lease!("for update")).await
}

/// As [`lock`], without waiting: returns `None` also if another transaction has locked the row.
pub(crate) async fn lock_if_free(
    tx: &mut TenantTx,
    session: SessionId,
) -> sqlx::Result<Option<Lease>> {
    select_lease(tx, session, select_lease!("for update skip locked")).await
}

async fn select_lease(
    tx: &mut TenantTx,
    session: SessionId,
    sql: &'static str,
) -> sqlx::Result<Option<Lease>> {
    let tenant = tx.tenant();
    let row = holdfast_pg::query_as::<LeaseRow>(sql)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Lease::from))
}

/// Locks a session's lease row for the runner that claimed it.
///
/// This is the fence: under the row's lock, a claim whose epoch or runner is not the row's is
/// refused. A database that lost its last commits in a failover counts the same epoch twice, for two
/// runners.
pub(crate) async fn lock_claimed(tx: &mut TenantTx, claim: &Claim) -> Result<Lease, Error> {
    match lock(tx, claim.session).await? {
        Some(lease)
            if lease.epoch == claim.epoch
                && lease.owner == Some(claim.runner.as_uuid())
                && lease.state == SessionState::Running =>
        {
            Ok(lease)
        }
        _ => Err(fenced_error(claim)),
    }
}

/// Whether the inbox has this message in this place.
///
/// A message that a failover of the database lost may have left its place to another one. The places
/// before it are the same if it is the same, because they were committed earlier.
pub(crate) async fn has_message(
    tx: &mut TenantTx,
    session: SessionId,
    message: Option<(i64, MessageId)>,
) -> sqlx::Result<bool> {
    const SQL: &str = "
        select exists (select from session.inbox
                       where tenant_id = $1 and session_id = $2 and seq = $3 and message_id = $4)";

    let Some((seq, message)) = message else { return Ok(true) };
    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(seq)
        .bind(message.as_uuid())
        .fetch_one(tx.conn())
        .await
}

/// Checks that the tenant may create this many sessions. Two transactions at once may both be
/// admitted, so the limit can be exceeded by a few.
///
/// # Errors
///
/// [`Error::TooManySessions`] if it may not.
pub(crate) async fn check_session_limit(tx: &mut TenantTx, new: usize) -> Result<(), Error> {
    const SQL: &str = "
        select (select max_sessions::bigint from session.tenant_queue where tenant_id = $1),
               (select coalesce(sum(sessions), 0)::bigint from session.tenant_flight
                where tenant_id = $1)";

    let tenant = tx.tenant();
    let (limit, count): (Option<i64>, i64) =
        holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).fetch_one(tx.conn()).await?;
    let limit = limit.unwrap_or(DEFAULT_MAX_SESSIONS.into());
    let new = i64::try_from(new).unwrap_or(i64::MAX);
    if count.saturating_add(new) > limit {
        return Err(Error::TooManySessions { limit });
    }
    Ok(())
}

/// Builds the error for a write with an outdated claim, and counts it.
pub(crate) fn fenced_error(claim: &Claim) -> Error {
    metrics::counter!("holdfast_session_fenced_writes_total").increment(1);
    Error::Fenced { held: claim.epoch }
}

/// Builds the error for a session that does not exist or belongs to another tenant.
pub(crate) fn session_not_found(session: SessionId) -> Error {
    Error::NotFound { what: "session", name: session.to_string() }
}

pub(crate) fn tenant_of(id: Uuid) -> TenantId {
    id.into()
}
