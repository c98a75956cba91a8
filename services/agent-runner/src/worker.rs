//! What every turn of this process shares.

use std::{collections::HashMap, sync::Arc};

use holdfast_bus::Bus;
use holdfast_directory::Directory;
use holdfast_lock::SessionLocks;
use holdfast_session::Sessions;
use holdfast_tools::Registry;
use holdfast_types::{Effect, RunnerId, ToolSpec};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{agents::Agents, config::Runner, held::Held};

/// What every turn of this process shares.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: RunnerId,
    pub(crate) config: Runner,
    pub(crate) sessions: Sessions,
    pub(crate) directory: Directory,
    pub(crate) agents: Agents,
    pub(crate) bus: Bus,
    pub(crate) locks: SessionLocks,
    pub(crate) tools: Toolbox,
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

/// The tools, and what models are told of them.
#[derive(Debug)]
pub(crate) struct Toolbox {
    registry: Registry,
    specs: Vec<ToolSpec>,
    effects: HashMap<String, Effect>,
}

impl Toolbox {
    /// Reads what the tools say of themselves, once.
    pub(crate) fn new(registry: Registry) -> Self {
        let specs = registry.specs();
        let effect = |spec: &ToolSpec| (spec.name.clone(), registry.effect(&spec.name));
        let effects = specs.iter().map(effect).collect();
        Self { registry, specs, effects }
    }

    /// The tools, to call them.
    pub(crate) const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What a model is told of the tools that its agent may use.
    pub(crate) fn specs(&self, allowed: Option<&[String]>) -> Vec<ToolSpec> {
        let may = |spec: &&ToolSpec| is_allowed(allowed, &spec.name);
        self.specs.iter().filter(may).cloned().collect()
    }

    /// Whether there is a tool of that name.
    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.effects.contains_key(name)
    }

    /// What a call may change: anything, unless the tool says otherwise.
    pub(crate) fn effect(&self, name: &str) -> Effect {
        self.effects.get(name).copied().unwrap_or(Effect::Acts)
    }
}

/// `None` allows all tools, an empty list none.
pub(crate) fn is_allowed(allowed: Option<&[String]>, tool: &str) -> bool {
    allowed.is_none_or(|allowed| allowed.iter().any(|name| name == tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_allows_all_tools_and_an_empty_one_none() {
        assert!(is_allowed(None, "message"));
        assert!(!is_allowed(Some(&[]), "message"));
        assert!(is_allowed(Some(&["message".to_owned()]), "message"));
    }

    #[test]
    fn a_tool_that_is_not_there_acts() {
        let tools = Toolbox::new(Registry::default());

        assert_eq!(tools.effect("rm"), Effect::Acts);
        assert!(tools.specs(None).is_empty());
    }
}
