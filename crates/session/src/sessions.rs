//! The protocol's face: one value over the database, with a method for each verb.

use std::{sync::Arc, time::Duration};

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{SessionId, State, TenantId, Wait};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Claim, Error, claim::LEASE, deliver::SENDING, tails::Tails};

/// The session protocol over a database. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Sessions {
    pub(crate) pools: Pools,
    pub(crate) lease: Duration,
    pub(crate) sending: Duration,
    pub(crate) tails: Arc<Tails>,
}

/// How far a tenant's place in the fair order moves with each session that becomes ready, at
/// weight 1. A multiple of every weight up to 16, so that shares are exact where it matters.
pub(crate) const TURN: i64 = 720_720;

impl Sessions {
    /// The protocol over these pools.
    #[must_use]
    pub fn new(pools: Pools) -> Self {
        Self { pools, lease: LEASE, sending: SENDING, tails: Arc::default() }
    }

    /// The same with claims that last so long without being renewed, instead of [`LEASE`].
    ///
    /// Every runner of a database should have the same; a shorter one finds a lost runner sooner
    /// and is lost sooner itself when it is held up.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// The same with sends that may take so long before another bridge looks at them, instead of
    /// [`SENDING`].
    #[must_use]
    pub fn with_sending(self, sending: Duration) -> Self {
        Self { sending, ..self }
    }

    /// How long a claim lasts without being renewed.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }
}

/// A session's lease row, locked.
pub(crate) struct Lease {
    pub session: SessionId,
    pub state: State,
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
            // A check constraint keeps other words out.
            state: State::parse(&row.1).unwrap_or(State::Wait),
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
    /// Messages that are accepted and not finished.
    pub const fn open(&self) -> i64 {
        self.next_in - 1 - self.done_in
    }
}

/// Locks a session's row, whoever has it. `None` if the tenant has no such session.
pub(crate) async fn lock(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<Option<Lease>> {
    const SQL: &str = "
        select session_id, state, paused is not null, wait, epoch, owner, next_in, done_in,
               next_out, next_entry, attempts, workspace
        from session.session_lease
        where tenant_id = $1 and session_id = $2
        for update";

    let tenant = tx.tenant();
    let row = sqlx::query_as::<_, LeaseRow>(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Lease::from))
}

/// Locks a session's row for the runner that claimed it, and for no other.
///
/// This is the fence: under the row's lock, a claim whose epoch is not the row's is refused.
pub(crate) async fn lock_claimed(tx: &mut TenantTx, claim: &Claim) -> Result<Lease, Error> {
    match lock(tx, claim.session).await? {
        Some(lease) if lease.epoch == claim.epoch && lease.state == State::Running => Ok(lease),
        _ => Err(fenced(claim)),
    }
}

/// What a runner is told that writes with a claim that is not the session's; it is counted.
pub(crate) fn fenced(claim: &Claim) -> Error {
    metrics::counter!("holdfast_session_fenced_writes_total").increment(1);
    Error::Fenced { held: claim.epoch }
}

/// What a caller is told who asks for another's session, or for one that never was.
pub(crate) fn no_session(session: SessionId) -> Error {
    Error::NotFound { what: "session", name: session.to_string() }
}

pub(crate) fn tenant_of(id: Uuid) -> TenantId {
    id.into()
}
