//! Import of packaged agents, each with a rule that a person must approve (spec SKL-014).

use holdfast_types::{AgentId, TenantId};

use super::{Agents, agents, catalogue::check_agent, check_limit, routing::MAX_RULES};
use crate::{
    Actor, Agent, Error, NewAgent, NewRule, agent::behavior::MAX_BEHAVIORS, store,
    tenant::check_name,
};

/// Agent of a package, to be created.
#[derive(Debug, Clone, Default)]
pub struct ImportedAgent {
    pub agent: NewAgent,
    /// Rule that leads to it; it will be disabled.
    pub rule: Option<NewRule>,
    /// Names and sources of its own behaviours. The caller must have checked that these are valid.
    pub behaviors: Vec<(String, String)>,
}

impl Agents<'_> {
    /// Creates an agent with its behaviours, and a disabled rule that leads to it: all or nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, [`Error::Taken`] if the agent's name is used,
    /// [`Error::TooMany`] at a limit.
    pub async fn import(
        self,
        tenant: TenantId,
        actor: Actor,
        imported: ImportedAgent,
    ) -> Result<Agent, Error> {
        let ImportedAgent { agent: new, rule, behaviors } = imported;
        let rule = rule.map(NewRule::check).transpose()?;
        let mut tx = self.0.begin_change(tenant).await?;
        check_agent(&mut tx, &new).await?;
        check_limit("agents", store::agents::count(&mut tx).await?, agents::MAX_AGENTS)?;
        let made = store::agents::insert(&mut tx, AgentId::generate(), &new).await;
        let agent = made.map_err(|error| agents::refuse(&new, error))?;
        if let Some(rule) = rule {
            let (count, position) = store::rules::end(&mut tx).await?;
            check_limit("rules", count, MAX_RULES)?;
            let rule = NewRule { disabled: true, ..rule };
            store::rules::insert(&mut tx, position, &rule, agent.id, None).await?;
        }
        for (count, (name, source)) in (0..).zip(&behaviors) {
            check_name("behavior", name)?;
            check_limit("behaviors in one layer", count, MAX_BEHAVIORS)?;
            store::agents::behaviors::add(&mut tx, Some(agent.id), name, source).await?;
        }
        store::audit::record(&mut tx, actor, "agent.import", agent.id).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(agent)
    }

    /// Enables the disabled rules that lead to an agent. Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such agent.
    pub async fn approve(
        self,
        tenant: TenantId,
        actor: Actor,
        name_or_id: &str,
    ) -> Result<u64, Error> {
        let agent = self.get(tenant, name_or_id).await?;
        let mut tx = self.0.begin_change(tenant).await?;
        let enabled = store::rules::enable(&mut tx, agent.id).await?;
        store::audit::record(&mut tx, actor, "agent.approve", agent.id).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(enabled)
    }
}
