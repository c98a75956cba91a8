//! Job store: one value over the database, with a method for each operation.

use std::{sync::Arc, time::Duration};

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::JobId;
use jiff::Timestamp;

use crate::store::{Error, JobSigner, Planner, row::JobRow};

/// Time to deliver a firing that was handed out; after that it is handed out again.
pub const HANDOVER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Jobs of a tenant, without heartbeats and those that are done.
    pub tenant: i64,
    /// Jobs of a user, without those that are done.
    pub owner: i64,
    /// Reminders of a user, without those that are done.
    pub reminders: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tenant: 10_000, owner: 200, reminders: 50 }
    }
}

/// Job store. Clones share the connection pools.
#[derive(Debug, Clone)]
pub struct Jobs {
    pub(crate) pools: Pools,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) limits: Limits,
    pub(crate) handover: Duration,
    /// `None` in a scheduler, which makes no jobs for anybody.
    pub(crate) signer: Option<JobSigner>,
}

impl Jobs {
    #[must_use]
    pub fn new(pools: Pools, planner: Arc<dyn Planner>) -> Self {
        let limits = Limits::default();
        Self { pools, planner, limits, handover: HANDOVER_TIMEOUT, signer: None }
    }

    /// Signs the jobs that are added or changed.
    #[must_use]
    pub fn with_signer(self, signer: JobSigner) -> Self {
        Self { signer: Some(signer), ..self }
    }

    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the time to deliver a firing, instead of [`HANDOVER_TIMEOUT`].
    #[must_use]
    pub fn with_handover(self, handover: Duration) -> Self {
        Self { handover, ..self }
    }
}

/// Locks a job's row. All decisions about a job's firings are made under this lock.
pub(crate) async fn lock(tx: &mut TenantTx, job: JobId) -> Result<JobRow, Error> {
    const SQL: &str = crate::store::row::job!("job_id = $2 for update");

    let tenant = tx.tenant();
    let row: Option<JobRow> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(job.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    row.ok_or_else(|| Error::not_found(job))
}

pub(crate) async fn now(tx: &mut TenantTx) -> Result<Timestamp, Error> {
    let now: jiff_sqlx::Timestamp =
        holdfast_pg::query_scalar("select clock_timestamp()").fetch_one(tx.conn()).await?;
    Ok(now.to_jiff())
}
