//! Pools of runners: a runner of a pool works for the tenants of this pool only, and one without a
//! pool for all other tenants.

use holdfast_pg::Pools;
use holdfast_types::TenantId;

use crate::{Error, RunnerPool, Sessions};

/// The pool of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantPool {
    /// `None` is the default pool.
    pub pool: Option<RunnerPool>,
    /// Runners of the pool that are alive; 0 for the default pool, whose runners are not counted.
    pub live_runners: u32,
}

/// State of a pool that has tenants, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolGauges {
    pub pool: String,
    pub live_runners: i64,
    /// Sessions of its tenants that are ready and not running.
    pub waiting_sessions: i64,
}

/// Condition on the tenant of the row `l`: a runner of the pool `$n`, or of the default pool if it is
/// null, works for the tenant. The tenants with a pool are few, and read once per statement.
macro_rules! is_of_pool {
    ($n:literal) => {
        concat!(
            "case when $",
            $n,
            "::text is null
                  then l.tenant_id <> all (array(select q.tenant_id from session.tenant_queue q
                                                 where q.pool is not null))
                  else l.tenant_id = any (array(select q.tenant_id from session.tenant_queue q
                                                where q.pool = $",
            $n,
            "::text)) end"
        )
    };
}
pub(crate) use is_of_pool;

/// Pools of runners, from [`Sessions::runner_pools`].
#[derive(Debug, Clone, Copy)]
pub struct RunnerPools<'a> {
    pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn runner_pools(&self) -> RunnerPools<'_> {
        RunnerPools { pools: &self.pools }
    }

    /// Whether these are the sessions of a runner with a pool, whose runners are counted.
    #[must_use]
    pub const fn is_of_runner_pool(&self) -> bool {
        self.pool.is_some()
    }

    pub(crate) fn pool_name(&self) -> Option<&str> {
        self.pool.as_ref().map(RunnerPool::as_str)
    }
}

impl RunnerPools<'_> {
    /// Returns a tenant's pool.
    pub async fn of_tenant(self, tenant: TenantId) -> Result<TenantPool, Error> {
        const SQL: &str = "
            select p.pool, (select count(*) from session.runners r
                            where r.live_until > clock_timestamp() and r.pool = p.pool)
            from (select (select pool from session.tenant_queue where tenant_id = $1) as pool) p";
        let mut tx = self.pools.tenant(tenant).await?;
        let (pool, live): (Option<String>, i64) =
            holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).fetch_one(tx.conn()).await?;
        tx.finish_reading();
        // The table has valid names only.
        let pool = pool.and_then(|pool| pool.parse().ok());
        Ok(TenantPool { pool, live_runners: u32::try_from(live).unwrap_or(u32::MAX) })
    }

    /// Gives a tenant a pool; `None` is the default pool. Sessions that are claimed from now on run
    /// there. A turn that runs ends where it is, unless its runner has the login of its pool: then it
    /// loses the session, and the new pool continues the turn when the lease has expired.
    pub async fn assign(self, tenant: TenantId, pool: Option<&RunnerPool>) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.tenant_queue (tenant_id, pool) values ($1, $2)
            on conflict (tenant_id) do update set pool = excluded.pool";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(pool.map(RunnerPool::as_str))
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Returns the pools with tenants for which the database has no login of their own, so that their
    /// runners have one that reaches all tenants.
    pub async fn without_login(self) -> Result<Vec<String>, Error> {
        const SQL: &str = "
            select distinct pool from session.tenant_queue
            where pool is not null
              and not exists (select from pg_roles where rolname = 'holdfast_runner_pool_' || pool)
            order by pool";
        let mut once = self.pools.system_connection().await?;
        let pools = holdfast_pg::query_scalar(SQL).fetch_all(once.conn()).await?;
        once.done();
        Ok(pools)
    }

    /// Returns the state of all pools that have tenants.
    pub async fn gauges(self) -> Result<Vec<PoolGauges>, Error> {
        const SQL: &str = "
            select p.pool,
                   (select count(*) from session.runners r
                    where r.pool = p.pool and r.live_until > clock_timestamp()),
                   (select count(*) from session.session_lease l
                    join session.tenant_queue q using (tenant_id)
                    where q.pool = p.pool and l.state = 'READY' and l.paused is null
                      and not q.suspended)
            from (select distinct pool from session.tenant_queue where pool is not null) p
            order by p.pool";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(String, i64, i64)> =
            holdfast_pg::query_as(SQL).fetch_all(once.conn()).await?;
        once.done();
        let gauges = |(pool, live_runners, waiting_sessions)| PoolGauges {
            pool,
            live_runners,
            waiting_sessions,
        };
        Ok(rows.into_iter().map(gauges).collect())
    }
}
