//! Which tools may be used: what tenants and their agents say of it, compiled.
//!
//! A policy is looked up at every step and remembered for a moment, so that a
//! change holds from the next step on, in every runner, and an agent to whom
//! nobody speaks costs no query. What is stored and cannot be read (a later
//! version wrote it) allows nothing, rather than everything.

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

/// For how long a policy is believed to be what it was.
const KEPT: Duration = Duration::from_secs(1);

/// From when on one that is used is read again beside the turn, so that none waits for it.
const AGING: Duration = Duration::from_millis(600);

/// The most agents whose policies are kept.
const MOST_KEPT: usize = 10_000;

/// How often the tools are announced; the directory forgets them after three days.
const ANNOUNCED: Duration = Duration::from_secs(6 * 3600);

/// How soon again if that failed.
const AGAIN: Duration = Duration::from_secs(10);

/// The policies of agents, compiled.
#[derive(Debug)]
pub(crate) struct Policies {
    directory: Directory,
    kept: Mutex<HashMap<Which, Kept>>,
    /// Those that are read again.
    renewing: Mutex<HashSet<Which>>,
}

/// Whose, and for which tools: an agent has others as MCP servers come and go. The address is that
/// of [`Kept::catalog`], which is held, so that it is no other's meanwhile.
type Which = (TenantId, AgentId, usize);

#[derive(Debug, Clone)]
struct Kept {
    at: Instant,
    /// The tenant's and the agent's version.
    versions: (i64, i64),
    /// The tools that it was compiled for.
    #[expect(dead_code, reason = "held, so that its address stays its own")]
    catalog: Arc<Catalog>,
    compiled: Arc<Compiled>,
}

impl Policies {
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory, kept: Mutex::default(), renewing: Mutex::default() }
    }

    /// An agent's policy, as it is now or was a second ago.
    pub(crate) async fn find(
        &self,
        tools: &Toolbox,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Arc<Compiled>, Error> {
        // When the reading begins: what changes from then on is seen a second later at most.
        let at = Instant::now();
        let which = (tenant, agent, Arc::as_ptr(tools.catalog()).addr());
        let kept = lock(&self.kept).get(&which).cloned();
        if let Some(kept) = kept.as_ref().filter(|kept| at.duration_since(kept.at) < KEPT) {
            return Ok(Arc::clone(&kept.compiled));
        }
        self.read(tools, which, kept, at).await
    }

    /// Reads a policy, which replaces what was kept.
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

    /// Reads again what is believed no longer soon, for the turns that follow.
    pub(crate) async fn renew(&self, tools: &Toolbox, tenant: TenantId, agent: AgentId) {
        let at = Instant::now();
        let which = (tenant, agent, Arc::as_ptr(tools.catalog()).addr());
        let kept = lock(&self.kept).get(&which).cloned();
        let age = kept.as_ref().map(|kept| at.duration_since(kept.at));
        let is_aging = age.is_some_and(|age| (AGING..KEPT).contains(&age));
        if is_aging && lock(&self.renewing).insert(which) {
            // What cannot be read now is read, and told, by the turn that needs it.
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

/// Tells the directory which tools there are here, for whoever checks and explains policies.
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
