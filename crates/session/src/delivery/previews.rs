//! Previews: messages that show an answer while it is written, and that its delivery replaces.
//!
//! A preview belongs to the message whose turn it shows: the id of the turn is the message's. The
//! delivery takes the preview once, and from then on nobody else edits it. A preview that is being
//! changed at that moment is not edited by the delivery, because the platform could execute the
//! two edits in the other order.

use std::time::Duration;

use holdfast_types::{MessageId, Target, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Deliveries, Delivery, Error};

/// Time for which a preview counts as being changed, if the bridge does not say that it is done.
/// Longer than a call to a platform takes.
const CHANGE_LEASE: Duration = Duration::from_secs(15);

/// The preview that a delivery has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenPreview {
    /// The platform's id of the message.
    pub platform_id: String,
    /// An edit of the bridge that wrote it may still be executed.
    pub is_changing: bool,
}

/// What is to be done with a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreviewState {
    /// The turn goes on, or its delivery is on its way.
    Open,
    /// A delivery has replaced it, or will.
    Taken,
    /// Nothing replaces it: its message, if it was sent, is to be deleted.
    Abandoned { platform_id: Option<String> },
}

impl Deliveries<'_> {
    /// Registers that a preview of the answer to this message is going to be sent, and returns where
    /// to. `None` if the message has ended, has no target or has a preview already.
    pub async fn begin_preview(
        self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<Option<Target>, Error> {
        const SQL: &str = "
            update session.inbox
            set preview = jsonb_build_object(
                'busy_until', extract(epoch from clock_timestamp()) + $3::double precision)
            where tenant_id = $1 and message_id = $2 and state in ('new', 'seen')
              and preview is null and target is not null
            returning target";
        let mut tx = self.pools.tenant(tenant).await?;
        let target: Option<Json<Target>> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .bind(CHANGE_LEASE.as_secs_f64())
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(target.map(|target| target.0))
    }

    /// Registers that the preview is going to be edited. Returns whether it may be.
    pub async fn begin_preview_edit(
        self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            update session.inbox
            set preview = preview || jsonb_build_object(
                'busy_until', extract(epoch from clock_timestamp()) + $3::double precision)
            where tenant_id = $1 and message_id = $2 and preview is not null
              and not preview ? 'taken'";
        let mut tx = self.pools.tenant(tenant).await?;
        let updated = holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .bind(CHANGE_LEASE.as_secs_f64())
            .execute(tx.conn())
            .await?
            .rows_affected();
        tx.commit().await?;
        Ok(updated > 0)
    }

    /// Registers that the platform has answered: the preview is this message, and no longer being
    /// changed. Returns `false` if a delivery has taken it meanwhile.
    pub async fn end_preview_edit(
        self,
        tenant: TenantId,
        message: MessageId,
        platform_id: &str,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            update session.inbox
            set preview = preview - 'busy_until' || jsonb_build_object('id', $3::text)
            where tenant_id = $1 and message_id = $2 and preview is not null
              and not preview ? 'taken'";
        let mut tx = self.pools.tenant(tenant).await?;
        let updated = holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .bind(platform_id)
            .execute(tx.conn())
            .await?
            .rows_affected();
        tx.commit().await?;
        Ok(updated > 0)
    }

    /// Takes the preview of the delivery's turn for this delivery: no later edit of it begins.
    /// `None` if there is none in the delivery's chat that it can replace. Idempotent.
    pub async fn take_preview(self, delivery: &Delivery) -> Result<Option<TakenPreview>, Error> {
        const SQL: &str = "
            update session.inbox i
            set preview = i.preview || jsonb_build_object('taken', d.delivery_id)
            from session.deliveries d
            where d.tenant_id = $1 and d.delivery_id = $2
              and i.tenant_id = $1 and i.message_id = d.run_id and i.preview is not null
              and (i.preview->>'taken' = d.delivery_id::text
                   -- What may have arrived as a message of its own replaces nothing.
                   or not i.preview ? 'taken' and d.unsure_since is null)
              and i.target = d.target
            returning i.preview->>'id',
                      coalesce((i.preview->>'busy_until')::double precision
                               > extract(epoch from clock_timestamp()), false)";
        let mut tx = self.pools.tenant(delivery.tenant).await?;
        let taken: Option<(Option<String>, bool)> = holdfast_pg::query_as(SQL)
            .bind(delivery.tenant.as_uuid())
            .bind(delivery.id.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        let preview = |(id, is_changing): (Option<String>, bool)| {
            id.map(|platform_id| TakenPreview { platform_id, is_changing })
        };
        Ok(taken.and_then(preview))
    }

    /// Registers that the delivery does not edit the preview that it has taken: from now on it is
    /// sent as any other.
    pub async fn forget_preview(self, delivery: &Delivery) -> Result<(), Error> {
        const SQL: &str = "
            update session.inbox set preview = preview - 'id'
            where tenant_id = $1 and message_id = $2 and preview->>'taken' = $3";
        let mut tx = self.pools.tenant(delivery.tenant).await?;
        holdfast_pg::query(SQL)
            .bind(delivery.tenant.as_uuid())
            .bind(delivery.run.as_uuid())
            .bind(delivery.id.as_uuid().to_string())
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Abandons the preview if its turn has ended and no delivery of it is on its way.
    pub async fn settle_preview(
        self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<PreviewState, Error> {
        const ABANDON: &str = "
            update session.inbox i
            set preview = i.preview || jsonb_build_object('taken', $3::text)
            where i.tenant_id = $1 and i.message_id = $2 and i.state in ('done', 'dead')
              and i.preview is not null and not i.preview ? 'taken'
              and not exists (
                  select from session.deliveries d
                  where d.tenant_id = i.tenant_id and d.session_id = i.session_id
                    and d.run_id = i.message_id and d.state in ('pending', 'sending'))
            returning i.preview->>'id'";
        const STATE: &str = "
            select coalesce(preview ? 'taken', state in ('done', 'dead')) from session.inbox
            where tenant_id = $1 and message_id = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        let abandoned: Option<Option<String>> = holdfast_pg::query_scalar(ABANDON)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .bind(Uuid::nil().to_string())
            .fetch_optional(tx.conn())
            .await?;
        if let Some(platform_id) = abandoned {
            tx.commit().await?;
            return Ok(PreviewState::Abandoned { platform_id });
        }
        // A message that was deleted needs no preview any more.
        let is_over: Option<bool> = holdfast_pg::query_scalar(STATE)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(if is_over.unwrap_or(true) { PreviewState::Taken } else { PreviewState::Open })
    }
}
