//! What every turn of this process shares.

use std::sync::Arc;

use holdfast_agent::policy::{self, Catalog, Compiled, Decision, Defaults, Subject};
use holdfast_bus::Bus;
use holdfast_directory::Directory;
use holdfast_lock::SessionLocks;
use holdfast_session::Sessions;
use holdfast_tools::{Allowed, Registry};
use holdfast_types::{Effect, RunnerId};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

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

/// The tools, and who may use which.
#[derive(Debug)]
pub(crate) struct Toolbox {
    registry: Registry,
    policy: Compiled,
}

impl Toolbox {
    /// Binds the policy to the tools that there are, once.
    ///
    /// # Errors
    ///
    /// If the policy names what no tool could be called.
    pub(crate) fn new(registry: Registry) -> Result<Self, policy::Error> {
        let tools = registry.specs().into_iter().map(|spec| policy::Tool::native(&spec.name));
        let (catalog, warnings) = Catalog::new(tools);
        for warning in warnings {
            warn!(%warning, "a tool was left out");
        }
        let own = policy::Settings::default();
        let policy = Compiled::new(Arc::new(catalog), &Defaults::default(), &own, &own)?;
        Ok(Self { registry, policy })
    }

    /// The tools, to call them.
    pub(crate) const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The tools that a turn may use.
    pub(crate) fn allowed(&self, subject: &Subject) -> Allowed {
        Allowed::only(self.policy.view(subject).offered())
    }

    /// What the policy says of a call.
    pub(crate) fn decide(&self, subject: &Subject, tool: &str, input: &Value) -> Decision {
        self.policy.view(subject).decide_call(tool, input)
    }

    /// The name under which a tool is known, whatever it is called by; `None` if there is none.
    pub(crate) fn known(&self, name: &str) -> Option<&'static str> {
        self.registry.canonical(name)
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
