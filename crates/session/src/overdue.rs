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
        let overdue = end(&mut tx, &lease, seq, &state).await?;
        match overdue {
            Overdue::Waits | Overdue::Gone => tx.rollback().await?,
            Overdue::Stopped(_) | Overdue::Woken(_) => tx.commit().await?,
        }
        Ok(overdue)
    }
}

async fn end(tx: &mut TenantTx, lease: &Lease, seq: i64, state: &str) -> Result<Overdue, Error> {
    let seen = state == "seen";
    if let Some(running) = running(lease) {
        // A turn marks what it has seen with its first write; until then it is the oldest.
        if seen || oldest(tx, lease.session).await? == Some(seq) {
            end_seen(tx, lease.session, Some(seq)).await?;
            return Ok(Overdue::Stopped(running));
        }
    } else if seen && lease.state == State::WaitForEvent && lease.wait.is_for_approval() {
        end_seen(tx, lease.session, None).await?;
        return Ok(Overdue::Woken(make_ready(tx, lease, KeepWait::No).await?));
    }
    Ok(Overdue::Waits)
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
