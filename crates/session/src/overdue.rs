//! Ending a message that takes too long, and nothing but that: who speaks to a conversation that others
//! speak to as well knows the place of its own message, and not whose turn it is.

use holdfast_pg::TenantTx;
use holdfast_types::{SessionId, State, TenantId};

use crate::{
    Error, Running, Sessions,
    hold::{end_seen, oldest, running},
    sessions::{Lease, lock, no_session},
    sweep::{KeepWait, make_ready},
};

/// What became of a message that takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// A turn is at it: whoever runs that is to be told to stop.
    Stopped(Running),
    /// Its turn waited for a person's word and waits no more; whether somebody should claim.
    Woken(bool),
    /// A turn is at it, and was left alone.
    Begun,
    /// No turn is at it: it waits for its turn, or has ended by now.
    Waits,
    /// There is no such message, or none any more.
    Gone,
}

impl Sessions {
    /// Asks for the end of the turn that is at a message, if one is. Another's is left alone.
    ///
    /// # Errors
    ///
    /// If there is no such session, or the database does not answer.
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

    /// Whether a turn is at a message; nothing is ended.
    ///
    /// # Errors
    ///
    /// As [`end_overdue`](Self::end_overdue).
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

/// Whose turn it is in a session, for one message.
enum Turn {
    Runs(Running),
    WaitsForWord,
    Another,
}

async fn turn(tx: &mut TenantTx, lease: &Lease, seq: i64, state: &str) -> sqlx::Result<Turn> {
    let seen = state == "seen";
    if let Some(running) = running(lease) {
        // A turn marks what it has seen with its first write; until then it is the oldest.
        if seen || oldest(tx, lease.session).await? == Some(seq) {
            return Ok(Turn::Runs(running));
        }
    } else if seen && lease.state == State::WaitForEvent && lease.wait.is_for_approval() {
        return Ok(Turn::WaitsForWord);
    }
    Ok(Turn::Another)
}

/// The word for how far a message is.
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
