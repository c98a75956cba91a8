//! Operations on tenants.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TenantId};
use secrecy::SecretString;
use serde_json::json;

use super::keys;
use crate::{
    Actor, Directory, Error, LimitName, NewAgent, NewKey, Tenant, TenantChanges, TenantState,
    key::{FIRST_KEY_NAME, FIRST_KEY_SCOPES},
    store,
    tenant::check_name,
    tenant::event::TenantEventKind,
};

/// Tenants whose data keys are sealed anew between two reports of progress.
const RESEAL_BATCH: u16 = 100;

/// Tenants.
#[derive(Debug, Clone, Copy)]
pub struct Tenants<'d>(pub(super) &'d Directory);

impl Directory {
    #[must_use]
    pub const fn tenants(&self) -> Tenants<'_> {
        Tenants(self)
    }
}

impl Tenants<'_> {
    /// Creates a tenant with an agent `main` and a first key; the returned key cannot be read
    /// again.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed name, [`Error::Taken`] if the name is used.
    pub async fn create(self, actor: Actor, name: &str) -> Result<(Tenant, SecretString), Error> {
        check_name("tenant", name)?;
        let tenant = TenantId::generate();
        let data_key = self.0.seal()?.new_data_key(tenant).await?;
        let mut tx = self.0.pools.tenant(tenant).await?;
        store::tenants::insert(&mut tx, name, &data_key).await.map_err(|error| {
            if holdfast_pg::on_constraint("tenants_name_key", &error) {
                Error::taken("a tenant", name)
            } else {
                error.into()
            }
        })?;
        store::agents::insert(&mut tx, AgentId::generate(), &NewAgent::main()).await?;
        let first = NewKey {
            name: FIRST_KEY_NAME.to_owned(),
            scopes: FIRST_KEY_SCOPES.map(str::to_owned).to_vec(),
            lifetime: None,
            person: None,
            agent: None,
            origins: Vec::new(),
        };
        let (_, secret) = keys::insert(&mut tx, &self.0.peppers, &first).await?;
        store::audit::record(&mut tx, actor, "tenant.create", tenant).await?;
        let by = json!({"actor": actor.to_string()});
        store::tenant_events::insert(&mut tx, TenantEventKind::Created, by).await?;
        let made = store::tenants::get(&mut tx).await?;
        let made = made.ok_or_else(|| Error::not_found("tenant", tenant))?;
        tx.commit().await?;
        Ok((made, secret))
    }

    /// Returns the tenant with this name; creates it if it does not exist, and then returns its
    /// first key too.
    ///
    /// Concurrent calls are safe: only one of them creates the tenant.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed name.
    pub async fn ensure(self, name: &str) -> Result<(Tenant, Option<SecretString>), Error> {
        match self.get(name).await {
            Ok(tenant) => return Ok((tenant, None)),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.create(Actor::Operator, name).await {
            Ok((tenant, secret)) => Ok((tenant, Some(secret))),
            // Another process was faster, and its tenant is committed.
            Err(Error::Taken { .. }) => Ok((self.get(name).await?, None)),
            Err(error) => Err(error),
        }
    }

    /// Returns all tenants, by name.
    pub async fn list(self) -> Result<Vec<Tenant>, Error> {
        let mut tx = self.0.pools.system().await?;
        let tenants = store::tenants::all(&mut tx).await?;
        tx.commit().await?;
        Ok(tenants)
    }

    /// Returns the tenant with this name or id.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such tenant.
    pub async fn get(self, name_or_id: &str) -> Result<Tenant, Error> {
        let missing = || Error::not_found("tenant", name_or_id);
        let id = match name_or_id.parse() {
            Ok(id) => id,
            Err(_) if check_name("tenant", name_or_id).is_err() => return Err(missing()),
            Err(_) => {
                let mut tx = self.0.pools.system().await?;
                let found = store::tenants::by_name(&mut tx, name_or_id).await?;
                tx.commit().await?;
                found.ok_or_else(missing)?
            }
        };
        let mut tx = self.0.pools.tenant(id).await?;
        let tenant = store::tenants::get(&mut tx).await?;
        tx.commit().await?;
        tenant.ok_or_else(missing)
    }

    /// Seals the data keys of the next tenants with the current key-encryption key, and returns the
    /// last of them; `None` if there are no more. `resealed` counts those that were sealed with
    /// another one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if a data key was sealed with neither of the two keys,
    /// [`Error::MissingSecret`] if only the secrets service has the key-encryption key.
    pub async fn reseal_batch(
        self,
        after: Option<TenantId>,
        resealed: &mut u64,
    ) -> Result<Option<TenantId>, Error> {
        let mut tx = self.0.pools.system().await?;
        let batch = store::tenants::ids_after(&mut tx, after, RESEAL_BATCH).await?;
        tx.commit().await?;
        let keys = self.0.seal()?.local()?;
        for &tenant in &batch {
            let mut tx = self.0.pools.tenant(tenant).await?;
            // A tenant may be deleted meanwhile.
            if store::tenants::lock(&mut tx).await?
                && let Some(sealed) = store::tenants::data_key(&mut tx).await?
                && let Some(sealed) = keys.reseal(tenant, &sealed).await?
            {
                store::tenants::set_data_key(&mut tx, &sealed).await?;
                *resealed += 1;
            }
            tx.commit().await?;
        }
        Ok(batch.last().copied())
    }

    /// Changes a tenant. Keys of a suspended tenant are refused within 5 s.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such tenant or plan, [`Error::Conflict`] if it is being
    /// deleted, [`Error::Invalid`] if the rate is out of range or the product malformed.
    pub async fn update(
        self,
        tenant: TenantId,
        actor: Actor,
        changes: TenantChanges,
    ) -> Result<Tenant, Error> {
        if changes.rate.is_some_and(|rate| rate == 0 || i32::try_from(rate).is_err()) {
            return Err(Error::Invalid(format!(
                "a tenant's rate is 1 to {} requests a minute: suspend it to allow none",
                i32::MAX
            )));
        }
        if let Some(product) = &changes.product {
            product.check()?;
        }
        let mut tx = self.0.begin_change(tenant).await?;
        let missing = || Error::not_found("tenant", tenant);
        let before = store::tenants::get(&mut tx).await?.ok_or_else(missing)?;
        if !store::tenants::update(&mut tx, &changes).await? {
            return Err(Error::Conflict("the tenant is being deleted".to_owned()));
        }
        if changes.changes_limits() {
            change_limits(&mut tx, &changes).await?;
        }
        let after = store::tenants::get(&mut tx).await?.ok_or_else(missing)?;
        announce(&mut tx, actor, (&before, &after), &changes).await?;
        store::audit::record(&mut tx, actor, "tenant.update", tenant).await?;
        tx.commit().await?;
        Ok(after)
    }

    /// Suspends the tenants whose time is over, and returns them.
    pub async fn expire(self) -> Result<Vec<TenantId>, Error> {
        let mut tx = self.0.pools.system().await?;
        let due = store::tenants::expired(&mut tx).await?;
        tx.finish_reading();
        let mut expired = Vec::new();
        for tenant in due {
            let mut tx = match self.0.begin_change(tenant).await {
                Ok(tx) => tx,
                // The tenant was deleted meanwhile.
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            if store::tenants::expire(&mut tx).await? {
                let kind = TenantEventKind::Expired;
                store::tenant_events::insert(&mut tx, kind, json!({})).await?;
                store::audit::record(&mut tx, Actor::Operator, "tenant.expire", tenant).await?;
                expired.push(tenant);
            }
            tx.commit().await?;
        }
        Ok(expired)
    }
}

/// Sets the plan and the own limits of a tenant, and puts them into effect.
async fn change_limits(tx: &mut TenantTx, changes: &TenantChanges) -> Result<(), Error> {
    if let Some(plan) = &changes.plan {
        store::plans::set(tx, plan.as_deref()).await.map_err(|error| {
            match (plan, holdfast_pg::on_constraint("tenants_plan", &error)) {
                (Some(plan), true) => Error::not_found("plan", plan),
                _ => error.into(),
            }
        })?;
    }
    let rate = changes.rate.map(|_| LimitName::CallsPerMinute);
    let own: Vec<&str> =
        changes.own_limits.iter().copied().chain(rate).map(LimitName::as_str).collect();
    let follow: Vec<&str> = changes.follow_plan.iter().map(|name| name.as_str()).collect();
    store::plans::set_own_limits(tx, &own, &follow).await?;
    Ok(store::plans::apply(tx).await?)
}

/// Writes the events of a change.
async fn announce(
    tx: &mut TenantTx,
    actor: Actor,
    (before, after): (&Tenant, &Tenant),
    changes: &TenantChanges,
) -> Result<(), Error> {
    let actor = actor.to_string();
    if before.state != after.state {
        let kind = match after.state {
            TenantState::Active => TenantEventKind::Activated,
            TenantState::Suspended | TenantState::Deleting => TenantEventKind::Suspended,
        };
        store::tenant_events::insert(tx, kind, json!({"actor": actor})).await?;
    }
    if before.plan != after.plan {
        let detail = json!({
            "actor": actor, "from": before.plan, "to": after.plan, "limits": after.limits,
        });
        store::tenant_events::insert(tx, TenantEventKind::PlanChanged, detail).await?;
    } else if changes.changes_limits() {
        let detail = json!({"actor": actor, "plan": after.plan, "own": after.own_limits});
        store::tenant_events::insert(tx, TenantEventKind::LimitsChanged, detail).await?;
    }
    if changes.product.is_some() || before.expires_at != after.expires_at {
        let expires_at = after.expires_at.map(|at| at.to_string());
        let detail = json!({"actor": actor, "action": "tenant.update", "expires_at": expires_at});
        store::tenant_events::insert(tx, TenantEventKind::ConfigChanged, detail).await?;
    }
    Ok(())
}
