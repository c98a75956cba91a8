//! What every turn of this process shares.

use std::sync::Arc;

use holdfast_agent::policy::{self, Catalog, Compiled, Defaults, Origin};
use holdfast_bus::Bus;
use holdfast_directory::{Directory, KnownTool};
use holdfast_lock::{Locks, SessionLocks};
use holdfast_session::Sessions;
use holdfast_tools::{Brought, Registry};
use holdfast_types::{Effect, RunnerId};
use holdfast_workspace::Workspaces;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    agents::Agents, config::Runner, extraction::Hints, held::Held, mcp::Mcp, memory::Memory,
    policies::Policies, prompts::Prompts, studio::Providers, summaries::Queue, zone::Zones,
};

/// What every turn of this process shares.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: RunnerId,
    pub(crate) config: Runner,
    pub(crate) sessions: Sessions,
    /// Where people said that they are.
    pub(crate) zones: Zones,
    pub(crate) directory: Directory,
    pub(crate) agents: Agents,
    pub(crate) workspaces: Workspaces,
    pub(crate) policies: Policies,
    pub(crate) studio: Arc<Providers>,
    pub(crate) bus: Bus,
    pub(crate) locks: SessionLocks,
    pub(crate) leases: Locks,
    /// Conversations that wait to be summarised.
    pub(crate) summaries: Queue,
    pub(crate) prompts: Prompts,
    /// What is remembered; `None` where no memory service is set up.
    pub(crate) memory: Option<Arc<Memory>>,
    /// Conversations to look through for what to remember.
    pub(crate) extract: Hints,
    /// The tools of every agent; a turn may have more.
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) mcp: Mcp,
    pub(crate) held: Arc<Held>,
    /// There may be sessions to claim.
    pub(crate) wake: Notify,
    /// There may be events to publish.
    pub(crate) events: Notify,
    /// A subagent may have ended.
    pub(crate) ended: Notify,
    /// Turns end at their next step's boundary.
    pub(crate) draining: CancellationToken,
    /// Turns end where they stand.
    pub(crate) giving_up: CancellationToken,
}

/// The tools that there are here.
#[derive(Debug)]
pub(crate) struct Toolbox {
    registry: Registry,
    catalog: Arc<Catalog>,
    shipped: Arc<Compiled>,
    nothing: Arc<Compiled>,
}

impl Toolbox {
    /// Lists the tools for policies, once.
    ///
    /// # Errors
    ///
    /// If what holds where nothing is written names what no tool could be called.
    pub(crate) fn new(registry: Registry) -> Result<Self, policy::Error> {
        Self::with(registry, &[])
    }

    /// These tools and those that MCP servers bring, with (tool, server) of each.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn joined_by(
        &self,
        brought: Brought,
        origins: &[(String, String)],
    ) -> Result<Self, policy::Error> {
        Self::with(self.registry.joined_by(brought), origins)
    }

    fn with(registry: Registry, origins: &[(String, String)]) -> Result<Self, policy::Error> {
        let tool = |name: String| match origins.iter().find(|(tool, _)| *tool == name) {
            Some((_, server)) => policy::Tool { name, origin: Origin::Mcp(server.clone()) },
            None => policy::Tool { name, origin: Origin::Native },
        };
        let tools = registry.specs().into_iter().map(|spec| tool(spec.name));
        let (catalog, warnings) = Catalog::new(tools);
        for warning in warnings {
            warn!(%warning, "a tool was left out");
        }
        let (catalog, own) = (Arc::new(catalog), policy::Settings::default());
        let none = policy::Settings { tools: Some(Vec::new()), ..policy::Settings::default() };
        let compiled =
            |own| Compiled::new(Arc::clone(&catalog), &Defaults::default(), own, own).map(Arc::new);
        Ok(Self { shipped: compiled(&own)?, nothing: compiled(&none)?, registry, catalog })
    }

    /// What a tenant and its agent say about tools, bound to those that there are.
    ///
    /// # Errors
    ///
    /// If they say what cannot be.
    pub(crate) fn compile(
        &self,
        tenant: &policy::Settings,
        agent: &policy::Settings,
    ) -> Result<Arc<Compiled>, policy::Error> {
        let catalog = Arc::clone(&self.catalog);
        Compiled::new(catalog, &Defaults::default(), tenant, agent).map(Arc::new)
    }

    /// The tools, for policies.
    pub(crate) const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// What holds where nobody says anything.
    pub(crate) fn shipped(&self) -> Arc<Compiled> {
        Arc::clone(&self.shipped)
    }

    /// What allows no tool at all.
    pub(crate) fn nothing(&self) -> Arc<Compiled> {
        Arc::clone(&self.nothing)
    }

    /// The tools as others are told of them: names, and a line on each.
    pub(crate) fn announced(&self) -> Vec<KnownTool> {
        let line = |spec: holdfast_types::ToolSpec| KnownTool {
            summary: spec.description.lines().next().unwrap_or_default().to_owned(),
            name: spec.name,
        };
        self.registry.specs().into_iter().map(line).collect()
    }

    /// The tools, to call them.
    pub(crate) const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The name under which a tool is known, whatever it is called by; `None` if there is none.
    pub(crate) fn known(&self, name: &str) -> Option<&str> {
        self.registry.canonical(name)
    }

    /// What calls of a tool are counted under: what servers bring is counted together.
    pub(crate) fn label(&self, name: &str) -> String {
        match self.known(name) {
            Some(known) if self.registry.is_brought(known) => "mcp".to_owned(),
            Some(known) => known.to_owned(),
            None => "unknown".to_owned(),
        }
    }

    /// What a call may change: anything, unless the tool says otherwise.
    pub(crate) fn effect(&self, name: &str) -> Effect {
        self.registry.effect(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_there_acts() {
        let tools = Toolbox::new(Registry::default()).unwrap();

        assert_eq!(tools.effect("rm"), Effect::Acts);
        assert_eq!(tools.known("rm"), None);
    }
}
