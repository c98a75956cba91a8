//! States of agents: what a person has set, and what follows from hit points and running turns.

use std::collections::HashSet;

use holdfast_directory::{Actor, Agent, AgentState};
use holdfast_types::{AgentId, TenantId};

use super::State;
use crate::Error;

/// Facts of a tenant from which the states of its agents follow.
#[derive(Debug, Default)]
pub(super) struct AgentFacts {
    /// Agents that run a turn.
    working: HashSet<AgentId>,
    /// Agents whose hit points reached zero.
    exhausted: Vec<AgentId>,
}

impl AgentFacts {
    pub(super) async fn load(state: &State, tenant: TenantId) -> Result<Self, Error> {
        Ok(Self {
            working: state.sessions.working_agents(tenant).await?,
            exhausted: state.work.exhausted_agents(tenant).await?,
        })
    }

    /// The state in a word.
    pub(super) fn state_of(&self, agent: &Agent) -> &'static str {
        let uses_hit_points = agent.settings.hit_points.is_some();
        match agent.state {
            AgentState::Archived | AgentState::Disabled => agent.state.as_str(),
            AgentState::Enabled if uses_hit_points && self.exhausted.contains(&agent.id) => {
                AgentState::Disabled.as_str()
            }
            AgentState::Enabled if self.working.contains(&agent.id) => "running",
            AgentState::Enabled => "sleeping",
        }
    }
}

/// Changes the state of an agent. An agent that is enabled goes on with what waits for it.
pub(super) async fn set_state(
    state: &State,
    (tenant, actor): (TenantId, Actor),
    named: &str,
    wanted: AgentState,
) -> Result<Agent, Error> {
    let agent = state.directory.agents().set_state(tenant, actor, named, wanted).await?;
    if wanted == AgentState::Enabled {
        if let Some(settings) = &agent.settings.hit_points {
            state.work.enable_agent(tenant, agent.id, settings).await?;
        }
        state.sessions.wake_agent(tenant, agent.id).await?;
        state.bus.wake_run(0);
    }
    Ok(agent)
}
