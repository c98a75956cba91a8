//! Storing a conversation summary that was made outside of a turn.
//!
//! The write claims no session, so no turn waits for it or is fenced by it. It happens only while
//! the session is idle, in one statement under the row's lock; a ready or running session is not
//! even locked. A session that waits for an approval is not idle: its turn is open, and an entry of
//! another run in the midst of it would make the turn go on as that run. Entries that were added
//! since the summary was planned are not covered by it, so `keeps` grows by their number.
//!
//! **What can go wrong.** A conversation that was reset or summarised in the meantime must not get
//! this summary: it would bring back text that the user has removed. The summary is dropped.

use holdfast_pg::TenantTx;
use holdfast_types::{APPROVAL_RESOLVED, Entry, Note, RunId, SessionId, TenantId};
use sqlx::types::Json;

use crate::{Error, Sessions};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSummary {
    /// Run after whose end the summary was planned.
    pub run: RunId,
    /// Next `seq` of the journal at that time.
    pub at: i64,
    pub text: String,
    /// Number of newest entries that the summary did not cover at that time.
    pub keeps: u32,
}

/// Outcome of storing a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryResult {
    Stored,
    /// A turn is queued, running or waits for an approval: try again after it.
    Busy,
    /// The summary is outdated: the conversation was reset, summarised or deleted.
    Stale,
}

impl Sessions {
    /// Stores a summary in an idle session.
    pub async fn store_summary(
        &self,
        tenant: TenantId,
        session: SessionId,
        summary: &NewSummary,
    ) -> Result<SummaryResult, Error> {
        const READ_JOURNAL_END: &str = "
            select next_entry, exists (
                select from session.entries e
                where e.tenant_id = $1 and e.session_id = $2 and e.seq >= $3 and e.kind = 'noted'
                  and e.body->>'note' in ('reset', 'summary'))
            from session.session_lease where tenant_id = $1 and session_id = $2";
        // Every write to the journal moves `next_entry`, so the check above still holds if it is
        // unchanged.
        const STORE: &str = "
            with held as materialized (
                select epoch from session.session_lease
                where tenant_id = $1 and session_id = $2 and next_entry = $3
                  and state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT')
                  and wait #>> '{filter,event}' is distinct from $7
                for update),
            written as (
                insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
                select $1, $2, $3, held.epoch, $4, $5, $6 from held)
            update session.session_lease l set next_entry = $3 + 1
            from held where l.tenant_id = $1 and l.session_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let looked: Option<(i64, bool)> = holdfast_pg::query_as(READ_JOURNAL_END)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(summary.at)
            .fetch_optional(tx.conn())
            .await?;
        let Some((next, false)) = looked else {
            tx.finish_reading();
            return Ok(SummaryResult::Stale);
        };
        let Ok(since) = u32::try_from(next - summary.at) else {
            // The journal is shorter than before, so it is not the one that was summarised.
            tx.finish_reading();
            return Ok(SummaryResult::Stale);
        };
        let entry = Entry::summary(summary.text.as_str(), summary.keeps.saturating_add(since));
        let stored = holdfast_pg::query(STORE)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(next)
            .bind(summary.run.as_uuid())
            .bind(entry.kind())
            .bind(Json(&entry))
            .bind(APPROVAL_RESOLVED)
            .execute(tx.conn())
            .await?;
        let is_stored = stored.rows_affected() > 0;
        if is_stored {
            copy_summary_to_session(&mut tx, session, std::slice::from_ref(&entry)).await?;
        }
        tx.commit().await?;
        Ok(if is_stored { SummaryResult::Stored } else { SummaryResult::Busy })
    }
}

/// Copies the newest summary among the stored entries to the session; a reset clears it. The
/// session's lease row must be locked.
pub(crate) async fn copy_summary_to_session(
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
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(newest)
        .execute(tx.conn())
        .await?;
    Ok(())
}
