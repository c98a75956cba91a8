//! The outbox of events: what others may like to know, on its way to the bus.
//!
//! Events are read, published, and deleted when the bus has them, each on its
//! own: a bus that is slow to answer holds no transaction, no row and no
//! connection. What was published and not deleted is published again under the
//! same id, which the bus knows for two minutes.
//!
//! ## What can go wrong
//!
//! Two runners that relay at once read the same events. Both publish them, the
//! id makes it once, and the one whose deletion comes late has deleted nothing:
//! by that it knows that another is at work, and stops. A process has one relay.

use holdfast_types::{SessionId, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, Sessions};

/// Something that happened, in ids and numbers; never what was said.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its id, the same whenever it is published.
    pub id: i64,
    /// Whose.
    pub tenant: TenantId,
    /// Its family: `runs`, `messages`.
    pub family: String,
    /// The session it happened in.
    pub session: SessionId,
    /// What happened, in the past tense.
    pub name: String,
    /// More about it.
    pub payload: serde_json::Value,
}

impl Sessions {
    /// Publishes up to `batch` events, oldest first, and forgets those that were published.
    ///
    /// `publish` says how many of the events it published, from the first on: none after one that
    /// it could not publish, so that they are seen in their order. What it published beyond that
    /// comes again under the same id.
    ///
    /// Returns how many this call forgot. If they are fewer than `batch`, no more are waiting, one
    /// could not be published, or another relay is doing the same: leave it to that one.
    ///
    /// # Errors
    ///
    /// If the database does not answer; events may then be published again.
    pub async fn relay(
        &self,
        batch: i64,
        publish: impl AsyncFnOnce(&[Event]) -> usize,
    ) -> Result<u64, Error> {
        const TAKE: &str = "
            select event_id, tenant_id, family, session_id, name, payload from session.events
            order by event_id limit $1";
        // What another relay deletes at this moment is not waited for.
        const FORGET: &str = "
            delete from session.events where event_id in (
                select event_id from session.events where event_id = any($1)
                for update skip locked)";

        type Row = (i64, Uuid, String, Uuid, String, Json<serde_json::Value>);
        let mut once = self.pools.once().await?;
        let rows: Vec<Row> = sqlx::query_as(TAKE).bind(batch).fetch_all(once.conn()).await?;
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
        let mut once = self.pools.once().await?;
        let forgotten = sqlx::query(FORGET).bind(&published).execute(once.conn()).await?;
        once.done();
        Ok(forgotten.rows_affected())
    }
}
