//! Operations on behaviours: those of the tenant, and those of its agents.

use holdfast_types::{AgentId, TenantId};

use super::check_limit;
use crate::{
    Actor, Directory, Error, StoredBehavior, agent::behavior::MAX_BEHAVIORS, store,
    tenant::check_name,
};

/// Behaviours as documents. Without an agent, the layer is the tenant's.
#[derive(Debug, Clone, Copy)]
pub struct Behaviors<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn behaviors(&self) -> Behaviors<'_> {
        Behaviors(self)
    }
}

impl Behaviors<'_> {
    /// Returns the behaviours in use: the tenant's, and then the agent's.
    pub async fn list(
        self,
        tenant: TenantId,
        agent: Option<AgentId>,
    ) -> Result<Vec<StoredBehavior>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let behaviors = store::agents::behaviors::current(&mut tx, agent).await?;
        tx.commit().await?;
        Ok(behaviors)
    }

    /// Returns a version of a behaviour in one layer; without a version, the one in use.
    pub async fn find(
        self,
        tenant: TenantId,
        agent: Option<AgentId>,
        name: &str,
        version: Option<i64>,
    ) -> Result<Option<StoredBehavior>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let found = store::agents::behaviors::get(&mut tx, agent, name, version).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Returns the versions of a behaviour in one layer, newest first.
    pub async fn versions(
        self,
        tenant: TenantId,
        agent: Option<AgentId>,
        name: &str,
    ) -> Result<Vec<StoredBehavior>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let versions = store::agents::behaviors::versions(&mut tx, agent, name).await?;
        tx.commit().await?;
        Ok(versions)
    }

    /// Creates or replaces a behaviour in one layer; with `based_on` only if this is still the
    /// version in use, where 0 is none.
    ///
    /// The caller must have checked that the source is a valid behaviour of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the version differs, [`Error::TooMany`] at the limit,
    /// [`Error::NotFound`] if there is no such agent.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        (agent, name): (Option<AgentId>, &str),
        based_on: Option<i64>,
        source: &str,
    ) -> Result<StoredBehavior, Error> {
        check_name("behavior", name)?;
        let mut tx = self.0.begin_change(tenant).await?;
        let before = store::agents::behaviors::get(&mut tx, agent, name, None).await?;
        let now = before.as_ref().map_or(0, |before| before.version);
        if let Some(based_on) = based_on.filter(|based_on| *based_on != now) {
            return Err(Error::Conflict(format!(
                "the behavior is version {now} by now, and this change is based on {based_on}: \
                 read it again, and make the change in that"
            )));
        }
        if before.is_none() {
            let count = store::agents::behaviors::count(&mut tx, agent).await?;
            check_limit("behaviors in one layer", count, MAX_BEHAVIORS)?;
        }
        store::agents::behaviors::retire(&mut tx, agent, name).await?;
        let added = store::agents::behaviors::add(&mut tx, agent, name, source).await;
        let stored = added.map_err(|error| refuse(agent, error))?;
        store::audit::record(&mut tx, actor, "behavior.put", subject(agent, name)).await?;
        tx.commit().await?;
        Ok(stored)
    }

    /// Ends the use of a behaviour in one layer. Its versions are kept.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the layer has no such behaviour.
    pub async fn delete(
        self,
        tenant: TenantId,
        actor: Actor,
        (agent, name): (Option<AgentId>, &str),
    ) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::agents::behaviors::retire(&mut tx, agent, name).await? {
            return Err(Error::not_found("behavior", name));
        }
        store::audit::record(&mut tx, actor, "behavior.delete", subject(agent, name)).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// Subject in the audit log.
fn subject(agent: Option<AgentId>, name: &str) -> String {
    agent.map_or_else(|| name.to_owned(), |agent| format!("{agent} {name}"))
}

fn refuse(agent: Option<AgentId>, error: sqlx::Error) -> Error {
    if holdfast_pg::on_constraint("behaviors_agent_fkey", &error) {
        Error::not_found("agent", agent.map(|id| id.to_string()).unwrap_or_default())
    } else {
        error.into()
    }
}
