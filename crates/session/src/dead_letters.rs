//! Operator actions: dead letters, deliveries, tenant shares and deletion of sessions.

use std::time::Duration;

use holdfast_pg::TenantTx;
use holdfast_types::{
    Body, DeliveryId, DeliveryState, MessageId, SessionId, SessionKey, Source, Target, TenantId,
};
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{
    Acceptance, DeadLetter, DeliveryView, Error, NewMessage, Sessions, sessions::session_not_found,
};

/// Backlog of the whole installation, for metrics.
#[derive(Debug, Clone, Default)]
pub struct Gauges {
    /// Number of sessions that are ready and not running.
    pub waiting_sessions: i64,
    /// Waiting time of the oldest of them.
    pub oldest_wait: Duration,
    /// Number of deliveries by state: pending, sending, unknown and dead.
    pub deliveries: Vec<(String, i64)>,
}

const DEAD_LETTERS: &str = "
    select message_id, session_id, seq, source, coalesce(reason, '') as reason, body, accepted_at,
           finished_at as died_at
    from session.inbox
    where tenant_id = $1 and state = 'dead' and ($2::uuid is null or message_id = $2)
    order by finished_at desc limit $3";

impl Sessions {
    /// Returns dead letters of messages, newest first.
    pub async fn dead_letters(
        &self,
        tenant: TenantId,
        limit: i64,
    ) -> Result<Vec<DeadLetter>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<DeadLetterRow> = sqlx::query_as(DEAD_LETTERS)
            .bind(tenant.as_uuid())
            .bind(None::<Uuid>)
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(DeadLetter::from).collect())
    }

    /// Returns one dead letter.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such dead letter.
    pub async fn dead_letter(
        &self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<DeadLetter, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<DeadLetterRow> = sqlx::query_as(DEAD_LETTERS)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .bind(1_i64)
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        row.map(DeadLetter::from)
            .ok_or_else(|| Error::NotFound { what: "dead letter", name: message.to_string() })
    }

    /// Accepts a dead message again, at the end of its session's queue.
    ///
    /// The dead letter stays as a record. A repeated call returns the message that the first call
    /// created.
    ///
    /// # Errors
    ///
    /// As for [`dead_letter`](Self::dead_letter) and [`ingest`](Self::ingest).
    pub async fn requeue(&self, tenant: TenantId, message: MessageId) -> Result<Acceptance, Error> {
        const TARGET: &str = "
            select target from session.inbox where tenant_id = $1 and message_id = $2";

        let letter = self.dead_letter(tenant, message).await?;
        let session = self.session(tenant, letter.session).await?;
        let key: SessionKey = session.key.parse().map_err(|_| session_not_found(letter.session))?;
        let mut tx = self.pools.tenant(tenant).await?;
        let target: Option<Json<Target>> = sqlx::query_scalar(TARGET)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        self.ingest(
            tenant,
            NewMessage {
                key,
                agent: session.agent,
                label: None,
                source: Source::Internal("requeue".to_owned()),
                idem_key: message.to_string(),
                body: letter.body,
                target: target.map(|target| target.0),
                mode: holdfast_types::QueueMode::Followup,
                debounce: Duration::ZERO,
                trace: None,
            },
        )
        .await
    }

    pub async fn deliveries(
        &self,
        tenant: TenantId,
        state: Option<DeliveryState>,
        limit: i64,
    ) -> Result<Vec<DeliveryView>, Error> {
        const SQL: &str = "
            select delivery_id, session_id, run_id, channel, account_id, target->>'chat' as chat, state,
                   attempt, reason, platform_id, created_at, finished_at
            from session.deliveries
            where tenant_id = $1 and part >= 0 and ($2::text is null or state = $2)
            order by created_at desc limit $3";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<DeliveryRow> = sqlx::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(state.map(DeliveryState::as_str))
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(DeliveryView::from).collect())
    }

    /// Sends a delivery that is `unknown` or `dead` again, and returns its kind of channel. The
    /// message may arrive twice.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such delivery, [`Error::Conflict`] if it is in another
    /// state.
    pub async fn resend(&self, tenant: TenantId, delivery: DeliveryId) -> Result<String, Error> {
        const SQL: &str = "
            update session.deliveries
            set state = case when state in ('unknown', 'dead') then 'pending' else state end,
                next_at = clock_timestamp(), finished_at = null, attempt = 0
            where tenant_id = $1 and delivery_id = $2 and state in ('unknown', 'dead')
            returning channel";
        const STATE: &str = "
            select state from session.deliveries where tenant_id = $1 and delivery_id = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        let channel: Option<String> = sqlx::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(delivery.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        if let Some(channel) = channel {
            tx.commit().await?;
            return Ok(channel);
        }
        let state: Option<String> = sqlx::query_scalar(STATE)
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

    /// Deletes a session and its content, and schedules the erasure of its memories.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn delete(&self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        const FORGET: &str = "select memory.forget_later('session', $1)";
        let mut tx = self.pools.tenant(tenant).await?;
        delete_rows(&mut tx, session).await?;
        sqlx::query(FORGET).bind(session.to_string()).execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }

    /// Deletes a session that has no memories, such as a subagent's or an ephemeral one.
    pub(crate) async fn delete_without_memories(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<(), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        delete_rows(&mut tx, session).await?;
        Ok(tx.commit().await?)
    }

    /// Returns a tenant's weight, and its cap of sessions that are ready or running at once.
    pub async fn share(&self, tenant: TenantId) -> Result<(u32, u32), Error> {
        const SQL: &str = "select weight, cap from session.tenant_queue where tenant_id = $1";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<(i32, i32)> =
            sqlx::query_as(SQL).bind(tenant.as_uuid()).fetch_optional(tx.conn()).await?;
        tx.commit().await?;
        let (weight, cap) = row.unwrap_or((1, 64));
        Ok((u32::try_from(weight).unwrap_or(1), u32::try_from(cap).unwrap_or(64)))
    }

    /// Changes a tenant's weight (1 to 100), its cap, or both.
    pub async fn set_share(
        &self,
        tenant: TenantId,
        weight: Option<u32>,
        cap: Option<u32>,
    ) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.tenant_queue (tenant_id, weight, cap)
            values ($1, coalesce($2, 1), coalesce($3, 64))
            on conflict (tenant_id) do update
                set weight = coalesce($2, tenant_queue.weight), cap = coalesce($3, tenant_queue.cap)";
        let small = |value: Option<u32>| value.and_then(|value| i32::try_from(value).ok());
        let mut tx = self.pools.tenant(tenant).await?;
        sqlx::query(SQL)
            .bind(tenant.as_uuid())
            .bind(small(weight))
            .bind(small(cap))
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Returns the backlog of the whole installation.
    pub async fn gauges(&self) -> Result<Gauges, Error> {
        const READY_SESSIONS: &str = "
            select count(*), coalesce((extract(epoch from clock_timestamp() - min(ready_at)) * 1000)::bigint, 0)
            from session.session_lease where state = 'READY' and paused is null";
        const DELIVERIES: &str = "
            select state, count(*) from session.deliveries
            where state in ('pending', 'sending', 'unknown', 'dead') group by 1";
        let mut once = self.pools.system_connection().await?;
        let (waiting_sessions, oldest): (i64, i64) =
            sqlx::query_as(READY_SESSIONS).fetch_one(once.conn()).await?;
        let deliveries = sqlx::query_as(DELIVERIES).fetch_all(once.conn()).await?;
        once.done();
        let oldest_wait = Duration::from_millis(u64::try_from(oldest).unwrap_or(0));
        Ok(Gauges { waiting_sessions, oldest_wait, deliveries })
    }
}

