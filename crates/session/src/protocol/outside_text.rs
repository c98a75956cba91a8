//! Mark of sessions that have read text from outside.
//!
//! A summary replaces the entries that brought the text, but may repeat it. So the session keeps the
//! mark, whatever becomes of the entries, until a reset removes all that was said.

use holdfast_pg::TenantTx;
use holdfast_types::{Entry, Note, SessionId};

use crate::{Claim, Error, Sessions, sessions::lock_claimed};

const MARK: &str = "
    update session.sessions set outside_since = clock_timestamp()
    where tenant_id = $1 and session_id = $2 and outside_since is null";

impl Sessions {
    /// Marks a claimed session whose prompt has text from outside that none of its new entries
    /// brings.
    ///
    /// # Errors
    ///
    /// If the claim is not the session's any more, or the database fails.
    pub async fn mark_prompt_outside(&self, claim: &Claim) -> Result<(), Error> {
        let mut tx = self.pools.tenant(claim.tenant).await?;
        lock_claimed(&mut tx, claim).await?;
        apply(&mut tx, claim.session, MARK).await?;
        Ok(tx.commit().await?)
    }
}

/// Marks the session if one of the entries brings text from outside; a reset removes the mark. The
/// session's lease row must be locked.
pub(crate) async fn mark_outside_text(
    tx: &mut TenantTx,
    session: SessionId,
    entries: &[Entry],
) -> Result<(), Error> {
    const UNMARK: &str = "
        update session.sessions set outside_since = null
        where tenant_id = $1 and session_id = $2 and outside_since is not null";

    let is_reset = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Reset, .. });
    let sql = match entries.iter().rposition(is_reset) {
        Some(at) if !entries[at + 1..].iter().any(Entry::is_outside_text) => UNMARK,
        None if !entries.iter().any(Entry::is_outside_text) => return Ok(()),
        Some(_) | None => MARK,
    };
    apply(tx, session, sql).await
}

async fn apply(tx: &mut TenantTx, session: SessionId, sql: &'static str) -> Result<(), Error> {
    let tenant = tx.tenant();
    holdfast_pg::query(sql)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .execute(tx.conn())
        .await?;
    Ok(())
}
