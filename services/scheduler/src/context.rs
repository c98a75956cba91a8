//! Clients and names that all parts of the scheduler share.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use holdfast_bus::Bus;
use holdfast_directory::Directory;
use holdfast_lock::Locks;
use holdfast_schedule::store::Jobs;
use holdfast_session::Sessions;
use holdfast_types::{AgentId, TenantId};
use holdfast_workspace::Workspaces;
use tokio::time::Instant;

use crate::agents::Agents;

/// Period in which the database may not show an admitted heartbeat yet.
const ADMISSION_VISIBILITY_DELAY: Duration = Duration::from_secs(2);

/// Clients that the preparation of firings needs.
#[derive(Debug, Clone)]
pub struct Ctx {
    pub jobs: Jobs,
    pub sessions: Sessions,
    pub directory: Directory,
    pub bus: Bus,
    pub agents: Arc<Agents>,
    pub heartbeats: Arc<HeartbeatContext>,
}

/// Clients and limits that only heartbeats need.
#[derive(Debug)]
pub struct HeartbeatContext {
    pub workspaces: Workspaces,
    pub locks: Locks,
    /// Minimum interval between two heartbeats of an agent.
    pub min_interval: Duration,
    /// Maximum number of concurrent heartbeats, in all replicas together.
    pub max_concurrent: u32,
    /// Times of admissions that the database may not show yet, oldest first.
    pub admitted: Mutex<VecDeque<Instant>>,
}

impl HeartbeatContext {
    /// Returns the content of the agent's `HEARTBEAT.md`; `None` if there is no such file.
    pub async fn file(&self, tenant: TenantId, agent: AgentId) -> anyhow::Result<Option<String>> {
        let path = "HEARTBEAT.md".parse().context("the file's name")?;
        let file = self.workspaces.read(tenant, agent, &path, None).await?;
        Ok(file.map(|file| String::from_utf8_lossy(&file.content).into_owned()))
    }

    /// Admits one more heartbeat if the limit permits. It then counts as running.
    pub async fn try_admit(&self, jobs: &Jobs) -> anyhow::Result<bool> {
        let beating = jobs.running_heartbeats(self.max_concurrent).await?.len();
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        while admitted.front().is_some_and(|at| at.elapsed() > ADMISSION_VISIBILITY_DELAY) {
            admitted.pop_front();
        }
        let room = usize::try_from(self.max_concurrent).unwrap_or(usize::MAX);
        if beating + admitted.len() >= room {
            return Ok(false);
        }
        admitted.push_back(Instant::now());
        Ok(true)
    }
}
