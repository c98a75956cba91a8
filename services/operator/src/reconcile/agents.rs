//! Agents in the gateway.

use holdfast_proto::gateway::v1::{
    self as pb, CreateAgentRequest, DeleteAgentRequest, GetAgentRequest, ListBehaviorsRequest,
    UpdateAgentRequest, ValidateBehaviorRequest,
};

use super::{Observed, Reconciled, WriteOutcome};
use crate::{
    context::{Context, HasStore, SecretValue, Watched},
    error::Failure,
    gateway::{answer, found},
    resources::{
        Agent, AgentSpec,
        agent::work::{BehaviorDocuments, document_changes, own_documents},
    },
};

impl HasStore for Agent {
    fn watched(context: &Context) -> &Watched<Self> {
        &context.agents
    }
}

impl Reconciled for Agent {
    async fn observe(&self, context: &Context) -> Result<Option<Observed>, Failure> {
        let Some(agent) = self.find(context).await? else { return Ok(None) };
        let documents = match self.spec.behavior_documents {
            Some(_) => Some(self.own_documents(context).await?),
            None => None,
        };
        Ok(Some(self.observed(agent, documents)))
    }

    async fn write(
        &self,
        context: &Context,
        observed: Option<&Observed>,
        _: &[SecretValue],
    ) -> Result<WriteOutcome, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let mut agents = context.gateway.agents();
        let name = self.gateway_name();
        let (agent, mut warnings) = match observed {
            None => {
                let agent = Some(self.spec.to_message(String::new(), name, false));
                let made = agents.create_agent(key.request(CreateAgentRequest { agent })).await;
                let made = answer(made)?;
                (made.agent, made.warnings)
            }
            Some(observed) => {
                // Read again: another agent may have become the default one since.
                let known = self.find(context).await?.unwrap_or_default();
                let agent = self.spec.to_message(observed.id.clone(), name, known.is_default);
                // No fields of the resource: they stay as they are. An agent improves itself only by
                // behaviours.
                let agent = Some(pb::Agent {
                    channels: known.channels,
                    self_improve: known.self_improve.filter(|_| agent.behaviors.is_some()),
                    ..agent
                });
                let changed = agents
                    .update_agent(key.request(UpdateAgentRequest { agent, base_version: None }))
                    .await;
                let changed = answer(changed)?;
                (changed.agent, changed.warnings)
            }
        };
        if let Some(wanted) = &self.spec.behavior_documents {
            warnings.extend(self.write_documents(context, wanted).await?);
        }
        let documents = self.spec.behavior_documents.clone();
        Ok(WriteOutcome { observed: self.observed(agent.unwrap_or_default(), documents), warnings })
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
    fn observed(&self, agent: pb::Agent, documents: Option<BehaviorDocuments>) -> Observed {
        let id = agent.id.clone();
        let state = AgentSpec::from_message(agent, documents, &self.spec.tenant);
        Observed { id, state: serde_json::to_value(state).unwrap_or_default() }
    }

    async fn find(&self, context: &Context) -> Result<Option<pb::Agent>, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let request = key.request(GetAgentRequest { agent: self.gateway_name() });
        let outcome = found(context.gateway.agents().get_agent(request).await);
        match outcome.transpose() {
            Some(outcome) => Ok(answer(outcome)?.agent),
            None => Ok(None),
        }
    }

    async fn own_documents(&self, context: &Context) -> Result<BehaviorDocuments, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let request = key.request(ListBehaviorsRequest { agent: self.gateway_name() });
        let listed = answer(context.gateway.behaviors().list_behaviors(request).await)?;
        Ok(own_documents(listed.behaviors))
    }

    /// Makes the agent's own behaviours those of the resource. Returns warnings, which are asked for
    /// at last: behaviours name each other.
    async fn write_documents(
        &self,
        context: &Context,
        wanted: &BehaviorDocuments,
    ) -> Result<Vec<String>, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let mut behaviors = context.gateway.behaviors();
        let known = self.own_documents(context).await?;
        let (put, delete) = document_changes(&self.gateway_name(), wanted, &known);
        for request in &put {
            answer(behaviors.put_behavior(key.request(request.clone())).await)?;
        }
        for request in delete {
            answer(behaviors.delete_behavior(key.request(request)).await)?;
        }
        let mut warnings = Vec::new();
        for pb::PutBehaviorRequest { agent, name, source, .. } in put {
            let request = ValidateBehaviorRequest { agent, name, source, ..Default::default() };
            let checked = behaviors.validate_behavior(key.request(request)).await;
            warnings.extend(answer(checked)?.warnings);
        }
        Ok(warnings)
    }
}
