//! Signatures of jobs that are there already: from versions that made none, with another key, or
//! after a change of the people in them.

use holdfast_pg::TenantTx;
use holdfast_types::{JobId, TenantId};
use uuid::Uuid;

use crate::store::{
    Error, Job, JobKeys, Jobs,
    row::{JobRow, job},
    signature::JobFields,
};

/// Jobs per transaction.
const BATCH_SIZE: i64 = 200;

impl Jobs {
    /// Returns the keys, if this service signs jobs.
    pub(crate) async fn signing_keys(&self) -> Result<Option<&JobKeys>, Error> {
        match &self.signer {
            Some(signer) => signer.keys().await.map(Some),
            None => Ok(None),
        }
    }

    /// Signs jobs that were there when signatures were introduced, and that nobody has changed since.
    /// Returns the number of jobs that were looked at; with 0, none is left.
    ///
    /// # Errors
    ///
    /// [`Error::NoSigningKeys`], or if the database fails.
    pub async fn sign_recorded_jobs(&self) -> Result<usize, Error> {
        const RECORDED_JOBS: &str = "
            select tenant_id, job_id from schedule.jobs_to_sign order by tenant_id, job_id limit $1";

        let Some(keys) = self.signing_keys().await? else { return Err(Error::NoSigningKeys) };
        let mut tx = self.pools.system().await?;
        let recorded: Vec<(Uuid, Uuid)> =
            holdfast_pg::query_as(RECORDED_JOBS).bind(BATCH_SIZE).fetch_all(tx.conn()).await?;
        tx.finish_reading();
        for jobs in recorded.chunk_by(|one, other| one.0 == other.0) {
            let ids: Vec<Uuid> = jobs.iter().map(|job| job.1).collect();
            if let Some((tenant, _)) = jobs.first() {
                self.sign_recorded(keys, (*tenant).into(), &ids).await?;
            }
        }
        Ok(recorded.len())
    }

    /// Signs those of the jobs that are recorded and that nobody has changed since.
    pub(crate) async fn sign_recorded(
        &self,
        keys: &JobKeys,
        tenant: TenantId,
        ids: &[Uuid],
    ) -> Result<(), Error> {
        // The digest is that of the migration that recorded the jobs.
        const UNCHANGED_JOBS: &str = job!(
            "signature is null and job_id = any($2) and exists (
                 select from schedule.jobs_to_sign r
                 where r.tenant_id = jobs.tenant_id and r.job_id = jobs.job_id
                   and r.digest = sha256(convert_to(jsonb_build_array(
                       agent_id, kind, owner, author, name, payload, session_target, wake_mode,
                       isolation)::text, 'UTF8')))
             for update"
        );
        const FORGET: &str = "
            delete from schedule.jobs_to_sign where tenant_id = $1 and job_id = any($2)";

        let mut tx = self.pools.tenant(tenant).await?;
        let jobs = jobs(&mut tx, UNCHANGED_JOBS, ids).await?;
        sign(&mut tx, keys, &jobs).await?;
        holdfast_pg::query(FORGET).bind(tenant.as_uuid()).bind(ids).execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }

    /// Signs the jobs of the first tenants after `last` again that are signed with another key than
    /// the first one, and counts them. Returns the last tenant; `None` if there are no more.
    ///
    /// # Errors
    ///
    /// [`Error::NoSigningKeys`], or if the database fails.
    pub async fn renew_signatures(
        &self,
        last: Option<TenantId>,
        renewed: &mut u64,
    ) -> Result<Option<TenantId>, Error> {
        const TENANTS: &str = "
            select distinct tenant_id from schedule.jobs
            where $1::uuid is null or tenant_id > $1 order by tenant_id limit $2";
        const PAGE: &str =
            job!("signature is not null and job_id > all($2) order by job_id limit 200 for update");

        let Some(keys) = self.signing_keys().await? else { return Err(Error::NoSigningKeys) };
        let mut tx = self.pools.system().await?;
        let tenants: Vec<Uuid> = holdfast_pg::query_scalar(TENANTS)
            .bind(last.map(TenantId::as_uuid))
            .bind(BATCH_SIZE)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        for tenant in &tenants {
            let mut after = Vec::new();
            loop {
                let mut tx = self.pools.tenant((*tenant).into()).await?;
                let page = jobs(&mut tx, PAGE, &after).await?;
                let Some(end) = page.last().map(|job| job.id.as_uuid()) else {
                    tx.finish_reading();
                    break;
                };
                let page: Vec<Job> =
                    page.into_iter().filter(|job| keys.is_job_signed(job)).collect();
                *renewed += sign(&mut tx, keys, &page).await?;
                tx.commit().await?;
                after = vec![end];
            }
        }
        Ok(tenants.last().copied().map(Into::into))
    }
}

/// Signs those of the jobs again that were signed before a change.
pub(crate) async fn sign_again(
    tx: &mut TenantTx,
    keys: &JobKeys,
    before: &[Job],
) -> Result<(), Error> {
    const CHANGED_JOBS: &str = job!("job_id = any($2)");

    let signed = before.iter().filter(|job| keys.is_job_signed(job));
    let ids: Vec<Uuid> = signed.map(|job| job.id.as_uuid()).collect();
    let changed = jobs(tx, CHANGED_JOBS, &ids).await?;
    sign(tx, keys, &changed).await.map(drop)
}

/// Reads jobs by a query whose second parameter is a list of ids, without those of a later version.
async fn jobs(tx: &mut TenantTx, sql: &'static str, ids: &[Uuid]) -> Result<Vec<Job>, Error> {
    let tenant = tx.tenant();
    let rows: Vec<JobRow> =
        holdfast_pg::query_as(sql).bind(tenant.as_uuid()).bind(ids).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().filter_map(|row| Job::try_from(row).ok()).collect())
}

/// Stores the signatures of jobs that have another one, or none. Returns how many. A job that this
/// version cannot read has none.
async fn sign(tx: &mut TenantTx, keys: &JobKeys, jobs: &[Job]) -> Result<u64, Error> {
    const STORE: &str = "
        update schedule.jobs j set signature = s.signature
        from unnest($2::uuid[], $3::text[]) as s (job_id, signature)
        where j.tenant_id = $1 and j.job_id = s.job_id";

    let tenant = tx.tenant();
    let signed = jobs.iter().filter_map(|job| {
        let signature = keys.sign_job(tenant, &JobFields::from(job)).ok()??;
        (job.signature.as_ref() != Some(&signature)).then_some((job.id, signature))
    });
    let (ids, signatures): (Vec<JobId>, Vec<String>) = signed.unzip();
    let ids: Vec<Uuid> = ids.into_iter().map(JobId::as_uuid).collect();
    Ok(holdfast_pg::query(STORE)
        .bind(tenant.as_uuid())
        .bind(ids)
        .bind(signatures)
        .execute(tx.conn())
        .await?
        .rows_affected())
}
