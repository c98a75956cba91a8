//! The outbox of events: what others may like to know, on its way to the bus.
//!
//! An event is deleted in the transaction that published it: if that is cut
//! short it is published again under the same id, which the bus knows.

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
    /// # Errors
    ///
    /// If the database does not answer; events may then be published again.
    pub async fn relay(
        &self,
        batch: i64,
        mut publish: impl AsyncFnMut(&Event) -> bool,
    ) -> Result<u64, Error> {
        const TAKE: &str = "
            select event_id, tenant_id, family, session_id, name, payload from session.events
            order by event_id limit $1 for update skip locked";
        const FORGET: &str = "delete from session.events where event_id = any($1)";

        type Row = (i64, Uuid, String, Uuid, String, Json<serde_json::Value>);
        let mut tx = self.pools.system().await?;
        let rows: Vec<Row> = sqlx::query_as(TAKE).bind(batch).fetch_all(tx.conn()).await?;
        let mut published = Vec::with_capacity(rows.len());
        for (id, tenant, family, session, name, payload) in rows {
            let (tenant, session) = (tenant.into(), session.into());
            let event = Event { id, tenant, family, session, name, payload: payload.0 };
            if !publish(&event).await {
                break;
            }
            published.push(id);
        }
        if published.is_empty() {
            return Ok(0);
        }
        sqlx::query(FORGET).bind(&published).execute(tx.conn()).await?;
        tx.commit().await?;
        Ok(published.len() as u64)
    }
}
