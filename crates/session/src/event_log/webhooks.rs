//! Progress of webhooks: what each has accepted, what waits for another attempt, what was given up.

use std::time::Duration;

use holdfast_pg::TenantTx;
use holdfast_types::{SessionId, TenantId};
use jiff::Timestamp;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use super::{Event, EventLog, LoggedEvent};
use crate::Error;

/// A webhook of a tenant; its settings are of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WebhookKey {
    pub tenant: TenantId,
    pub webhook: Uuid,
}

/// How a webhook fares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookProgress {
    /// Position up to which its events are accepted, held or not wanted.
    pub position: i64,
    /// Attempts that failed since the last one that succeeded.
    pub failures: i32,
    pub failing_since: Option<Timestamp>,
    pub last_error: String,
    pub succeeded_at: Option<Timestamp>,
    /// Whether further events may be sent now.
    pub is_due: bool,
}

/// An event that a webhook has not accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldEvent {
    pub logged: LoggedEvent,
    pub attempts: i32,
    /// When the first attempt failed.
    pub failed_at: Option<Timestamp>,
    /// When it was given up; `None` while it is tried.
    pub dead_at: Option<Timestamp>,
    pub reason: String,
}

/// What happened to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookResult {
    Accepted,
    /// The event is tried again after a time.
    Failed {
        reason: String,
        after: Duration,
    },
    /// The event is given up.
    Dead {
        reason: String,
    },
    /// Not tried: an earlier event of its session waits.
    Held,
    /// Not in the webhook's filter.
    Unwanted,
}

