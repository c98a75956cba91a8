//! Storing a summary that was made beside the turns.
//!
//! Nobody claims a session for it, so that no turn waits for it or is fenced by it: it is written
//! only while the session is at rest, in one statement under the row's lock. A session that is ready
//! or runs is not even locked. What was said since the summary was planned it does not stand for:
//! it keeps so many entries more.
//!
//! **What can go wrong.** A conversation that began anew meanwhile, or that somebody else
//! summarised, has no use for it, and one would bring back what its user has put away: it is dropped.

use holdfast_pg::TenantTx;
use holdfast_types::{Entry, Note, RunId, SessionId, TenantId};
use sqlx::types::Json;

use crate::{Error, Sessions};

/// A summary, as it was planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSummary {
    /// The run after whose end it was planned.
    pub run: RunId,
    /// The journal's next place then.
    pub at: i64,
    /// What it says.
    pub text: String,
    /// How many of the newest entries it did not stand for then.
    pub keeps: u32,
}

/// What became of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summarised {
    /// It is stored.
    Stored,
    /// A turn is under way: try again once it has ended.
    Busy,
    /// It is of no use any more: the conversation began anew, was summarised, or is gone.
    Stale,
}

impl Sessions {
    /// Stores a summary in a session that is at rest.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn keep_summary(
        &self,
        tenant: TenantId,
        session: SessionId,
        summary: &NewSummary,
    ) -> Result<Summarised, Error> {
        const LOOK: &str = "
            select next_entry, exists (
                select from session.entries e
                where e.tenant_id = $1 and e.session_id = $2 and e.seq >= $3 and e.kind = 'noted'
                  and e.body->>'note' in ('reset', 'summary'))
            from session.session_lease where tenant_id = $1 and session_id = $2";
        // Whoever changes the journal changes the place first looked at, so that what was looked at
        // still holds.
        const STORE: &str = "
            with held as materialized (
                select epoch from session.session_lease
                where tenant_id = $1 and session_id = $2 and next_entry = $3
                  and state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT')
                for update),
            written as (
                insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
                select $1, $2, $3, held.epoch, $4, $5, $6 from held)
            update session.session_lease l set next_entry = $3 + 1
            from held where l.tenant_id = $1 and l.session_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let looked: Option<(i64, bool)> = sqlx::query_as(LOOK)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(summary.at)
            .fetch_optional(tx.conn())
            .await?;
        let Some((next, false)) = looked else {
            tx.finish_reading();
            return Ok(Summarised::Stale);
        };
        let Ok(since) = u32::try_from(next - summary.at) else {
            // The journal is shorter than it was: it is another one.
            tx.finish_reading();
            return Ok(Summarised::Stale);
        };
        let entry = Entry::summary(summary.text.as_str(), summary.keeps.saturating_add(since));
        let stored = sqlx::query(STORE)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(next)
            .bind(summary.run.as_uuid())
            .bind(entry.kind())
            .bind(Json(&entry))
            .execute(tx.conn())
            .await?;
        let is_stored = stored.rows_affected() > 0;
        if is_stored {
            show(&mut tx, session, std::slice::from_ref(&entry)).await?;
        }
        tx.commit().await?;
        Ok(if is_stored { Summarised::Stored } else { Summarised::Busy })
    }
}

/// Shows the newest summary of what was just stored beside the session; one that began anew has
/// none. The session's lease row must be locked.
pub(crate) async fn show(
    tx: &mut TenantTx,
    session: SessionId,
    entries: &[Entry],
) -> Result<(), Error> {
    const SQL: &str = "
        update session.sessions set summary = $3 where tenant_id = $1 and session_id = $2";

    let newest = entries.iter().rev().find_map(|entry| match entry {
        Entry::Noted { note: Note::Summary, text, .. } => Some(text.as_str()),
        Entry::Noted { note: Note::Reset, .. } => Some(""),
        Entry::Noted { .. }
        | Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. } => None,
    });
    let Some(newest) = newest else { return Ok(()) };
    let tenant = tx.tenant();
    sqlx::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(newest)
        .execute(tx.conn())
        .await?;
    Ok(())
}
