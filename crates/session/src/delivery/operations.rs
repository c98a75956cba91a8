//! Deliveries as operators and the heartbeat see them, and sending one again.

use holdfast_types::{AccountId, DeliveryId, DeliveryState, RunId, SessionId, TenantId};
use jiff_sqlx::ToSqlx as _;
use sqlx::FromRow;
use uuid::Uuid;

use crate::{Deliveries, DeliveryView, Error, ListCursor};

/// Which deliveries a list has; `None` excludes nothing.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    pub state: Option<DeliveryState>,
    pub account: Option<AccountId>,
    /// Kind of channel.
    pub channel: Option<String>,
    pub session: Option<SessionId>,
    pub run: Option<RunId>,
    pub limit: i64,
    /// Only deliveries after this place in the list.
    pub after: Option<ListCursor>,
}

/// State of one delivery of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryStatus {
    /// Name of the delivery state.
    pub state: String,
    pub channel: String,
    /// Id of the chat on the platform.
    pub chat: String,
    /// Whether it is an action other than sending text.
    pub is_act: bool,
    /// Explanation of the state, for people.
    pub reason: Option<String>,
}

type DeliveryStatusRow = (String, String, Option<String>, bool, Option<String>);

impl Deliveries<'_> {
    /// Returns deliveries, the newest first.
    pub async fn list(
        self,
        tenant: TenantId,
        filter: DeliveryFilter,
    ) -> Result<Vec<DeliveryView>, Error> {
        const SQL: &str = "
            select delivery_id, session_id, run_id, channel, account_id, target->>'chat' as chat, state,
                   attempt, reason, platform_id, created_at, finished_at, left(body, 500) as text
            from session.deliveries
            where tenant_id = $1 and part >= 0 and ($2::text is null or state = $2)
              and ($3::uuid is null or account_id = $3) and ($4::text is null or channel = $4)
              and ($5::uuid is null or session_id = $5)
              and ($6::timestamptz is null or (created_at, delivery_id) < ($6, $7::uuid))
              and ($9::uuid is null or run_id = $9)
            order by created_at desc, delivery_id desc limit $8";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<DeliveryRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(filter.state.map(DeliveryState::as_str))
            .bind(filter.account.map(AccountId::as_uuid))
            .bind(filter.channel)
            .bind(filter.session.map(SessionId::as_uuid))
            .bind(filter.after.map(|after| after.at.to_sqlx()))
            .bind(filter.after.map(|after| after.id))
            .bind(filter.limit)
            .bind(filter.run.map(RunId::as_uuid))
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(DeliveryView::from).collect())
    }

    /// Returns the deliveries of a turn with their states, in order, at most 1000.
    pub async fn statuses(
        self,
        tenant: TenantId,
        session: SessionId,
        run: RunId,
    ) -> Result<Vec<DeliveryStatus>, Error> {
        const SQL: &str = "
            select state, channel, target->>'chat', act is not null, reason from session.deliveries
            where tenant_id = $1 and session_id = $2 and run_id = $3
            order by out_seq, part limit 1000";

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<DeliveryStatusRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(run.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows
            .into_iter()
            .map(|(state, channel, chat, is_act, reason)| DeliveryStatus {
                state,
                channel,
                chat: chat.unwrap_or_default(),
                is_act,
                reason,
            })
            .collect())
    }

    /// Sends a delivery that is `unknown` or `dead` again, and returns its kind of channel. The
    /// message may arrive twice.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such delivery, [`Error::Conflict`] if it is in another
    /// state.
    pub async fn resend(self, tenant: TenantId, delivery: DeliveryId) -> Result<String, Error> {
        const SQL: &str = "
            update session.deliveries
            set state = case when state in ('unknown', 'dead') then 'pending' else state end,
                next_at = clock_timestamp(), finished_at = null, unsure_since = null,
                attempts_before = attempt
            where tenant_id = $1 and delivery_id = $2 and state in ('unknown', 'dead')
            returning channel";
        const STATE: &str = "
            select state from session.deliveries where tenant_id = $1 and delivery_id = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        let channel: Option<String> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(delivery.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        if let Some(channel) = channel {
            tx.commit().await?;
            return Ok(channel);
        }
        let state: Option<String> = holdfast_pg::query_scalar(STATE)
            .bind(tenant.as_uuid())
            .bind(delivery.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        Err(match state {
            None => Error::NotFound { what: "delivery", name: delivery.to_string() },
            Some(state) => Error::Conflict(format!(
                "delivery `{delivery}` is `{state}`: only one that is `unknown` or `dead` can be sent again"
            )),
        })
    }
}

#[derive(FromRow)]
struct DeliveryRow {
    delivery_id: Uuid,
    session_id: Uuid,
    run_id: Uuid,
    channel: String,
    account_id: Uuid,
    chat: Option<String>,
    state: String,
    attempt: i32,
    reason: Option<String>,
    platform_id: Option<String>,
    created_at: jiff_sqlx::Timestamp,
    finished_at: Option<jiff_sqlx::Timestamp>,
    text: String,
}

impl From<DeliveryRow> for DeliveryView {
    fn from(row: DeliveryRow) -> Self {
        Self {
            id: row.delivery_id.into(),
            session: row.session_id.into(),
            run: row.run_id.into(),
            channel: row.channel,
            account: row.account_id.into(),
            text: row.text,
            chat: row.chat.unwrap_or_default(),
            state: row.state,
            attempt: row.attempt,
            reason: row.reason,
            platform_id: row.platform_id,
            created_at: row.created_at.to_jiff(),
            finished_at: row.finished_at.map(jiff_sqlx::Timestamp::to_jiff),
        }
    }
}