impl EventLog<'_> {
    /// Returns active webhooks with something to send: one of each tenant first, then a second one of
    /// each, in random order, so that those that are always due do not hide others.
    pub async fn due_webhooks(self, limit: i64) -> Result<Vec<WebhookKey>, Error> {
        const SQL: &str = "
            select w.tenant_id, w.webhook_id from control.event_webhooks w
            left join session.webhook_cursors c using (tenant_id, webhook_id)
            left join session.event_positions p using (tenant_id)
            where w.state = 'active' and (
                c.position is null
                or c.position < p.newest and c.next_at <= clock_timestamp()
                or exists (select from session.webhook_events e
                           where e.tenant_id = w.tenant_id and e.webhook_id = w.webhook_id
                             and e.dead_at is null and e.next_at <= clock_timestamp()))
            order by row_number() over (partition by w.tenant_id order by random()), random()
            limit $1";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid)> =
            holdfast_pg::query_as(SQL).bind(limit).fetch_all(once.conn()).await?;
        once.done();
        let key = |(tenant, webhook): (Uuid, Uuid)| WebhookKey { tenant: tenant.into(), webhook };
        Ok(rows.into_iter().map(key).collect())
    }

    /// Sets where a webhook goes on, and lets it be tried at once.
    pub async fn start_webhook(self, of: WebhookKey, position: i64) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.webhook_cursors (tenant_id, webhook_id, position)
            values ($1, $2, $3)
            on conflict (tenant_id, webhook_id) do update
            set position = excluded.position, next_at = clock_timestamp(), failures = 0,
                failing_since = null";
        let mut tx = self.pools.tenant(of.tenant).await?;
        holdfast_pg::query(SQL)
            .bind(of.tenant.as_uuid())
            .bind(of.webhook)
            .bind(position)
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Forgets the failures of a webhook that is enabled again.
    pub async fn resume_webhook(self, of: WebhookKey) -> Result<(), Error> {
        const SQL: &str = "
            update session.webhook_cursors
            set next_at = clock_timestamp(), failures = 0, failing_since = null
            where tenant_id = $1 and webhook_id = $2";
        self.change(of, SQL).await.map(drop)
    }

    /// Deletes what is known of a webhook.
    pub async fn forget_webhook(self, of: WebhookKey) -> Result<(), Error> {
        const CURSOR: &str =
            "delete from session.webhook_cursors where tenant_id = $1 and webhook_id = $2";
        const EVENTS: &str =
            "delete from session.webhook_events where tenant_id = $1 and webhook_id = $2";
        self.change(of, CURSOR).await?;
        self.change(of, EVENTS).await.map(drop)
    }

    /// Lets events that were given up be tried again: the one at a position, or all. Returns their
    /// number.
    pub async fn revive_dead(self, of: WebhookKey, position: Option<i64>) -> Result<u64, Error> {
        const SQL: &str = "
            update session.webhook_events
            set dead_at = null, failed_at = null, attempts = 0, next_at = clock_timestamp()
            where tenant_id = $1 and webhook_id = $2 and dead_at is not null
              and ($3::bigint is null or position = $3)";
        let mut tx = self.pools.tenant(of.tenant).await?;
        let revived = holdfast_pg::query(SQL)
            .bind(of.tenant.as_uuid())
            .bind(of.webhook)
            .bind(position)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(revived.rows_affected())
    }

    async fn change(self, of: WebhookKey, sql: &'static str) -> Result<u64, Error> {
        let mut tx = self.pools.tenant(of.tenant).await?;
        let done = holdfast_pg::query(sql)
            .bind(of.tenant.as_uuid())
            .bind(of.webhook)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(done.rows_affected())
    }

    /// Returns how a webhook fares; `None` if it was never tried.
    pub async fn webhook_progress(self, of: WebhookKey) -> Result<Option<WebhookProgress>, Error> {
        const SQL: &str = "
            select position, failures, failing_since, last_error, succeeded_at,
                   next_at <= clock_timestamp() as is_due
            from session.webhook_cursors where tenant_id = $1 and webhook_id = $2";
        let mut tx = self.pools.tenant(of.tenant).await?;
        let row: Option<ProgressRow> = holdfast_pg::query_as(SQL)
            .bind(of.tenant.as_uuid())
            .bind(of.webhook)
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(row.map(|row| WebhookProgress {
            position: row.position,
            failures: row.failures,
            failing_since: row.failing_since.map(jiff_sqlx::Timestamp::to_jiff),
            last_error: row.last_error,
            succeeded_at: row.succeeded_at.map(jiff_sqlx::Timestamp::to_jiff),
            is_due: row.is_due,
        }))
    }

    /// Returns the first event of each session that waits for another attempt, if that is due.
    pub async fn due_held(self, of: WebhookKey, limit: i64) -> Result<Vec<HeldEvent>, Error> {
        const SQL: &str = "
            select position, event, attempts, failed_at, dead_at, reason from (
                select distinct on (session_id) * from session.webhook_events
                where tenant_id = $1 and webhook_id = $2 and dead_at is null
                order by session_id, position) first
            where next_at <= clock_timestamp() order by position limit $3";
        self.held(of, SQL, limit).await
    }

    /// Returns the events that were given up, newest first.
    pub async fn dead_events(self, of: WebhookKey, limit: i64) -> Result<Vec<HeldEvent>, Error> {
        const SQL: &str = "
            select position, event, attempts, failed_at, dead_at, reason from session.webhook_events
            where tenant_id = $1 and webhook_id = $2 and dead_at is not null
            order by position desc limit $3";
        self.held(of, SQL, limit).await
    }

    async fn held(
        self,
        of: WebhookKey,
        sql: &'static str,
        limit: i64,
    ) -> Result<Vec<HeldEvent>, Error> {
        let mut tx = self.pools.tenant(of.tenant).await?;
        let rows: Vec<HeldRow> = holdfast_pg::query_as(sql)
            .bind(of.tenant.as_uuid())
            .bind(of.webhook)
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(HeldEvent::from).collect())
    }

    /// Returns the sessions of which an event waits; all zeros for events without a session.
    pub async fn held_sessions(self, of: WebhookKey) -> Result<Vec<SessionId>, Error> {
        const SQL: &str = "
            select distinct session_id from session.webhook_events
            where tenant_id = $1 and webhook_id = $2 and dead_at is null";
        let mut tx = self.pools.tenant(of.tenant).await?;
        let sessions: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(of.tenant.as_uuid())
            .bind(of.webhook)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(sessions.into_iter().map(SessionId::from).collect())
    }

    /// Moves a webhook's position from `from` behind `to`, and records what happened to that event.
    /// Returns false, and changes nothing, if the position is not `from`: another process serves
    /// the webhook, or it was set back.
    pub async fn advance_webhook(
        self,
        of: WebhookKey,
        from: i64,
        (to, result): (&LoggedEvent, &WebhookResult),
    ) -> Result<bool, Error> {
        const MOVE: &str = "
            update session.webhook_cursors set position = $4
            where tenant_id = $1 and webhook_id = $2 and position = $3";
        const HOLD: &str = "
            insert into session.webhook_events (tenant_id, webhook_id, position, session_id, event)
            values ($1, $2, $3, $4, $5)
            on conflict (tenant_id, webhook_id, position) do update
            set dead_at = null, failed_at = null, attempts = 0, next_at = clock_timestamp()";
        let mut tx = self.pools.tenant(of.tenant).await?;
        let moved = holdfast_pg::query(MOVE)
            .bind(of.tenant.as_uuid())
            .bind(of.webhook)
            .bind(from)
            .bind(to.position)
            .execute(tx.conn())
            .await?;
        if moved.rows_affected() == 0 {
            tx.rollback().await?;
            return Ok(false);
        }
        if !matches!(result, WebhookResult::Accepted | WebhookResult::Unwanted) {
            let session = to.event.session.map(SessionId::as_uuid).unwrap_or_default();
            holdfast_pg::query(HOLD)
                .bind(of.tenant.as_uuid())
                .bind(of.webhook)
                .bind(to.position)
                .bind(session)
                .bind(Json(&to.event))
                .execute(tx.conn())
                .await?;
        }
        record(&mut tx, of, to.position, result).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Records what happened to an event that waited.
    pub async fn record_held(
        self,
        of: WebhookKey,
        position: i64,
        result: &WebhookResult,
    ) -> Result<(), Error> {
        let mut tx = self.pools.tenant(of.tenant).await?;
        record(&mut tx, of, position, result).await?;
        Ok(tx.commit().await?)
    }

    /// Sends no new event of a webhook for a time.
    pub async fn pause_webhook(self, of: WebhookKey, pause: Duration) -> Result<(), Error> {
        const SQL: &str = "
            update session.webhook_cursors
            set next_at = clock_timestamp() + $3 * interval '1 second'
            where tenant_id = $1 and webhook_id = $2";
        let mut tx = self.pools.tenant(of.tenant).await?;
        holdfast_pg::query(SQL)
            .bind(of.tenant.as_uuid())
            .bind(of.webhook)
            .bind(pause.as_secs_f64())
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }
}

