//! The store's face: one value over the database, with a method for each verb.

use std::{sync::Arc, time::Duration};

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::JobId;
use jiff::Timestamp;

use crate::{Error, Planner, row::JobRow};

/// How long a firing that was handed out may take to be delivered before it is handed out again.
pub const HANDOVER: Duration = Duration::from_secs(30);

/// How many jobs there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In a tenant, those that are done and heartbeats left out.
    pub tenant: i64,
    /// Of a user, those that are done left out.
    pub owner: i64,
    /// Reminders of a user, those that are done left out.
    pub reminders: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tenant: 10_000, owner: 200, reminders: 50 }
    }
}

/// Jobs over a database. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Jobs {
    pub(crate) pools: Pools,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) limits: Limits,
    pub(crate) handover: Duration,
}

impl Jobs {
    /// Jobs over these pools, whose schedules this planner knows.
    #[must_use]
    pub fn new(pools: Pools, planner: Arc<dyn Planner>) -> Self {
        Self { pools, planner, limits: Limits::default(), handover: HANDOVER }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same with so much time to deliver a firing, instead of [`HANDOVER`].
    #[must_use]
    pub fn with_handover(self, handover: Duration) -> Self {
        Self { handover, ..self }
    }
}

/// A job's row, locked. It is what its firings are decided under.
pub(crate) async fn lock(tx: &mut TenantTx, job: JobId) -> Result<JobRow, Error> {
    const SQL: &str = crate::row::job!("job_id = $2 for update");

    let tenant = tx.tenant();
    let row: Option<JobRow> = sqlx::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(job.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    row.ok_or_else(|| Error::not_found(job))
}

/// The database's time.
pub(crate) async fn now(tx: &mut TenantTx) -> Result<Timestamp, Error> {
    let now: jiff_sqlx::Timestamp =
        sqlx::query_scalar("select clock_timestamp()").fetch_one(tx.conn()).await?;
    Ok(now.to_jiff())
}
