//! Deletion of tenants that an operator has marked for it, by the runner with the duty of upkeep.

use std::{sync::Arc, time::Duration};

use holdfast_pg::FailureLog;
use holdfast_types::TenantId;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{jitter::jittered, worker::Worker};

/// Maximum interval of looking for tenants to delete. Two passes are needed for each.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Deletes marked tenants, until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("tenants are not deleted");
    let every = worker.config.prune.min(MAX_INTERVAL);
    while stop.run_until_cancelled(sleep(jittered(every))).await.is_some() {
        if !worker.upkeep.is_held() {
            continue;
        }
        match delete_marked(&worker, &stop).await {
            Ok(()) => trouble.on_success(),
            Err(error) => trouble.on_failure(error.as_ref()),
        }
    }
}

async fn delete_marked(worker: &Worker, stop: &CancellationToken) -> anyhow::Result<()> {
    let mut failed = None;
    for tenant in worker.directory.tenants().deleting().await? {
        if stop.is_cancelled() {
            break;
        }
        if let Err(error) = delete_rows(worker, tenant).await {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn delete_rows(worker: &Worker, tenant: TenantId) -> anyhow::Result<()> {
    let sessions = worker.sessions.delete_all(tenant).await?;
    let rows = worker.directory.tenants().erase(tenant).await?;
    if rows == 0 {
        info!(tenant.id = %tenant, "the tenant is deleted");
    } else {
        info!(tenant.id = %tenant, sessions, rows, "rows of a tenant are deleted");
    }
    Ok(())
}
