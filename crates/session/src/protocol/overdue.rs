//! Ending the turn of one message that takes too long, without ending the turns of other messages
//! in the same session.

use holdfast_pg::TenantTx;
use holdfast_types::{SessionId, SessionState, TenantId};

use super::{
    pause::{cancel_seen_messages, current_owner, oldest_seq},
    sweep::{KeepWait, make_ready},
};
use crate::{
    Error, SessionOwner, Sessions,
    sessions::{Lease, lock, session_not_found},
};

/// State of a message that takes too long, after the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverdueResult {
    /// A turn handles the message: its runner must be told to stop.
    Stopped(SessionOwner),
    /// The message's turn waited for an approval and is ended; whether a wake-up should be sent.
    Woken(bool),
    /// A turn handles the message, and was not ended.
    Begun,
    /// No turn handles the message: it is queued or finished.
    Waits,
    /// There is no such message, or it was pruned.
    Gone,
}

impl Sessions {
    /// Requests the end of the turn that handles a message, if there is one. Turns of other
    /// messages are not affected.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn end_overdue(
        &self,
        tenant: TenantId,
        session: SessionId,
        seq: i64,
    ) -> Result<OverdueResult, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let lease = lock(&mut tx, session).await?.ok_or_else(|| session_not_found(session))?;
        let Some(state) = state(&mut tx, session, seq).await? else {
            tx.rollback().await?;
            return Ok(OverdueResult::Gone);
        };
        let overdue = match turn(&mut tx, &lease, seq, &state).await? {
            MessageTurn::Runs(running) => {
                cancel_seen_messages(&mut tx, session, Some(seq)).await?;
                OverdueResult::Stopped(running)
            }
            MessageTurn::WaitsForApproval => {
                cancel_seen_messages(&mut tx, session, None).await?;
                OverdueResult::Woken(make_ready(&mut tx, &lease, KeepWait::No).await?)
            }
            MessageTurn::Another => {
                tx.rollback().await?;
                return Ok(OverdueResult::Waits);
            }
        };
        tx.commit().await?;
        Ok(overdue)
    }

    /// Returns whether a turn handles a message, without ending it.
    ///
    /// # Errors
    ///
    /// As for [`end_overdue`](Self::end_overdue).
    pub async fn check_overdue(
        &self,
        tenant: TenantId,
        session: SessionId,
        seq: i64,
    ) -> Result<OverdueResult, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let lease = lock(&mut tx, session).await?.ok_or_else(|| session_not_found(session))?;
        let overdue = match state(&mut tx, session, seq).await? {
            None => OverdueResult::Gone,
            Some(state) => match turn(&mut tx, &lease, seq, &state).await? {
                MessageTurn::Runs(_) | MessageTurn::WaitsForApproval => OverdueResult::Begun,
                MessageTurn::Another => OverdueResult::Waits,
            },
        };
        tx.rollback().await?;
        Ok(overdue)
    }
}

/// Current turn of a session, from the point of view of one message.
enum MessageTurn {
    Runs(SessionOwner),
    WaitsForApproval,
    Another,
}

async fn turn(
    tx: &mut TenantTx,
    lease: &Lease,
    seq: i64,
    state: &str,
) -> sqlx::Result<MessageTurn> {
    let seen = state == "seen";
    if let Some(running) = current_owner(lease) {
        // A turn marks the messages it has seen with its first write. Until then its message is the
        // oldest one.
        if seen || oldest_seq(tx, lease.session).await? == Some(seq) {
            return Ok(MessageTurn::Runs(running));
        }
    } else if seen && lease.state == SessionState::WaitForEvent && lease.wait.is_for_approval() {
        return Ok(MessageTurn::WaitsForApproval);
    }
    Ok(MessageTurn::Another)
}

/// Returns the name of a message's state; `None` if there is no such message.
async fn state(tx: &mut TenantTx, session: SessionId, seq: i64) -> sqlx::Result<Option<String>> {
    const SQL: &str = "
        select state from session.inbox where tenant_id = $1 and session_id = $2 and seq = $3";
    let tenant = tx.tenant();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(seq)
        .fetch_optional(tx.conn())
        .await
}
