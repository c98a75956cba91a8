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

use holdfast_agent::policy::{Catalog, CompiledPolicy, Settings};
use holdfast_directory::{Directory, StoredPolicy};
use holdfast_types::{AgentId, TenantId};
use serde::Deserialize as _;
use tracing::error;

use crate::{error::Error, tools::tool_set::ToolSet};

/// Time for which a policy is cached.
const POLICY_TTL: Duration = Duration::from_secs(1);

/// Age from which a policy in use is refreshed in the background, so that no turn waits for it.
const POLICY_REFRESH_AGE: Duration = Duration::from_millis(600);

/// Policies that are cached. When full, all are cleared.
const MAX_CACHED_POLICIES: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Policies {
    directory: Directory,
    cache: Mutex<HashMap<PolicyKey, CachedPolicy>>,
    /// Policies that are being refreshed.
    refreshing: Mutex<HashSet<PolicyKey>>,
}

/// Tenant, agent and address of the catalog: an agent's tools change as MCP servers come and go.
/// The cached policy keeps the catalog alive, so that its address stays unique.
type PolicyKey = (TenantId, AgentId, usize);

#[derive(Debug, Clone)]
struct CachedPolicy {
    at: Instant,
    /// Versions of the tenant's and the agent's policy.
    versions: (i64, i64),
    /// Tools that the policy was compiled for.
    #[expect(dead_code, reason = "held, so that its address stays its own")]
    catalog: Arc<Catalog>,
    compiled: Arc<CompiledPolicy>,
}

impl Policies {
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory, cache: Mutex::default(), refreshing: Mutex::default() }
    }

    /// Returns an agent's policy, at most a second old.
    pub(crate) async fn find(
        &self,
        tools: &ToolSet,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Arc<CompiledPolicy>, Error> {
        // Time before the read: a change during the read is seen a second later at most.
        let at = Instant::now();
        let which = (tenant, agent, Arc::as_ptr(tools.catalog()).addr());
        let kept = lock(&self.cache).get(&which).cloned();
        if let Some(kept) = kept.as_ref().filter(|kept| at.duration_since(kept.at) < POLICY_TTL) {
            return Ok(Arc::clone(&kept.compiled));
        }
        self.load(tools, which, kept, at).await
    }

    /// Loads a policy and replaces the cached one.
    async fn load(
        &self,
        tools: &ToolSet,
        which: PolicyKey,
        kept: Option<CachedPolicy>,
        at: Instant,
    ) -> Result<Arc<CompiledPolicy>, Error> {
        let stored = self
            .directory
            .policies()
            .for_agent(which.0, which.1)
            .await
            .map_err(Error::directory)?;
        let versions = (stored.tenant.version, stored.agent.version);
        let compiled = match kept.filter(|kept| kept.versions == versions) {
            Some(kept) => kept.compiled,
            None => compile(tools, &stored.tenant, &stored.agent),
        };
        let mut all = lock(&self.cache);
        if all.len() >= MAX_CACHED_POLICIES {
            all.clear();
        }
        let catalog = Arc::clone(tools.catalog());
        let kept = CachedPolicy { at, versions, catalog, compiled: Arc::clone(&compiled) };
        all.insert(which, kept);
        Ok(compiled)
    }

    /// Refreshes a policy that expires soon, for the following turns.
    pub(crate) async fn refresh_if_aging(&self, tools: &ToolSet, tenant: TenantId, agent: AgentId) {
        let at = Instant::now();
        let which = (tenant, agent, Arc::as_ptr(tools.catalog()).addr());
        let kept = lock(&self.cache).get(&which).cloned();
        let age = kept.as_ref().map(|kept| at.duration_since(kept.at));
        let is_aging = age.is_some_and(|age| (POLICY_REFRESH_AGE..POLICY_TTL).contains(&age));
        if is_aging && lock(&self.refreshing).insert(which) {
            // A failure is ignored: the next turn that needs the policy loads it and reports the
            // failure.
            let _ = self.load(tools, which, kept, at).await;
            lock(&self.refreshing).remove(&which);
        }
    }
}

fn compile(tools: &ToolSet, tenant: &StoredPolicy, agent: &StoredPolicy) -> Arc<CompiledPolicy> {
    if (tenant.version, agent.version) == (0, 0) {
        return tools.default_policy();
    }
    let made = settings(tenant)
        .and_then(|tenant| Ok((tenant, settings(agent)?)))
        .and_then(|(tenant, agent)| Ok(tools.compile_policy(&tenant, &agent)?));
    made.unwrap_or_else(|problem| {
        error!(
            error = &*problem as &dyn std::error::Error,
            tenant.version = tenant.version,
            agent.version = agent.version,
            "a stored tool policy cannot be used: its agents have no tools until it can"
        );
        tools.deny_all_policy()
    })
}

type PolicyError = Box<dyn std::error::Error + Send + Sync>;

fn settings(stored: &StoredPolicy) -> Result<Settings, PolicyError> {
    Ok(Settings::deserialize(&stored.document)?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
