//! Outbox of events for other components, relayed to the bus.
//!
//! The relay reads events, publishes them, and deletes those that the bus has accepted, in separate
//! steps: a slow bus blocks no transaction, row or connection. An event that was published but not
//! deleted is published again under the same id, which the bus deduplicates for two minutes.
//!
//! ## What can go wrong
//!
//! Two relays at the same time read the same events, and both publish them. The bus removes the
//! duplicates. The relay whose deletion comes late deletes fewer rows than it published; it can
//! tell from the returned count that another relay is at work, and stops. Run one relay per
//! process.

use holdfast_types::{SessionId, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, Sessions};

/// A notification, in ids and numbers; never contains message text.
#[derive(Debug, Clone)]
pub struct Event {
    /// The same id whenever the event is published.
    pub id: i64,
    pub tenant: TenantId,
    /// Event family, for example `runs` or `messages`.
    pub family: String,
    /// Session in which the event happened.
    pub session: SessionId,
    /// Event name in the past tense, for example `RunFinished`.
    pub name: String,
    pub payload: serde_json::Value,
}

impl Sessions {
    /// Publishes up to `batch` events, oldest first, and deletes those that were published.
    ///
    /// `publish` returns how many events it published, counted from the first. After a failure it
    /// must publish no further event, to keep the order. Events that it published beyond the count
    /// are published again under the same id.
    ///
    /// Returns the number of events that this call deleted. A number below `batch` means that no
    /// more events wait, that publishing failed, or that another relay is at work: the caller stops
    /// until the next round.
    ///
    /// # Errors
    ///
    /// After an error events may be published again.
    pub async fn relay(
        &self,
        batch: i64,
        publish: impl AsyncFnOnce(&[Event]) -> usize,
    ) -> Result<u64, Error> {
        const SELECT_EVENTS: &str = "
            select event_id, tenant_id, family, session_id, name, payload from session.events
            order by event_id limit $1";
        // Rows that another relay is deleting are skipped.
        const DELETE_EVENTS: &str = "
            delete from session.events where event_id in (
                select event_id from session.events where event_id = any($1)
                for update skip locked)";

        type Row = (i64, Uuid, String, Uuid, String, Json<serde_json::Value>);
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<Row> =
            holdfast_pg::query_as(SELECT_EVENTS).bind(batch).fetch_all(once.conn()).await?;
        once.done();
        let events: Vec<Event> = rows
            .into_iter()
            .map(|(id, tenant, family, session, name, payload)| {
                let (tenant, session) = (tenant.into(), session.into());
                Event { id, tenant, family, session, name, payload: payload.0 }
            })
            .collect();
        if events.is_empty() {
            return Ok(0);
        }
        let count = publish(&events).await;
        let published: Vec<i64> = events.iter().take(count).map(|event| event.id).collect();
        if published.is_empty() {
            return Ok(0);
        }
        let mut once = self.pools.system_connection().await?;
        let forgotten =
            holdfast_pg::query(DELETE_EVENTS).bind(&published).execute(once.conn()).await?;
        once.done();
        Ok(forgotten.rows_affected())
    }
}
