//! Number of a tenant's jobs, by state.

use std::time::Duration;

use holdfast_types::TenantId;
use jiff::Timestamp;
use uuid::Uuid;

use crate::store::{Error, Jobs};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// All jobs, including those that are done.
    pub all: u64,
    pub active: u64,
    pub running: u64,
    /// Time at which the next job is due.
    pub next: Option<Timestamp>,
    /// Name of the job that is due next; empty if none is.
    pub next_name: String,
}

/// Jobs of all tenants that are due and have not fired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DueJobs {
    pub count: i64,
    /// Time since the job that waits longest was due.
    pub oldest: Duration,
    /// Tenant of the job that waits longest.
    pub oldest_of: Option<TenantId>,
}

impl Jobs {
    pub async fn due_counts(&self) -> Result<DueJobs, Error> {
        const SQL: &str = "
            select count(*), coalesce(extract(epoch from clock_timestamp() - min(due_at)), 0)::float8,
                   (array_agg(tenant_id order by due_at))[1]
            from schedule.jobs where state = 'active' and due_at <= clock_timestamp()";
        let mut once = self.pools.system_connection().await?;
        let (count, late, tenant): (i64, f64, Option<Uuid>) =
            holdfast_pg::query_as(SQL).fetch_one(once.conn()).await?;
        once.done();
        let oldest = Duration::try_from_secs_f64(late).unwrap_or_default();
        Ok(DueJobs { count, oldest, oldest_of: tenant.map(TenantId::from) })
    }

    pub async fn counts(&self, tenant: TenantId) -> Result<Counts, Error> {
        const SQL: &str = "
            select count(*), count(*) filter (where state = 'active'),
                   count(*) filter (where running_until > clock_timestamp()), min(due_at),
                   coalesce((array_agg(name order by due_at) filter (where due_at is not null))[1], '')
            from schedule.jobs where tenant_id = $1 and kind <> ''";

        let mut tx = self.pools.tenant(tenant).await?;
        type Row = (i64, i64, i64, Option<jiff_sqlx::Timestamp>, String);
        let (all, active, running, next, next_name): Row =
            holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).fetch_one(tx.conn()).await?;
        tx.finish_reading();
        Ok(Counts {
            all: all.unsigned_abs(),
            active: active.unsigned_abs(),
            running: running.unsigned_abs(),
            next: next.map(jiff_sqlx::Timestamp::to_jiff),
            next_name,
        })
    }
}
