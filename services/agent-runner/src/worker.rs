//! Worker: state that all turns of this process share.

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

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: RunnerId,
    pub(crate) config: Runner,
    pub(crate) sessions: Sessions,
    /// Time zones that users have set.
    pub(crate) zones: Zones,
    pub(crate) directory: Directory,
    pub(crate) agents: Agents,
    pub(crate) workspaces: Workspaces,
    pub(crate) policies: Policies,
    pub(crate) studio: Arc<Providers>,
    pub(crate) bus: Bus,
    pub(crate) locks: SessionLocks,
    pub(crate) leases: Locks,
    pub(crate) summaries: Queue,
    pub(crate) prompts: Prompts,
    /// `None` if no memory service is configured.
    pub(crate) memory: Option<Arc<Memory>>,
    pub(crate) extract: Hints,
    /// Tools of every agent; a turn may have more.
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) mcp: Mcp,
    pub(crate) held: Arc<Held>,
    /// Notified when sessions may be ready.
    pub(crate) wake: Notify,
    /// Notified when events may have been stored.
    pub(crate) events: Notify,
    /// Notified when a subagent may have ended.
    pub(crate) ended: Notify,
    /// Cancelled when turns must end after their current step.
    pub(crate) draining: CancellationToken,
    /// Cancelled when turns must end at once.
    pub(crate) giving_up: CancellationToken,
}

/// Tools and the policies that are bound to them.
#[derive(Debug)]
pub(crate) struct Toolbox {
    registry: Registry,
    catalog: Arc<Catalog>,
    shipped: Arc<Compiled>,
    nothing: Arc<Compiled>,
}

impl Toolbox {
    /// Builds a toolbox without tools of MCP servers.
    ///
    /// # Errors
    ///
    /// If the built-in policy names an unknown tool.
    pub(crate) fn new(registry: Registry) -> Result<Self, policy::Error> {
        Self::with(registry, &[])
    }

    /// Adds tools of MCP servers; `origins` are pairs of tool and server.
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

    /// Compiles the policies of a tenant and its agent for these tools.
    ///
    /// # Errors
    ///
    /// If a policy is invalid.
    pub(crate) fn compile(
        &self,
        tenant: &policy::Settings,
        agent: &policy::Settings,
    ) -> Result<Arc<Compiled>, policy::Error> {
        let catalog = Arc::clone(&self.catalog);
        Compiled::new(catalog, &Defaults::default(), tenant, agent).map(Arc::new)
    }

    pub(crate) const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Policy that applies where nothing is configured.
    pub(crate) fn shipped(&self) -> Arc<Compiled> {
        Arc::clone(&self.shipped)
    }

    /// Policy that allows no tool.
    pub(crate) fn nothing(&self) -> Arc<Compiled> {
        Arc::clone(&self.nothing)
    }

    /// Names and one-line descriptions of the tools.
    pub(crate) fn announced(&self) -> Vec<KnownTool> {
        let line = |spec: holdfast_types::ToolSpec| KnownTool {
            summary: spec.description.lines().next().unwrap_or_default().to_owned(),
            name: spec.name,
        };
        self.registry.specs().into_iter().map(line).collect()
    }

    pub(crate) const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Canonical name of a tool; `None` if there is no such tool.
    pub(crate) fn known(&self, name: &str) -> Option<&str> {
        self.registry.canonical(name)
    }

    /// Label of a tool in metrics; tools of MCP servers share one.
    pub(crate) fn label(&self, name: &str) -> String {
        match self.known(name) {
            Some(known) if self.registry.is_brought(known) => "mcp".to_owned(),
            Some(known) => known.to_owned(),
            None => "unknown".to_owned(),
        }
    }

    /// Effect of a tool; by default it acts.
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
