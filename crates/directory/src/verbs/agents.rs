//! Operations on agents.

use holdfast_types::{AgentId, TenantId};

use super::{catalogue::check_agent, check_limit};
use crate::{
    Actor, Agent, AgentState, Directory, Error, NewAgent, RoutedAgent, routing::AgentReference,
    store,
};

pub(super) const MAX_AGENTS: i64 = 500;

/// Agents.
#[derive(Debug, Clone, Copy)]
pub struct Agents<'d>(pub(super) &'d Directory);

impl Directory {
    #[must_use]
    pub const fn agents(&self) -> Agents<'_> {
        Agents(self)
    }
}

/// Version of an agent that a change is based on: if it is another by now, nothing is changed.
#[derive(Debug, Clone, Copy)]
pub enum BaseVersion {
    /// Version of its settings.
    Settings(i64),
    /// Version of its settings, behaviours and files that define it.
    Definition(i64),
}

impl BaseVersion {
    fn check(self, old: &Agent) -> Result<(), Error> {
        let (based_on, version) = match self {
            Self::Settings(based_on) => (based_on, old.version),
            Self::Definition(based_on) => (based_on, old.definition_version),
        };
        if based_on == version {
            return Ok(());
        }
        Err(Error::Conflict(format!(
            "the agent is version {version} by now, and this change is based on {based_on}: read it \
             again, and make the change in that"
        )))
    }
}

