//! System events: short texts that are added to a conversation's next turn (spec CRN-022).
//!
//! A turn receives the pending events when it is loaded. They are marked as taken in the
//! transaction that stores the turn's entries: after a crash before that, the next turn receives
//! them again, and no event is delivered twice. Events are stored by session key, so that they can
//! exist before the session.
//!
//! | rule | |
//! |---|---|
//! | at most 20 events are pending | the oldest is dropped |
//! | an event with the same text as the last pending one | is not added |
//! | an event whose idempotency key was used before | is not added, even if it was taken meanwhile |

use holdfast_pg::TenantTx;
use holdfast_types::{Entry, RunId, SessionKey, SessionPost, SignedAuthor, SystemEvent, TenantId};
use sqlx::types::Json;

use crate::{Error, Sessions};

/// Maximum number of pending events of a conversation.
pub const MAX_PENDING_EVENTS: i64 = 20;

/// Maximum length of an event's text, in characters; longer texts are truncated.
pub const MAX_EVENT_CHARS: usize = 16_000;

/// A text for a conversation's next turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSystemEvent {
    /// Session key of the conversation.
    pub key: SessionKey,
    /// Idempotency key, 1 to 256 bytes; unique in the tenant.
    pub idem_key: String,
    pub text: String,
    /// The text may repeat text from outside.
    pub outside: bool,
    /// Set if a signed job says the text. Of a scheduler's events without it, the database notes that
    /// they are from outside.
    pub signed: Option<SignedAuthor>,
}

impl Sessions {
    /// Adds an event to a conversation's next turn. Returns whether the event was new.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidIdemKey`] if the idempotency key is empty or too long.
    pub async fn add_system_event(
        &self,
        tenant: TenantId,
        event: &NewSystemEvent,
    ) -> Result<bool, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let is_new = insert_event(&mut tx, event).await?;
        tx.commit().await?;
        Ok(is_new)
    }
}

/// Adds an event within the caller's transaction.
pub(crate) async fn insert_event(tx: &mut TenantTx, event: &NewSystemEvent) -> Result<bool, Error> {
    // Writers to one conversation are serialised, because the new text is compared with the last
    // one.
    const SERIALISE_WRITERS: &str = "
        select pg_advisory_xact_lock(hashtextextended('session.system_events:' || $1 || ':' || $2, 0))";
    const ADD: &str = "
        insert into session.system_events (tenant_id, key, idem_key, text, outside, signed)
        select $1, $2, $3, $4, $5, $6
        where $4 is distinct from (
            select text from session.system_events
            where tenant_id = $1 and key = $2 and gone_at is null order by event_id desc limit 1)
        on conflict on constraint system_events_idem_key do nothing";
    const TRIM: &str = "
        update session.system_events set gone_at = clock_timestamp()
        where tenant_id = $1 and event_id in (
            select event_id from session.system_events
            where tenant_id = $1 and key = $2 and gone_at is null
            order by event_id desc offset $3)";

    if !(1..=256).contains(&event.idem_key.len()) {
        return Err(Error::InvalidIdemKey(event.idem_key.len()));
    }
    let text = clean_text(&event.text);
    if text.is_empty() {
        return Ok(false);
    }
    let tenant = tx.tenant();
    holdfast_pg::query(SERIALISE_WRITERS)
        .bind(tenant.as_uuid().to_string())
        .bind(event.key.as_str())
        .execute(tx.conn())
        .await?;
    let added = holdfast_pg::query(ADD)
        .bind(tenant.as_uuid())
        .bind(event.key.as_str())
        .bind(&event.idem_key)
        .bind(text)
        .bind(event.outside)
        .bind(event.signed.as_ref().map(Json))
        .execute(tx.conn())
        .await?
        .rows_affected();
    if added == 1 {
        holdfast_pg::query(TRIM)
            .bind(tenant.as_uuid())
            .bind(event.key.as_str())
            .bind(MAX_PENDING_EVENTS)
            .execute(tx.conn())
            .await?;
    }
    Ok(added == 1)
}

/// Applies the entries' effects on system events, in the transaction that stores the entries:
/// events that the turn received are marked as taken, and events that it posts are added.
pub(crate) async fn apply_system_events(
    tx: &mut TenantTx,
    run: RunId,
    entries: &[Entry],
) -> Result<(), Error> {
    const MARK_TAKEN: &str = "
        update session.system_events set gone_at = clock_timestamp()
        where tenant_id = $1 and event_id = any($2) and gone_at is null";

    let told: Vec<i64> =
        entries.iter().flat_map(SystemEvent::from_entry).map(|event| event.id).collect();
    if !told.is_empty() {
        let tenant = tx.tenant();
        holdfast_pg::query(MARK_TAKEN).bind(tenant.as_uuid()).bind(told).execute(tx.conn()).await?;
    }
    for posted in entries.iter().filter_map(SessionPost::from_entry) {
        let idem_key = format!("post:{run}");
        let SessionPost { key, text, outside } = posted;
        insert_event(tx, &NewSystemEvent { key, idem_key, text, outside, signed: None }).await?;
    }
    Ok(())
}

/// Returns the text without NUL characters, trimmed and truncated to the maximum length.
fn clean_text(text: &str) -> String {
    let plain: String = text.chars().filter(|c| *c != '\0').collect();
    plain.trim().chars().take(MAX_EVENT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_stored_is_left_out() {
        assert_eq!(clean_text(" a\0b "), "ab");
        assert_eq!(clean_text(&"語".repeat(20_000)).chars().count(), MAX_EVENT_CHARS);
    }
}
