//! Ending the turn of one message that takes too long, without ending the turns of other messages
//! in the same session.

use holdfast_pg::TenantTx;
use holdfast_types::{SessionId, State, TenantId};

use crate::{
    Error, Running, Sessions,
    hold::{end_seen, oldest, running},
    sessions::{Lease, lock, no_session},
    sweep::{KeepWait, make_ready},
};

/// State of a message that takes too long, after the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// A turn handles the message: its runner must be told to stop.
    Stopped(Running),
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
    ) -> Result<Overdue, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let lease = lock(&mut tx, session).await?.ok_or_else(|| no_session(session))?;
        let Some(state) = state(&mut tx, session, seq).await? else {
            tx.rollback().await?;
            return Ok(Overdue::Gone);
        };
        let overdue = match turn(&mut tx, &lease, seq, &state).await? {
            Turn::Runs(running) => {
                end_seen(&mut tx, session, Some(seq)).await?;
                Overdue::Stopped(running)
            }
            Turn::WaitsForWord => {
                end_seen(&mut tx, session, None).await?;
                Overdue::Woken(make_ready(&mut tx, &lease, KeepWait::No).await?)
            }
            Turn::Another => {
                tx.rollback().await?;
                return Ok(Overdue::Waits);
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
    pub async fn look_overdue(
        &self,
        tenant: TenantId,
        session: SessionId,
        seq: i64,
    ) -> Result<Overdue, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let lease = lock(&mut tx, session).await?.ok_or_else(|| no_session(session))?;
        let overdue = match state(&mut tx, session, seq).await? {
            None => Overdue::Gone,
            Some(state) => match turn(&mut tx, &lease, seq, &state).await? {
                Turn::Runs(_) | Turn::WaitsForWord => Overdue::Begun,
                Turn::Another => Overdue::Waits,
            },
        };
        tx.rollback().await?;
        Ok(overdue)
    }
}

/// Current turn of a session, from the point of view of one message.
enum Turn {
    Runs(Running),
    WaitsForWord,
    Another,
}

async fn turn(tx: &mut TenantTx, lease: &Lease, seq: i64, state: &str) -> sqlx::Result<Turn> {
    let seen = state == "seen";
    if let Some(running) = running(lease) {
        // A turn marks the messages it has seen with its first write. Until then its message is the
        // oldest one.
        if seen || oldest(tx, lease.session).await? == Some(seq) {
            return Ok(Turn::Runs(running));
        }
    } else if seen && lease.state == State::WaitForEvent && lease.wait.is_for_approval() {
        return Ok(Turn::WaitsForWord);
    }
    Ok(Turn::Another)
}

/// Returns the name of a message's state; `None` if there is no such message.
async fn state(tx: &mut TenantTx, session: SessionId, seq: i64) -> sqlx::Result<Option<String>> {
    const SQL: &str = "
        select state from session.inbox where tenant_id = $1 and session_id = $2 and seq = $3";
    let tenant = tx.tenant();
    sqlx::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(seq)
        .fetch_optional(tx.conn())
        .await
}
