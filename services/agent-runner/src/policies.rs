//! Tool policies of tenants and agents, compiled and cached.
//!
//! A policy is looked up at every step and cached for a second, so a change applies from the next
//! step on all runners, and an idle agent costs no query. A stored policy that cannot be read, for
//! example one of a later version, allows nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_agent::policy::{Catalog, Compiled, Settings};
use holdfast_directory::{Directory, StoredPolicy};
use holdfast_types::{AgentId, TenantId};
use serde::Deserialize as _;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{
    error::Error,
    trouble::Trouble,
    upkeep::jittered,
    worker::{Toolbox, Worker},
};

/// Time for which a policy is cached.
const KEPT: Duration = Duration::from_secs(1);

/// Age from which a policy in use is refreshed in the background, so that no turn waits for it.
const AGING: Duration = Duration::from_millis(600);

/// Policies that are cached. When full, all are cleared.
const MOST_KEPT: usize = 10_000;

/// Interval of announcing the tools; the directory drops them after three days.
const ANNOUNCED: Duration = Duration::from_secs(6 * 3600);

/// Retry delay after a failed announcement.
const AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Policies {
    directory: Directory,
    kept: Mutex<HashMap<Which, Kept>>,
    /// Policies that are being refreshed.
    renewing: Mutex<HashSet<Which>>,
}

/// Tenant, agent and address of the catalog: an agent's tools change as MCP servers come and go.
/// The cached policy keeps the catalog alive, so that its address stays unique.
type Which = (TenantId, AgentId, usize);

#[derive(Debug, Clone)]
struct Kept {
    at: Instant,
    /// Versions of the tenant's and the agent's policy.
    versions: (i64, i64),
    /// Tools that the policy was compiled for.
    #[expect(dead_code, reason = "held, so that its address stays its own")]
    catalog: Arc<Catalog>,
    compiled: Arc<Compiled>,
}

impl Policies {
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory, kept: Mutex::default(), renewing: Mutex::default() }
    }

    /// Returns an agent's policy, at most a second old.
    pub(crate) async fn find(
        &self,
        tools: &Toolbox,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Arc<Compiled>, Error> {
        // Time before the read: a change during the read is seen a second later at most.
        let at = Instant::now();
        let which = (tenant, agent, Arc::as_ptr(tools.catalog()).addr());
        let kept = lock(&self.kept).get(&which).cloned();
        if let Some(kept) = kept.as_ref().filter(|kept| at.duration_since(kept.at) < KEPT) {
            return Ok(Arc::clone(&kept.compiled));
        }
        self.read(tools, which, kept, at).await
    }

    /// Loads a policy and replaces the cached one.
    async fn read(
        &self,
        tools: &Toolbox,
        which: Which,
        kept: Option<Kept>,
        at: Instant,
    ) -> Result<Arc<Compiled>, Error> {
        let stored = self.directory.policies(which.0, which.1).await.map_err(Error::directory)?;
        let versions = (stored.tenant.version, stored.agent.version);
        let compiled = match kept.filter(|kept| kept.versions == versions) {
            Some(kept) => kept.compiled,
            None => compile(tools, &stored.tenant, &stored.agent),
        };
        let mut all = lock(&self.kept);
        if all.len() >= MOST_KEPT {
            all.clear();
        }
        let catalog = Arc::clone(tools.catalog());
        let kept = Kept { at, versions, catalog, compiled: Arc::clone(&compiled) };
        all.insert(which, kept);
        Ok(compiled)
    }

    /// Refreshes a policy that expires soon, for the following turns.
    pub(crate) async fn renew(&self, tools: &Toolbox, tenant: TenantId, agent: AgentId) {
        let at = Instant::now();
        let which = (tenant, agent, Arc::as_ptr(tools.catalog()).addr());
        let kept = lock(&self.kept).get(&which).cloned();
        let age = kept.as_ref().map(|kept| at.duration_since(kept.at));
        let is_aging = age.is_some_and(|age| (AGING..KEPT).contains(&age));
        if is_aging && lock(&self.renewing).insert(which) {
            // A failure is ignored: the next turn that needs the policy loads it and reports the
            // failure.
            let _ = self.read(tools, which, kept, at).await;
            lock(&self.renewing).remove(&which);
        }
    }
}

fn compile(tools: &Toolbox, tenant: &StoredPolicy, agent: &StoredPolicy) -> Arc<Compiled> {
    if (tenant.version, agent.version) == (0, 0) {
        return tools.shipped();
    }
    let made = settings(tenant)
        .and_then(|tenant| Ok((tenant, settings(agent)?)))
        .and_then(|(tenant, agent)| Ok(tools.compile(&tenant, &agent)?));
    made.unwrap_or_else(|problem| {
        error!(
            error = &*problem as &dyn std::error::Error,
            tenant.version = tenant.version,
            agent.version = agent.version,
            "a stored tool policy cannot be used: its agents have no tools until it can"
        );
        tools.nothing()
    })
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

fn settings(stored: &StoredPolicy) -> Result<Settings, Problem> {
    Ok(Settings::deserialize(&stored.document)?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Announces this runner's tools to the directory, which checks and explains policies with them.
pub(crate) async fn announce(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = Trouble::new("the tools are not announced");
    let tools = worker.tools.announced();
    loop {
        let wait = match worker.directory.announce_tools(&tools).await {
            Ok(()) => {
                trouble.ends();
                jittered(ANNOUNCED)
            }
            Err(error) => {
                trouble.begins(&error);
                AGAIN
            }
        };
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            return;
        }
    }
}
