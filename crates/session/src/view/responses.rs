//! Messages whose answers an API's client reads again, lists with their request, or deletes.

use holdfast_pg::Pools;
use holdfast_types::{Body, MessageId, SessionId, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, Sessions, sessions::lock};

/// Messages that one request may have stored.
const MAX_REQUEST_MESSAGES: i64 = 200;

/// What is left of a session whose response was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovedResponse {
    /// Other messages of the session are still there.
    Others,
    /// The session has no other message.
    Last,
}

/// Stored requests and responses, from [`Sessions::responses`].
#[derive(Debug, Clone, Copy)]
pub struct Responses<'a> {
    pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn responses(&self) -> Responses<'_> {
        Responses { pools: &self.pools }
    }
}

impl Responses<'_> {
    /// Returns a message and the silent messages right before it, oldest first: what one request
    /// stored.
    pub async fn request_messages(
        self,
        tenant: TenantId,
        session: SessionId,
        seq: i64,
    ) -> Result<Vec<(MessageId, Body)>, Error> {
        const SQL: &str = "
            select message_id, body from session.inbox i
            where tenant_id = $1 and session_id = $2 and seq <= $3 and seq > coalesce((
                select max(seq) from session.inbox
                where tenant_id = $1 and session_id = $2 and seq < $3
                  and not coalesce((body->>'silent')::boolean, false)), 0)
            order by seq desc limit $4";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, Json<Body>)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(seq)
            .bind(MAX_REQUEST_MESSAGES)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().rev().map(|(id, body)| (id.into(), body.0)).collect())
    }

    /// Marks a response as not stored, so that nobody reads it or continues from it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such message.
    pub async fn remove(
        self,
        tenant: TenantId,
        session: SessionId,
        message: MessageId,
    ) -> Result<RemovedResponse, Error> {
        const MARK: &str = "
            update session.inbox
            set body = jsonb_set(body, '{response_fields,store}', 'false')
            where tenant_id = $1 and message_id = $2 and body ? 'response_fields'";
        const HAS_OTHERS: &str = "
            select exists (
                select from session.inbox
                where tenant_id = $1 and session_id = $2
                  and not coalesce((body->>'silent')::boolean, false)
                  and coalesce((body->'response_fields'->>'store')::boolean, true))";
        let mut tx = self.pools.tenant(tenant).await?;
        let unknown = || Error::NotFound { what: "response", name: message.to_string() };
        // Lock order: the lease row first, as in all verbs.
        lock(&mut tx, session).await?.ok_or_else(unknown)?;
        let marked = holdfast_pg::query(MARK)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .execute(tx.conn())
            .await?
            .rows_affected();
        if marked == 0 {
            tx.rollback().await?;
            return Err(unknown());
        }
        let others: bool = holdfast_pg::query_scalar(HAS_OTHERS)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(if others { RemovedResponse::Others } else { RemovedResponse::Last })
    }
}