/// Deletes a session and its content.
async fn delete_rows(tx: &mut TenantTx, session: SessionId) -> Result<(), Error> {
    const SQL: &str = "
        with place as (
            update session.tenant_flight set in_flight = in_flight - 1
            where tenant_id = $1 and shard = session.shard($2) and exists (
                select from session.session_lease
                where tenant_id = $1 and session_id = $2
                  and (state = 'RUNNING' or (state = 'READY' and fair_key is not null)))),
        marks as (
            insert into session.tombstones
                (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
            select tenant_id, source, idem_key, hash, session_id, seq, message_id,
                   clock_timestamp() + interval '7 days'
            from session.inbox where tenant_id = $1 and session_id = $2
            on conflict do nothing),
        inbox as (delete from session.inbox where tenant_id = $1 and session_id = $2),
        entries as (delete from session.entries where tenant_id = $1 and session_id = $2),
        runs as (delete from session.runs where tenant_id = $1 and session_id = $2),
        deliveries as (delete from session.deliveries where tenant_id = $1 and session_id = $2),
        extractions as (delete from session.extractions where tenant_id = $1 and session_id = $2),
        turn_index as (delete from session.turn_index where tenant_id = $1 and session_id = $2),
        approvals as (delete from session.approvals where tenant_id = $1 and session_id = $2),
        told as (
            delete from session.system_events e using session.sessions s
            where s.tenant_id = $1 and s.session_id = $2 and e.tenant_id = $1 and e.key = s.key),
        surfaces as (delete from session.surfaces where tenant_id = $1 and session_id = $2),
        -- Who asked for it is told that nobody knows how it ended.
        asked as (
            update session.subagents
            set outcome = 'unknown', finished_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and outcome is null),
        children as (delete from session.subagents where tenant_id = $1 and parent_id = $2)
        delete from session.sessions where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant().as_uuid();
    // Under the lock: a running turn has either written before this, or is fenced after it.
    crate::sessions::lock(tx, session).await?.ok_or_else(|| session_not_found(session))?;
    sqlx::query(SQL).bind(tenant).bind(session.as_uuid()).execute(tx.conn()).await?;
    Ok(())
}

#[derive(FromRow)]
struct DeadLetterRow {
    message_id: Uuid,
    session_id: Uuid,
    seq: i64,
    source: String,
    reason: String,
    body: Json<Body>,
    accepted_at: jiff_sqlx::Timestamp,
    died_at: jiff_sqlx::Timestamp,
}

impl From<DeadLetterRow> for DeadLetter {
    fn from(row: DeadLetterRow) -> Self {
        Self {
            message: row.message_id.into(),
            session: row.session_id.into(),
            seq: row.seq,
            source: row.source,
            reason: row.reason,
            body: row.body.0,
            accepted_at: row.accepted_at.to_jiff(),
            died_at: row.died_at.to_jiff(),
        }
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
}

impl From<DeliveryRow> for DeliveryView {
    fn from(row: DeliveryRow) -> Self {
        Self {
            id: row.delivery_id.into(),
            session: row.session_id.into(),
            run: row.run_id.into(),
            channel: row.channel,
            account: row.account_id.into(),
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
