//! Jobs of people whose conversations get another key.

use holdfast_types::TenantId;

use crate::store::{
    Error, Job, Jobs,
    row::{JobRow, job},
    signing::sign_again,
};

impl Jobs {
    /// Gives jobs that name these conversations their new keys, and jobs of these owners another
    /// owner. Can be repeated.
    pub async fn follow_people(
        &self,
        tenant: TenantId,
        keys: &[(String, String)],
        owners: &[(String, String)],
    ) -> Result<(), Error> {
        const KEYS: &str = "
            update schedule.jobs j
            set payload = jsonb_set(j.payload, '{session}', to_jsonb(n.latter)),
                version = j.version + 1
            from unnest($2::text[], $3::text[]) as n (former, latter)
            where j.tenant_id = $1 and j.kind <> 'heartbeat'
              and j.payload->>'session' = n.former";
        const OWNERS: &str = "
            update schedule.jobs j set owner = n.latter, version = j.version + 1
            from unnest($2::text[], $3::text[]) as n (former, latter)
            where j.tenant_id = $1 and j.owner = n.former";

        const AFFECTED_JOBS: &str = job!(
            "kind <> 'heartbeat' and (payload->>'session' = any($2) or owner = any($3)) for update"
        );

        let signing_keys = self.signing_keys().await?;
        let mut tx = self.pools.tenant(tenant).await?;
        let former = |changes: &[(String, String)]| -> Vec<String> {
            changes.iter().map(|(former, _)| former.clone()).collect()
        };
        let affected: Vec<JobRow> = holdfast_pg::query_as(AFFECTED_JOBS)
            .bind(tenant.as_uuid())
            .bind(former(keys))
            .bind(former(owners))
            .fetch_all(tx.conn())
            .await?;
        let before: Vec<Job> =
            affected.into_iter().filter_map(|row| Job::try_from(row).ok()).collect();
        for (sql, changes) in [(KEYS, keys), (OWNERS, owners)] {
            let (former, latter): (Vec<&str>, Vec<&str>) =
                changes.iter().map(|(old, new)| (old.as_str(), new.as_str())).unzip();
            holdfast_pg::query(sql)
                .bind(tenant.as_uuid())
                .bind(former)
                .bind(latter)
                .execute(tx.conn())
                .await?;
        }
        if let Some(keys) = signing_keys {
            sign_again(&mut tx, keys, &before).await?;
        }
        Ok(tx.commit().await?)
    }
}
