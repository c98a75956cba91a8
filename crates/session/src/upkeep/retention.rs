//! Retention periods: the defaults of the installation, and what a tenant has set instead.

use std::time::Duration;

use holdfast_types::TenantId;

use crate::{Error, Queues};

const DAY: Duration = Duration::from_secs(86_400);

/// Retention periods of finished rows.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Finished messages.
    pub inbox: Duration,
    /// Idempotency keys, counted from the deletion of their message.
    pub keys: Duration,
    /// Finished deliveries.
    pub deliveries: Duration,
    /// Runs, subagents, approvals, spending, and sessions of job runs.
    pub runs: Duration,
    /// Entries of journals; `None` keeps them as long as their session.
    pub journals: Option<Duration>,
    /// System events that were taken.
    pub events: Duration,
    /// The log of events.
    pub event_log: Duration,
    /// Sessions that an API client opened without naming a user.
    pub ephemeral: Duration,
    /// Journals of heartbeat sessions.
    pub heartbeats: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            inbox: 30 * DAY,
            keys: 30 * DAY,
            deliveries: 30 * DAY,
            runs: 90 * DAY,
            journals: None,
            events: 7 * DAY,
            event_log: 7 * DAY,
            ephemeral: DAY,
            heartbeats: 7 * DAY,
        }
    }
}

/// Retention periods that a tenant has set, in days; `None` is the installation's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionDays {
    pub messages: Option<u32>,
    pub keys: Option<u32>,
    pub deliveries: Option<u32>,
    pub runs: Option<u32>,
    pub journals: Option<u32>,
}

/// Columns of `session.tenant_queue` with a tenant's own periods.
pub(super) type RetentionRow = (Option<i32>, Option<i32>, Option<i32>, Option<i32>, Option<i32>);

impl From<RetentionRow> for RetentionDays {
    fn from(row: RetentionRow) -> Self {
        // Check constraints keep them positive.
        let days = |days: Option<i32>| days.and_then(|days| u32::try_from(days).ok());
        Self {
            messages: days(row.0),
            keys: days(row.1),
            deliveries: days(row.2),
            runs: days(row.3),
            journals: days(row.4),
        }
    }
}

impl Retention {
    /// Returns the periods of a tenant that has set some itself.
    pub(super) fn with_days(self, own: RetentionDays) -> Self {
        let days = |own: Option<u32>, default| own.map_or(default, |days| days * DAY);
        Self {
            inbox: days(own.messages, self.inbox),
            keys: days(own.keys, self.keys),
            deliveries: days(own.deliveries, self.deliveries),
            runs: days(own.runs, self.runs),
            journals: own.journals.map(|days| days * DAY).or(self.journals),
            ..self
        }
    }
}

impl Queues<'_> {
    /// Returns the retention periods that a tenant has set.
    pub async fn retention(self, tenant: TenantId) -> Result<RetentionDays, Error> {
        const SQL: &str = "
            select keep_messages_days, keep_keys_days, keep_deliveries_days, keep_runs_days,
                   keep_journals_days
            from session.tenant_queue where tenant_id = $1";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<RetentionRow> =
            holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).fetch_optional(tx.conn()).await?;
        tx.finish_reading();
        Ok(row.map(RetentionDays::from).unwrap_or_default())
    }

    /// Replaces the retention periods of a tenant. The next pruning applies them.
    ///
    /// # Errors
    ///
    /// If a period is not 1 to 36,500 days.
    pub async fn set_retention(self, tenant: TenantId, days: RetentionDays) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.tenant_queue
                (tenant_id, keep_messages_days, keep_keys_days, keep_deliveries_days,
                 keep_runs_days, keep_journals_days)
            values ($1, $2, $3, $4, $5, $6)
            on conflict (tenant_id) do update
                set keep_messages_days = $2, keep_keys_days = $3, keep_deliveries_days = $4,
                    keep_runs_days = $5, keep_journals_days = $6";
        let periods = [days.messages, days.keys, days.deliveries, days.runs, days.journals];
        let mut query = holdfast_pg::query(SQL).bind(tenant.as_uuid());
        for period in periods {
            query = query.bind(period.map(|days| i32::try_from(days).unwrap_or(i32::MAX)));
        }
        let mut tx = self.pools.tenant(tenant).await?;
        query.execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }
}