impl Agents<'_> {
    /// Returns the tenant's agents, in the order of creation.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<Agent>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let agents = store::agents::all(&mut tx).await?;
        tx.commit().await?;
        Ok(agents)
    }

    /// Returns the fields of the tenant's agents that routing needs, in the order of creation.
    pub async fn routed(self, tenant: TenantId) -> Result<Vec<RoutedAgent>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let cards = store::agents::cards(&mut tx).await?;
        tx.commit().await?;
        Ok(cards)
    }

    /// Returns the agent with this name or id.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such agent.
    pub async fn get(self, tenant: TenantId, name_or_id: &str) -> Result<Agent, Error> {
        let missing = || Error::not_found("agent", name_or_id);
        self.find_agent(tenant, &AgentReference::parse(name_or_id).ok_or_else(missing)?)
            .await?
            .ok_or_else(missing)
    }

    /// Returns the agent with this id.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such agent.
    pub async fn by_id(self, tenant: TenantId, id: AgentId) -> Result<Agent, Error> {
        let found = self.find_agent(tenant, &AgentReference::Id(id)).await?;
        found.ok_or_else(|| Error::not_found("agent", id))
    }

    /// Returns the default agent: the flagged one, else the first.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no agent.
    pub async fn default_agent(self, tenant: TenantId) -> Result<Agent, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let agent = store::agents::default(&mut tx).await?;
        tx.commit().await?;
        agent.ok_or_else(|| Error::not_found("agent", "main"))
    }

    /// Creates an agent.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a value is not allowed, [`Error::Taken`] if the name is used,
    /// [`Error::TooMany`] at the limit.
    pub async fn create(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewAgent,
    ) -> Result<Agent, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        check_agent(&mut tx, &new).await?;
        check_limit("agents", store::agents::count(&mut tx).await?, MAX_AGENTS)?;
        if new.is_default {
            store::agents::clear_default(&mut tx).await?;
        }
        let made = store::agents::insert(&mut tx, AgentId::generate(), &new).await;
        let agent = made.map_err(|error| refuse(&new, error))?;
        store::audit::record(&mut tx, actor, "agent.create", agent.id).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(agent)
    }

    /// Replaces all values of an agent. After a rename the agent begins new conversations, because
    /// its session keys change.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such agent, [`Error::Invalid`] if a value is not
    /// allowed, [`Error::Taken`] if the name is used.
    pub async fn update(
        self,
        tenant: TenantId,
        actor: Actor,
        name_or_id: &str,
        new: NewAgent,
    ) -> Result<Agent, Error> {
        self.replace(tenant, actor, name_or_id, (None, new)).await
    }

    /// As [`update`](Self::update), but only if the agent still has the given version.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the version differs.
    pub async fn update_version(
        self,
        tenant: TenantId,
        actor: Actor,
        name_or_id: &str,
        (base, new): (BaseVersion, NewAgent),
    ) -> Result<Agent, Error> {
        self.replace(tenant, actor, name_or_id, (Some(base), new)).await
    }

    async fn replace(
        self,
        tenant: TenantId,
        actor: Actor,
        name_or_id: &str,
        (base, new): (Option<BaseVersion>, NewAgent),
    ) -> Result<Agent, Error> {
        let missing = || Error::not_found("agent", name_or_id);
        let wanted = AgentReference::parse(name_or_id).ok_or_else(missing)?;
        let mut tx = self.0.begin_change(tenant).await?;
        check_agent(&mut tx, &new).await?;
        let old = store::agents::find(&mut tx, &wanted).await?.ok_or_else(missing)?;
        if let Some(base) = base {
            base.check(&old)?;
        }
        if new.is_default && !old.is_default {
            store::agents::clear_default(&mut tx).await?;
        }
        let changed = store::agents::update(&mut tx, old.id, &new).await;
        let agent = changed.map_err(|error| refuse(&new, error))?;
        store::audit::record(&mut tx, actor, "agent.update", agent.id).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(agent)
    }

    /// Enables, disables or archives an agent. Nothing is recorded if the agent has the state.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such agent, [`Error::Conflict`] if the default one
    /// is to be archived.
    pub async fn set_state(
        self,
        tenant: TenantId,
        actor: Actor,
        name_or_id: &str,
        state: AgentState,
    ) -> Result<Agent, Error> {
        let missing = || Error::not_found("agent", name_or_id);
        let wanted = AgentReference::parse(name_or_id).ok_or_else(missing)?;
        let mut tx = self.0.begin_change(tenant).await?;
        let agent = store::agents::find(&mut tx, &wanted).await?.ok_or_else(missing)?;
        if agent.state == state {
            return Ok(agent);
        }
        let default = store::agents::default(&mut tx).await?;
        if state == AgentState::Archived && default.is_some_and(|default| default.id == agent.id) {
            return Err(Error::Conflict(format!(
                "`{}` is the default agent, which answers where nobody else does: make another \
                 the default first",
                agent.name
            )));
        }
        let agent = store::agents::set_state(&mut tx, agent.id, state).await?;
        store::audit::record(&mut tx, actor, state.action(), agent.id).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(agent)
    }

    /// Deletes an agent. Messages that bindings and rules assigned to it go to the default agent.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such agent, [`Error::Conflict`] if it is the
    /// default one.
    pub async fn delete(
        self,
        tenant: TenantId,
        actor: Actor,
        name_or_id: &str,
    ) -> Result<(), Error> {
        let missing = || Error::not_found("agent", name_or_id);
        let wanted = AgentReference::parse(name_or_id).ok_or_else(missing)?;
        let mut tx = self.0.begin_change(tenant).await?;
        let agent = store::agents::find(&mut tx, &wanted).await?.ok_or_else(missing)?;
        let default = store::agents::default(&mut tx).await?;
        if default.is_some_and(|default| default.id == agent.id) {
            return Err(Error::Conflict(format!(
                "`{}` is the default agent, which answers where nobody else does: make another \
                 the default first",
                agent.name
            )));
        }
        store::agents::delete(&mut tx, agent.id).await?;
        store::audit::record(&mut tx, actor, "agent.delete", agent.id).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(())
    }

    async fn find_agent(
        self,
        tenant: TenantId,
        wanted: &AgentReference,
    ) -> Result<Option<Agent>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let agent = store::agents::find(&mut tx, wanted).await?;
        tx.commit().await?;
        Ok(agent)
    }
}

pub(super) fn refuse(new: &NewAgent, error: sqlx::Error) -> Error {
    if holdfast_pg::on_constraint("agents_name_key", &error) {
        Error::taken("an agent", &new.name)
    } else {
        error.into()
    }
}
