//! Tools of an agent with their catalog and the policies that are compiled for them.

use std::sync::Arc;

use holdfast_agent::policy::{self, Catalog, CompiledPolicy, Defaults, Origin};
use holdfast_directory::KnownTool;
use holdfast_tools::{DynamicTools, Registry};
use holdfast_types::Effect;
use tracing::warn;

/// Tools and the policies that are bound to them.
#[derive(Debug)]
pub(crate) struct ToolSet {
    registry: Registry,
    catalog: Arc<Catalog>,
    shipped: Arc<CompiledPolicy>,
    nothing: Arc<CompiledPolicy>,
}

impl ToolSet {
    /// Builds a toolbox without tools of MCP servers.
    ///
    /// # Errors
    ///
    /// If the built-in policy names an unknown tool.
    pub(crate) fn new(registry: Registry) -> Result<Self, policy::Error> {
        Self::build(registry, &[])
    }

    /// Adds tools of MCP servers; `origins` are pairs of tool and server.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn with_server_tools(
        &self,
        brought: DynamicTools,
        origins: &[(String, String)],
    ) -> Result<Self, policy::Error> {
        Self::build(self.registry.with_dynamic_tools(brought), origins)
    }

    fn build(registry: Registry, origins: &[(String, String)]) -> Result<Self, policy::Error> {
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
        let compiled = |own| {
            CompiledPolicy::new(Arc::clone(&catalog), &Defaults::default(), own, own).map(Arc::new)
        };
        Ok(Self { shipped: compiled(&own)?, nothing: compiled(&none)?, registry, catalog })
    }

    /// Compiles the policies of a tenant and its agent for these tools.
    ///
    /// # Errors
    ///
    /// If a policy is invalid.
    pub(crate) fn compile_policy(
        &self,
        tenant: &policy::Settings,
        agent: &policy::Settings,
    ) -> Result<Arc<CompiledPolicy>, policy::Error> {
        let catalog = Arc::clone(&self.catalog);
        CompiledPolicy::new(catalog, &Defaults::default(), tenant, agent).map(Arc::new)
    }

    pub(crate) const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Policy that applies where nothing is configured.
    pub(crate) fn default_policy(&self) -> Arc<CompiledPolicy> {
        Arc::clone(&self.shipped)
    }

    /// Policy that allows no tool.
    pub(crate) fn deny_all_policy(&self) -> Arc<CompiledPolicy> {
        Arc::clone(&self.nothing)
    }

    /// Names and one-line descriptions of the tools.
    pub(crate) fn tool_lines(&self) -> Vec<KnownTool> {
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
    pub(crate) fn canonical_name(&self, name: &str) -> Option<&str> {
        self.registry.canonical(name)
    }

    /// Label of a tool in metrics; tools of MCP servers share one.
    pub(crate) fn metric_label(&self, name: &str) -> String {
        match self.canonical_name(name) {
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
        let tools = ToolSet::new(Registry::default()).unwrap();

        assert_eq!(tools.effect("rm"), Effect::Acts);
        assert_eq!(tools.canonical_name("rm"), None);
    }
}
