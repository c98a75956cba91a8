//! Limits and expiry of tenants, by the runner with the duty of upkeep: puts changed plans into
//! effect, suspends tenants whose time is over, and gives notice of limits that are nearly used up.

use std::{collections::HashMap, sync::Arc};

use holdfast_directory::{LimitName, PlanLimits};
use holdfast_pg::FailureLog;
use holdfast_session::UsageLevels;
use holdfast_types::TenantId;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{jitter::jittered, worker::Worker};

/// Days that daily counts of commands and storage are kept.
const KEPT_DAYS: u16 = 400;

/// Looks after the limits of all tenants, until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("limits of tenants are not looked after");
    while stop.run_until_cancelled(sleep(jittered(worker.config.tenant_limits))).await.is_some() {
        if !worker.upkeep.is_held() {
            continue;
        }
        match look_after(&worker).await {
            Ok(()) => trouble.on_success(),
            Err(error) => trouble.on_failure(error.as_ref()),
        }
    }
}

async fn look_after(worker: &Worker) -> anyhow::Result<()> {
    for tenant in worker.directory.plans().apply().await? {
        worker.sessions.usage().open_budget(tenant, None).await?;
    }
    for tenant in worker.directory.tenants().expire().await? {
        info!(tenant.id = %tenant, "the time of a tenant is over, and it is suspended");
    }
    worker.workspaces.note_storage(KEPT_DAYS).await?;
    give_notices(worker).await?;
    worker.sessions.usage().prune_commands(KEPT_DAYS).await?;
    worker.directory.tenant_events().prune().await?;
    Ok(())
}

async fn give_notices(worker: &Worker) -> anyhow::Result<()> {
    let limited = worker.directory.plans().limits(None).await?;
    if limited.is_empty() {
        return Ok(());
    }
    let levels = worker.sessions.usage().levels(None).await?;
    let levels: HashMap<TenantId, UsageLevels> =
        levels.into_iter().map(|levels| (levels.tenant, levels)).collect();
    let storage: HashMap<TenantId, u64> =
        worker.workspaces.storage(None).await?.into_iter().collect();
    for (tenant, limits) in limited {
        let bytes = storage.get(&tenant).copied().unwrap_or_default();
        for (name, used) in usage(levels.get(&tenant), bytes) {
            if let Some(limit) = PlanLimits::get(&limits, name) {
                worker.directory.plans().notice(tenant, name, (used, limit)).await?;
            }
        }
    }
    Ok(())
}

/// Calls are counted by the gateway, which gives notice of them itself.
fn usage(levels: Option<&UsageLevels>, bytes: u64) -> Vec<(LimitName, u64)> {
    let mut used = vec![(LimitName::StorageBytes, bytes)];
    if let Some(levels) = levels {
        used.extend([
            (LimitName::Sessions, levels.sessions),
            (LimitName::ParallelRuns, levels.parallel_runs),
            (LimitName::TokensPerDay, levels.tokens_today),
            (LimitName::MicrosPerMonth, levels.month_micros),
            (LimitName::CommandsPerDay, levels.commands_today),
        ]);
    }
    used
}
