//! Pausing, resuming and cancelling sessions, and the cascade to child sessions.
//!
//! A cascade handles the parent first, uses one transaction per session, and is idempotent. A
//! session that was paused by a user stays paused; only a session that was paused for its parent
//! resumes with it (spec STM-019).

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{SessionId, SessionState, TenantId};
use uuid::Uuid;

use super::{
    complete::has_waking_message,
    sweep::{KeepWait, make_ready},
};
use crate::{
    Error, SessionOwner, Sessions,
    sessions::{Lease, lock, session_not_found},
};

/// Sessions that a pause reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PauseResult {
    /// Number of sessions that are paused now and were not before.
    pub sessions: u32,
    /// Those of them that a runner has. They stop at their next step boundary, sooner if the runner
    /// is told.
    pub running: Vec<(SessionId, SessionOwner)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResumeResult {
    /// Number of sessions that were paused and are not any more.
    pub sessions: u32,
    /// A wake-up should be sent.
    pub wake: bool,
}

/// The turn that a cancellation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelResult {
    /// The session has no turn.
    Nothing,
    /// A runner has the turn. It ends at its next step boundary, sooner if the runner is told.
    Running(SessionOwner),
    /// The turn waits for an approval; `wake` tells whether a wake-up should be sent.
    Waiting { wake: bool },
    /// The turn waits for a runner, and ends as soon as one has it; `wake` tells whether a wake-up
    /// should be sent.
    Queued { wake: bool },
}

impl CancelResult {
    /// The runner that should be told.
    #[must_use]
    pub const fn owner(self) -> Option<SessionOwner> {
        match self {
            Self::Running(running) => Some(running),
            Self::Nothing | Self::Waiting { .. } | Self::Queued { .. } => None,
        }
    }
}

impl Sessions {
    /// Pauses a session and its descendants.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session. After any other error a repetition
    /// continues where this call stopped.
    pub async fn pause(&self, tenant: TenantId, session: SessionId) -> Result<PauseResult, Error> {
        let mut held = PauseResult::default();
        pause_one(&self.pools, tenant, session, "user", &mut held).await?;
        let mut parents = vec![session];
        while let Some(parent) = parents.pop() {
            for child in children(&self.pools, tenant, parent).await? {
                pause_one(&self.pools, tenant, child, "parent", &mut held).await?;
                parents.push(child);
            }
        }
        Ok(held)
    }

    /// Resumes a session, and the descendants that were paused with it.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Self::pause).
    pub async fn resume(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<ResumeResult, Error> {
        let mut resumed = ResumeResult::default();
        resume_one(&self.pools, tenant, session, None, &mut resumed).await?;
        let mut parents = vec![session];
        while let Some(parent) = parents.pop() {
            for child in children(&self.pools, tenant, parent).await? {
                // A child that a user paused keeps its descendants paused.
                if resume_one(&self.pools, tenant, child, Some("parent"), &mut resumed).await? {
                    parents.push(child);
                }
            }
        }
        Ok(resumed)
    }

    /// Requests the end of the turn of a session, whether it runs, is queued or waits for an
    /// approval. Messages of later turns are not affected.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn cancel(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<CancelResult, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let lease = lock(&mut tx, session).await?.ok_or_else(|| session_not_found(session))?;
        let waits = lease.state == SessionState::WaitForEvent && lease.wait.is_for_approval();
        let result = if waits {
            cancel_seen_messages(&mut tx, session, None).await?;
            CancelResult::Waiting { wake: make_ready(&mut tx, &lease, KeepWait::No).await? }
        } else if matches!(lease.state, SessionState::Ready | SessionState::Running) {
            let owner = current_owner(&lease);
            // A turn marks the messages it has seen with its first write. Until then a running turn
            // is sure to have seen the oldest one; the others may have come after it began.
            let last = match owner {
                Some(_) => oldest_seq(&mut tx, session).await?,
                None => last_seq_of_next_turn(&mut tx, session).await?,
            };
            let is_any = cancel_seen_messages(&mut tx, session, last).await?;
            match owner {
                Some(running) => CancelResult::Running(running),
                None if is_any => {
                    CancelResult::Queued { wake: end_backoff(&mut tx, session).await? }
                }
                None => CancelResult::Nothing,
            }
        } else {
            CancelResult::Nothing
        };
        tx.commit().await?;
        Ok(result)
    }
}

async fn pause_one(
    pools: &Pools,
    tenant: TenantId,
    session: SessionId,
    reason: &'static str,
    held: &mut PauseResult,
) -> Result<(), Error> {
    const PAUSE: &str = "
        update session.session_lease
        set paused = $3, fair_key = case when state = 'READY' then null else fair_key end
        where tenant_id = $1 and session_id = $2";
    const PAUSE_AND_LEAVE_FLIGHT: &str = "
        with freed as (
            update session.tenant_flight set in_flight = in_flight - 1
            where tenant_id = $1 and shard = session.shard($2))
        update session.session_lease set paused = $3, fair_key = null
        where tenant_id = $1 and session_id = $2";

    let mut tx = pools.tenant(tenant).await?;
    let Some(lease) = lock(&mut tx, session).await? else {
        // A child that was deleted meanwhile needs no pause.
        return if reason == "user" { Err(session_not_found(session)) } else { Ok(()) };
    };
    if lease.paused {
        tx.rollback().await?;
        return Ok(());
    }
    let admitted = lease.state == SessionState::Ready && is_admitted(&mut tx, session).await?;
    holdfast_pg::query(if admitted { PAUSE_AND_LEAVE_FLIGHT } else { PAUSE })
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(reason)
        .execute(tx.conn())
        .await?;
    tx.commit().await?;
    held.sessions += 1;
    held.running.extend(current_owner(&lease).map(|running| (session, running)));
    Ok(())
}