/// Records the outcome of an attempt, with the webhook's own state.
async fn record(
    tx: &mut TenantTx,
    of: WebhookKey,
    position: i64,
    result: &WebhookResult,
) -> Result<(), Error> {
    const RECORD_SUCCESS: &str = "
        with done as (
            delete from session.webhook_events
            where tenant_id = $1 and webhook_id = $2 and position = $3)
        update session.webhook_cursors
        set failures = 0, failing_since = null, succeeded_at = clock_timestamp(), last_error = ''
        where tenant_id = $1 and webhook_id = $2";
    const RECORD_FAILURE: &str = "
        with tried as (
            update session.webhook_events
            set attempts = attempts + 1, failed_at = coalesce(failed_at, clock_timestamp()),
                next_at = clock_timestamp() + coalesce($5, 0) * interval '1 second', reason = $4,
                dead_at = case when $5::float8 is null then clock_timestamp() end
            where tenant_id = $1 and webhook_id = $2 and position = $3)
        update session.webhook_cursors
        set failures = failures + 1, failing_since = coalesce(failing_since, clock_timestamp()),
            last_error = $4
        where tenant_id = $1 and webhook_id = $2";

    let (reason, after) = match result {
        WebhookResult::Held | WebhookResult::Unwanted => return Ok(()),
        WebhookResult::Accepted => {
            holdfast_pg::query(RECORD_SUCCESS)
                .bind(of.tenant.as_uuid())
                .bind(of.webhook)
                .bind(position)
                .execute(tx.conn())
                .await?;
            return Ok(());
        }
        WebhookResult::Failed { reason, after } => (reason, Some(after.as_secs_f64())),
        WebhookResult::Dead { reason } => (reason, None),
    };
    holdfast_pg::query(RECORD_FAILURE)
        .bind(of.tenant.as_uuid())
        .bind(of.webhook)
        .bind(position)
        .bind(reason)
        .bind(after)
        .execute(tx.conn())
        .await?;
    Ok(())
}

#[derive(FromRow)]
struct ProgressRow {
    position: i64,
    failures: i32,
    failing_since: Option<jiff_sqlx::Timestamp>,
    last_error: String,
    succeeded_at: Option<jiff_sqlx::Timestamp>,
    is_due: bool,
}

#[derive(FromRow)]
struct HeldRow {
    position: i64,
    event: Json<Event>,
    attempts: i32,
    failed_at: Option<jiff_sqlx::Timestamp>,
    dead_at: Option<jiff_sqlx::Timestamp>,
    reason: String,
}

impl From<HeldRow> for HeldEvent {
    fn from(row: HeldRow) -> Self {
        Self {
            logged: LoggedEvent { position: row.position, event: row.event.0 },
            attempts: row.attempts,
            failed_at: row.failed_at.map(jiff_sqlx::Timestamp::to_jiff),
            dead_at: row.dead_at.map(jiff_sqlx::Timestamp::to_jiff),
            reason: row.reason,
        }
    }
}
