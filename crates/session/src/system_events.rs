//! System events: short texts that wait for a conversation's next turn (spec CRN-022).
//!
//! A turn is told of those that wait when it is loaded, and takes them in the transaction that
//! stores that it was told: whoever dies in between leaves them to the next turn, and none is told
//! twice. They are known by the conversation's key, so that there may be some before it has begun.
//!
//! | rule | |
//! |---|---|
//! | at most 20 wait | the oldest goes |
//! | one that says what the last one says | is not added |
//! | one that is told again under its key | is not added, whether or not it was read meanwhile |

use holdfast_pg::TenantTx;
use holdfast_types::{Entry, Posted, RunId, SessionKey, SystemEvent, TenantId};

use crate::{Error, Sessions};

/// How many wait in a conversation.
pub const MOST_EVENTS: i64 = 20;

/// The longest text, in characters; what is longer is cut.
pub const LONGEST_EVENT: usize = 16_000;

/// A text for a conversation's next turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSystemEvent {
    /// The conversation.
    pub key: SessionKey,
    /// What makes it the same one when it is told again, 1 to 256 bytes; unique in the tenant.
    pub idem_key: String,
    /// What is told.
    pub text: String,
}

impl Sessions {
    /// Tells a conversation something with its next turn, and says whether it was new.
    ///
    /// # Errors
    ///
    /// If its key is none, or the database does not answer.
    pub async fn add_system_event(
        &self,
        tenant: TenantId,
        event: &NewSystemEvent,
    ) -> Result<bool, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let is_new = add(&mut tx, event).await?;
        tx.commit().await?;
        Ok(is_new)
    }

    /// The events that wait for a conversation's next turn, oldest first.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn system_events(
        &self,
        tenant: TenantId,
        key: &SessionKey,
    ) -> Result<Vec<SystemEvent>, Error> {
        const SQL: &str = "
            select event_id, text, extract(epoch from created_at)::bigint
            from session.system_events
            where tenant_id = $1 and key = $2 and gone_at is null order by event_id";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(i64, String, i64)> = sqlx::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(key.as_str())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(|(id, text, at)| SystemEvent { id, text, at }).collect())
    }
}

/// Adds an event in a transaction that may do other things, too.
pub(crate) async fn add(tx: &mut TenantTx, event: &NewSystemEvent) -> Result<bool, Error> {
    // Those who tell one conversation something wait for each other: the last one's text counts.
    const TURN: &str = "
        select pg_advisory_xact_lock(hashtextextended('session.system_events:' || $1 || ':' || $2, 0))";
    const ADD: &str = "
        insert into session.system_events (tenant_id, key, idem_key, text)
        select $1, $2, $3, $4
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
        return Err(Error::IdemKey(event.idem_key.len()));
    }
    let text = shortened(&event.text);
    if text.is_empty() {
        return Ok(false);
    }
    let tenant = tx.tenant();
    sqlx::query(TURN)
        .bind(tenant.as_uuid().to_string())
        .bind(event.key.as_str())
        .execute(tx.conn())
        .await?;
    let added = sqlx::query(ADD)
        .bind(tenant.as_uuid())
        .bind(event.key.as_str())
        .bind(&event.idem_key)
        .bind(text)
        .execute(tx.conn())
        .await?
        .rows_affected();
    if added == 1 {
        sqlx::query(TRIM)
            .bind(tenant.as_uuid())
            .bind(event.key.as_str())
            .bind(MOST_EVENTS)
            .execute(tx.conn())
            .await?;
    }
    Ok(added == 1)
}

/// Does what a turn's entries say of system events, in the transaction that stores the entries:
/// those that it was told of are taken away, and what it posts is added elsewhere.
pub(crate) async fn carry(tx: &mut TenantTx, run: RunId, entries: &[Entry]) -> Result<(), Error> {
    const TAKE: &str = "
        update session.system_events set gone_at = clock_timestamp()
        where tenant_id = $1 and event_id = any($2) and gone_at is null";

    let told: Vec<i64> = entries.iter().flat_map(SystemEvent::of).map(|event| event.id).collect();
    if !told.is_empty() {
        let tenant = tx.tenant();
        sqlx::query(TAKE).bind(tenant.as_uuid()).bind(told).execute(tx.conn()).await?;
    }
    for posted in entries.iter().filter_map(Posted::of) {
        let idem_key = format!("post:{run}");
        add(tx, &NewSystemEvent { key: posted.key, idem_key, text: posted.text }).await?;
    }
    Ok(())
}

/// What of a text is told: no more than may be stored, and nothing that cannot be.
fn shortened(text: &str) -> String {
    let plain: String = text.chars().filter(|c| *c != '\0').collect();
    plain.trim().chars().take(LONGEST_EVENT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_stored_is_left_out() {
        assert_eq!(shortened(" a\0b "), "ab");
        assert_eq!(shortened(&"語".repeat(20_000)).chars().count(), LONGEST_EVENT);
    }
}
