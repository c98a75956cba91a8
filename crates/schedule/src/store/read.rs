//! Read-only queries for jobs, their firings and their log.

use holdfast_pg::QueryBuilder;
use holdfast_types::{AgentId, JobId, TenantId};

use crate::store::{
    Error, FiringRef, FiringView, Job, JobKind, Jobs, RunLine,
    row::{FiringViewRow, JobRow, RunRow, firing_view, job},
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub agent: Option<AgentId>,
    pub owner: Option<String>,
    pub kind: Option<JobKind>,
    /// Only jobs of these authors, by their ids; empty is all.
    pub authors: Vec<String>,
    /// Only jobs after this id.
    pub after: Option<JobId>,
    /// Page size, 1 to 200.
    pub limit: u32,
}

const MAX_PAGE_SIZE: u32 = 200;

impl Jobs {
    /// Returns one job.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub async fn get(&self, tenant: TenantId, id: JobId) -> Result<Job, Error> {
        const SQL: &str = job!("job_id = $2");
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<JobRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(id.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        row.ok_or_else(|| Error::not_found(id))?.try_into()
    }

    /// Returns the job with this id, external id or short id. With an `owner`, only of that user.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::Ambiguous`] if several jobs have the short id.
    pub async fn find(
        &self,
        tenant: TenantId,
        name: &str,
        owner: Option<&str>,
    ) -> Result<Job, Error> {
        const BY_NAME: &str = job!("external_id = $2 and ($3::text is null or owner = $3)");
        const BY_END: &str = job!("short_id = $2 and ($3::text is null or owner = $3) limit 2");

        if name.contains('\0') {
            return Err(Error::not_found(name.replace('\0', "")));
        }
        if let Ok(id) = name.parse::<JobId>() {
            let job = self.get(tenant, id).await?;
            let is_theirs = owner.is_none() || job.owner.as_deref() == owner;
            return if is_theirs { Ok(job) } else { Err(Error::not_found(name)) };
        }
        let mut tx = self.pools.tenant(tenant).await?;
        for sql in [BY_NAME, BY_END] {
            let mut rows: Vec<JobRow> = holdfast_pg::query_as(sql)
                .bind(tenant.as_uuid())
                .bind(name)
                .bind(owner)
                .fetch_all(tx.conn())
                .await?;
            if rows.len() > 1 {
                return Err(Error::Ambiguous(name.to_owned()));
            }
            if let Some(row) = rows.pop() {
                tx.finish_reading();
                return row.try_into();
            }
        }
        tx.finish_reading();
        Err(Error::not_found(name))
    }

    /// Returns jobs in the order of their creation.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if the limit is out of range.
    pub async fn list(&self, tenant: TenantId, filter: &JobFilter) -> Result<Vec<Job>, Error> {
        if !(1..=MAX_PAGE_SIZE).contains(&filter.limit) {
            let problem = format!("has 1 to {MAX_PAGE_SIZE} entries, not {}", filter.limit);
            return Err(Error::field("page", problem));
        }
        let mut query = QueryBuilder::new(job!("").trim_end_matches("$1 and "));
        query.push_bind(tenant.as_uuid());
        match (filter.agent, &filter.owner) {
            // Agent and owner are selective: their index should serve the page, not the tenant's.
            (None, None) => _ = query.push(" and kind <> ''"),
            (agent, owner) => {
                if let Some(agent) = agent {
                    query.push(" and agent_id = ").push_bind(agent.as_uuid());
                }
                if let Some(owner) = owner {
                    query.push(" and owner = ").push_bind(owner);
                }
            }
        }
        if let Some(kind) = filter.kind {
            query.push(" and kind = ").push_bind(kind.as_str());
        }
        if !filter.authors.is_empty() {
            query.push(" and author->>'id' = any(").push_bind(&filter.authors).push(")");
        }
        if let Some(after) = filter.after {
            query.push(" and job_id > ").push_bind(after.as_uuid());
        }
        query.push(" order by job_id limit ").push_bind(i64::from(filter.limit));

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<JobRow> = query.build_query_as().fetch_all(tx.conn()).await?;
        tx.finish_reading();
        rows.into_iter().map(Job::try_from).collect()
    }

    /// Returns the jobs of these ids that still exist, in no order. Used to deliver firings.
    pub async fn load(&self, tenant: TenantId, ids: &[JobId]) -> Result<Vec<Job>, Error> {
        const SQL: &str = job!("job_id = any($2)");
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<JobRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(ids.iter().map(|id| id.as_uuid()).collect::<Vec<_>>())
            .fetch_all(tx.conn())
            .await?;
        // Commit rather than roll back in the background: the caller continues on the same
        // connection, and a pending rollback would make the pool open another.
        tx.commit().await?;
        rows.into_iter().map(Job::try_from).collect()
    }

    /// Returns a job's log, newest first; the newest lines are kept.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub async fn runs(
        &self,
        tenant: TenantId,
        job: JobId,
        limit: u32,
    ) -> Result<Vec<RunLine>, Error> {
        const SQL: &str = "
            select n, slot, slot_at, slot_last, slots, origin, status, class, duration_ms, run_id,
                   finished_at
            from schedule.runs where tenant_id = $1 and job_id = $2
            order by n desc limit $3";

        self.get(tenant, job).await?;
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<RunRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(job.as_uuid())
            .bind(i64::from(limit))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        rows.into_iter().map(RunLine::try_from).collect()
    }

    /// Returns a firing's state; `None` if it does not exist or was pruned with the log.
    pub async fn firing(&self, firing: &FiringRef) -> Result<Option<FiringView>, Error> {
        const SQL: &str = "
            select tenant_id, job_id, slot, origin, state, attempts, run_id from schedule.firings
            where tenant_id = $1 and job_id = $2 and slot = $3";

        let mut tx = self.pools.tenant(firing.tenant).await?;
        let row: Option<FiringViewRow> = holdfast_pg::query_as(SQL)
            .bind(firing.tenant.as_uuid())
            .bind(firing.job.as_uuid())
            .bind(firing.slot.to_string())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        row.map(firing_view).transpose()
    }
}