/// Resumes one session; with `only`, only if it was paused for this reason. Returns whether the
/// cascade continues with its children.
async fn resume_one(
    pools: &Pools,
    tenant: TenantId,
    session: SessionId,
    only: Option<&'static str>,
    resumed: &mut ResumeResult,
) -> Result<bool, Error> {
    const SQL: &str = "
        update session.session_lease set paused = null
        where tenant_id = $1 and session_id = $2 and paused is not null
          and ($3::text is null or paused = $3)";

    let mut tx = pools.tenant(tenant).await?;
    let Some(mut lease) = lock(&mut tx, session).await? else {
        return if only.is_none() { Err(session_not_found(session)) } else { Ok(false) };
    };
    let changed = holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(only)
        .execute(tx.conn())
        .await?
        .rows_affected();
    if changed == 0 {
        // Not paused: a repeated cascade still visits the children.
        tx.rollback().await?;
        return Ok(!lease.paused);
    }
    lease.paused = false;

    let resting = !matches!(lease.state, SessionState::Ready | SessionState::Running);
    let wants = resting
        && lease.unfinished_messages() > 0
        && has_waking_message(&mut tx, &lease, &lease.wait, &[]).await?;
    if lease.state == SessionState::Ready || wants {
        let keep = if wants { KeepWait::No } else { KeepWait::Yes };
        resumed.wake |= make_ready(&mut tx, &lease, keep).await?;
    }
    tx.commit().await?;
    resumed.sessions += 1;
    Ok(true)
}

async fn children(
    pools: &Pools,
    tenant: TenantId,
    parent: SessionId,
) -> Result<Vec<SessionId>, Error> {
    const SQL: &str = "
        select session_id from session.sessions where tenant_id = $1 and parent_id = $2";
    let mut tx = pools.tenant(tenant).await?;
    let children: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(parent.as_uuid())
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    Ok(children.into_iter().map(SessionId::from).collect())
}

/// Marks the messages that a turn has seen as cancelled, and unseen ones up to `first`. Returns
/// whether there are any.
pub(crate) async fn cancel_seen_messages(
    tx: &mut TenantTx,
    session: SessionId,
    first: Option<i64>,
) -> sqlx::Result<bool> {
    const SQL: &str = "
        update session.session_lease
        set cancel_upto = greatest(cancel_upto, upto.seq)
        from (select max(seq) as seq from session.inbox
              where tenant_id = $1 and session_id = $2
                and (state = 'seen' or (state = 'new' and seq <= $3))) upto
        where tenant_id = $1 and session_id = $2
        returning upto.seq is not null";

    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(first)
        .fetch_one(tx.conn())
        .await
}

/// Lets a ready session run at once. Returns whether it has a slot in flight.
async fn end_backoff(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<bool> {
    const SQL: &str = "
        update session.session_lease set ready_at = least(ready_at, clock_timestamp())
        where tenant_id = $1 and session_id = $2
        returning fair_key is not null and paused is null";

    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_one(tx.conn())
        .await
}

pub(crate) fn current_owner(lease: &Lease) -> Option<SessionOwner> {
    match (lease.state, lease.owner) {
        (SessionState::Running, Some(owner)) => {
            Some(SessionOwner { owner: owner.into(), epoch: lease.epoch })
        }
        _ => None,
    }
}

async fn is_admitted(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<bool> {
    const SQL: &str = "
        select fair_key is not null from session.session_lease
        where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_one(tx.conn())
        .await
}

/// Returns the last message that the next turn of the session takes: the oldest one, and with the
/// modes that combine messages those after it.
async fn last_seq_of_next_turn(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<Option<i64>> {
    const SQL: &str = "
        with unfinished as (
            select seq, row_number() over (order by seq) = 1 as is_first,
                   -- A command is a turn of its own.
                   mode in ('steer', 'collect')
                       and coalesce(ltrim(body->>'text'), '') not like '/%' as is_combined
            from session.inbox
            where tenant_id = $1 and session_id = $2 and state in ('new', 'seen')
              and not coalesce((body->>'silent')::boolean, false))
        select max(seq) from unfinished u
        where u.is_first
           or not exists (select from unfinished e where e.seq <= u.seq and not e.is_combined)";
    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_one(tx.conn())
        .await
}

pub(crate) async fn oldest_seq(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<Option<i64>> {
    const SQL: &str = "
        select min(seq) from session.inbox
        where tenant_id = $1 and session_id = $2 and state in ('new', 'seen')
          and not coalesce((body->>'silent')::boolean, false)";
    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .fetch_one(tx.conn())
        .await
}
