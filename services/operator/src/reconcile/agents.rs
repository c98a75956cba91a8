//! Agents in the gateway.

use holdfast_proto::gateway::v1::{
    self as pb, CreateAgentRequest, DeleteAgentRequest, GetAgentRequest, UpdateAgentRequest,
};

use super::{Observed, Reconciled};
use crate::{
    context::{Context, HasStore, SecretValue, Watched},
    error::Failure,
    gateway::{answer, found},
    resources::{Agent, AgentSpec},
};

impl HasStore for Agent {
    fn watched(context: &Context) -> &Watched<Self> {
        &context.agents
    }
}

impl Reconciled for Agent {
    async fn observe(&self, context: &Context) -> Result<Option<Observed>, Failure> {
        let Some(agent) = self.find(context).await? else { return Ok(None) };
        let id = agent.id.clone();
        let state = AgentSpec::from_message(agent, &self.spec.tenant);
        let state = serde_json::to_value(state).unwrap_or_default();
        Ok(Some(Observed { id, state }))
    }

    async fn write(
        &self,
        context: &Context,
        observed: Option<&Observed>,
        _: &[SecretValue],
    ) -> Result<Vec<String>, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let mut agents = context.gateway.agents();
        let name = self.gateway_name();
        let Some(observed) = observed else {
            let agent = Some(self.spec.to_message(String::new(), name, false));
            let made = agents.create_agent(key.request(CreateAgentRequest { agent })).await;
            return Ok(answer(made)?.warnings);
        };
        let is_default = observed.state["default"] == true;
        let agent = Some(self.spec.to_message(observed.id.clone(), name, is_default));
        let changed = agents.update_agent(key.request(UpdateAgentRequest { agent })).await;
        Ok(answer(changed)?.warnings)
    }

    async fn remove(&self, context: &Context) -> Result<(), Failure> {
        let Some(agent) = self.find(context).await? else { return Ok(()) };
        let key = context.tenant_key(&self.spec.tenant).await?;
        let request = key.request(DeleteAgentRequest { agent: agent.id });
        answer(context.gateway.agents().delete_agent(request).await)?;
        Ok(())
    }
}

impl Agent {
    async fn find(&self, context: &Context) -> Result<Option<pb::Agent>, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let request = key.request(GetAgentRequest { agent: self.gateway_name() });
        let outcome = found(context.gateway.agents().get_agent(request).await);
        match outcome.transpose() {
            Some(outcome) => Ok(answer(outcome)?.agent),
            None => Ok(None),
        }
    }
}
