//! Operations on bindings, rules and identities.

mod links;

use std::{sync::Arc, time::Instant};

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelRoute, TenantId};
use uuid::Uuid;

use super::check_limit;
use crate::{
    Actor, Binding, Directory, Error, Identity, NewBinding, NewModelRoute, NewRule, Routing,
    RoutingRule,
    routing::{AgentReference, normalise_channel, normalise_id},
    store,
};

const MAX_BINDINGS: i64 = 1_000;
pub(super) const MAX_RULES: i64 = 200;
pub(super) const MAX_IDENTITIES: i64 = 5_000;

/// Bindings, rules and identities: the choice of agent and user for a message.
#[derive(Debug, Clone, Copy)]
pub struct Routes<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn routing(&self) -> Routes<'_> {
        Routes(self)
    }
}

impl Routes<'_> {
    /// Returns the routing configuration, at most one second old.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such tenant.
    pub async fn get(self, tenant: TenantId) -> Result<Arc<Routing>, Error> {
        if let Some(routing) = self.0.routings.get(&tenant) {
            return Ok(routing);
        }
        let begun = Instant::now();
        let mut tx = self.0.pools.tenant(tenant).await?;
        store::tenants::use_snapshot(&mut tx).await?;
        let routing = Routing::new(
            store::agents::cards(&mut tx).await?,
            store::bindings::all(&mut tx).await?,
            store::rules::all(&mut tx).await?,
            store::identities::all(&mut tx).await?,
        )?
        .with_people(store::people::roles_by_identity(&mut tx).await?);
        tx.commit().await?;
        let routing = Arc::new(routing);
        self.0.routings.put(tenant, Arc::clone(&routing), begun);
        Ok(routing)
    }

    /// Returns the tenant's bindings, in the order of evaluation.
    pub async fn bindings(self, tenant: TenantId) -> Result<Vec<Binding>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let bindings = store::bindings::all(&mut tx).await?;
        tx.commit().await?;
        Ok(bindings)
    }

    /// Creates a binding.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, [`Error::NotFound`] if there is no such agent,
    /// [`Error::Conflict`] if another binding matches the same messages, [`Error::TooMany`] at the
    /// limit.
    pub async fn create_binding(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewBinding,
    ) -> Result<Binding, Error> {
        let new = new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        let agent = find_agent(&mut tx, &new.agent).await?;
        let have = store::bindings::all(&mut tx).await?;
        if let Some(like) = have.iter().find(|binding| new.matches_same_messages(binding)) {
            return Err(Error::Conflict(format!(
                "binding `{}` matches the same messages: delete it first",
                like.id
            )));
        }
        check_limit("bindings", i64::try_from(have.len()).unwrap_or(i64::MAX), MAX_BINDINGS)?;
        let route = find_route(&mut tx, new.by_model.as_ref()).await?;
        let mut also = Vec::with_capacity(new.also.len());
        for name in &new.also {
            let further = find_agent(&mut tx, name).await?;
            if further != agent && !also.contains(&further) {
                also.push(further);
            }
        }
        let id = Uuid::now_v7();
        let binding =
            store::bindings::insert(&mut tx, id, &new, agent, route.as_ref(), &also).await?;
        store::audit::record(&mut tx, actor, "binding.create", binding.id).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(binding)
    }

    /// Deletes a binding.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such binding.
    pub async fn delete_binding(
        self,
        tenant: TenantId,
        actor: Actor,
        id: Uuid,
    ) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::bindings::delete(&mut tx, id).await? {
            return Err(Error::not_found("binding", id));
        }
        store::audit::record(&mut tx, actor, "binding.delete", id).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(())
    }

    /// Returns the tenant's rules, in the order of evaluation.
    pub async fn rules(self, tenant: TenantId) -> Result<Vec<RoutingRule>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let rules = store::rules::all(&mut tx).await?;
        tx.commit().await?;
        Ok(rules)
    }

    /// Returns the tenant's rules, and a version that [`Routes::put_rules`] accepts.
    pub async fn versioned_rules(
        self,
        tenant: TenantId,
    ) -> Result<(Vec<RoutingRule>, String), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        store::tenants::use_snapshot(&mut tx).await?;
        let version = store::rules::version(&mut tx).await?;
        let rules = store::rules::all(&mut tx).await?;
        tx.commit().await?;
        Ok((rules, version))
    }

    /// Replaces all rules, or none if one is refused; with `base` only if they still have that
    /// version.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed rule, [`Error::NotFound`] if there is no such agent,
    /// [`Error::TooMany`] if there are too many rules, [`Error::Conflict`] if they have changed.
    pub async fn put_rules(
        self,
        tenant: TenantId,
        actor: Actor,
        rules: Vec<NewRule>,
        base: Option<&str>,
    ) -> Result<(), Error> {
        let count = i64::try_from(rules.len()).unwrap_or(i64::MAX);
        if count > MAX_RULES {
            return Err(Error::TooMany { what: "rules", limit: MAX_RULES });
        }
        let rules: Vec<NewRule> =
            rules.into_iter().map(NewRule::check).collect::<Result<_, _>>()?;
        let mut tx = self.0.begin_change(tenant).await?;
        if let Some(base) = base
            && store::rules::version(&mut tx).await? != base
        {
            return Err(Error::Conflict(
                "the routing rules have changed since they were read: read them again".to_owned(),
            ));
        }
        store::rules::delete_all(&mut tx).await?;
        for (position, rule) in (0..).zip(&rules) {
            let agent = find_agent(&mut tx, &rule.agent).await?;
            let route = find_route(&mut tx, rule.by_model.as_ref()).await?;
            store::rules::insert(&mut tx, position, rule, agent, route.as_ref()).await?;
        }
        store::audit::record(&mut tx, actor, "rules.put", count).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(())
    }

    pub async fn identities(self, tenant: TenantId) -> Result<Vec<Identity>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let identities = store::identities::all(&mut tx).await?;
        tx.commit().await?;
        Ok(identities)
    }

    /// Stores an identity.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, [`Error::TooMany`] at the limit.
    pub async fn put_identity(
        self,
        tenant: TenantId,
        actor: Actor,
        identity: Identity,
    ) -> Result<(), Error> {
        let identity = identity.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        check_limit(
            "identities",
            store::identities::count_except(&mut tx, &identity).await?,
            MAX_IDENTITIES,
        )?;
        store::identities::put(&mut tx, &identity).await?;
        let subject = format!("{}:{}", identity.channel, identity.peer);
        store::audit::record(&mut tx, actor, "identity.put", subject).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(())
    }

    /// Deletes an identity.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such identity.
    pub async fn delete_identity(
        self,
        tenant: TenantId,
        actor: Actor,
        on: &str,
        peer: &str,
    ) -> Result<(), Error> {
        let (on, peer) = (normalise_channel(on)?, normalise_id("peer", peer)?);
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::identities::delete(&mut tx, &on, &peer).await? {
            return Err(Error::not_found("identity", format!("{on}:{peer}")));
        }
        let subject = format!("{on}:{peer}");
        store::audit::record(&mut tx, actor, "identity.delete", subject).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(())
    }
}

async fn find_route(
    tx: &mut TenantTx,
    new: Option<&NewModelRoute>,
) -> Result<Option<ModelRoute>, Error> {
    let Some(new) = new else { return Ok(None) };
    let mut among = Vec::with_capacity(new.among.len());
    for name in &new.among {
        let agent = find_agent(tx, name).await?;
        if !among.contains(&agent) {
            among.push(agent);
        }
    }
    Ok(Some(ModelRoute { among, each: new.each, model: new.model.clone() }))
}

async fn find_agent(tx: &mut TenantTx, name_or_id: &str) -> Result<AgentId, Error> {
    let missing = || Error::not_found("agent", name_or_id);
    let wanted = AgentReference::parse(name_or_id).ok_or_else(missing)?;
    Ok(store::agents::find(tx, &wanted).await?.ok_or_else(missing)?.id)
}
