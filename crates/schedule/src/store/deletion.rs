//! Deletion of jobs with their firings and log.

use holdfast_pg::TenantTx;
use holdfast_types::{JobId, TenantId};

use crate::store::{Error, Jobs};

impl Jobs {
    /// Deletes a job with its firings and its log. Returns whether it existed.
    ///
    /// A turn that was started by a delivered firing continues; undelivered firings are dropped.
    pub async fn remove(&self, tenant: TenantId, job: JobId) -> Result<bool, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let was_there = delete_job(&mut tx, job).await?;
        tx.commit().await?;
        Ok(was_there)
    }
}

pub(crate) async fn delete_job(tx: &mut TenantTx, job: JobId) -> Result<bool, Error> {
    // The job first, in a statement of its own: this waits for a claim that is deciding the job's
    // slots, and the next statements see what that claim wrote.
    const JOB: &str = "delete from schedule.jobs where tenant_id = $1 and job_id = $2";
    const REST: [&str; 2] = [
        "delete from schedule.firings where tenant_id = $1 and job_id = $2",
        "delete from schedule.runs where tenant_id = $1 and job_id = $2",
    ];

    let tenant = tx.tenant();
    let gone = holdfast_pg::query(JOB)
        .bind(tenant.as_uuid())
        .bind(job.as_uuid())
        .execute(tx.conn())
        .await?;
    if gone.rows_affected() == 0 {
        return Ok(false);
    }
    for sql in REST {
        holdfast_pg::query(sql)
            .bind(tenant.as_uuid())
            .bind(job.as_uuid())
            .execute(tx.conn())
            .await?;
    }
    Ok(true)
}
