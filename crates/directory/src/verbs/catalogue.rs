//! Operations on the tenants' model catalogues.

use std::{borrow::Cow, collections::BTreeMap};

use holdfast_llm::{Catalogue, ModelCard, Supplement};
use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelId, TenantId};
use uuid::Uuid;

use super::{check_limit, model_choice::find_provider};
use crate::{
    Actor, Directory, Error, KnownModel, NewAgent,
    provider::catalogue::{TenantCatalogue, check_alias, check_card, resolve},
    store::{self, catalogue::CatalogueAdditions},
};

/// Maximum number of models and aliases of a tenant.
const MAX_MODELS_AND_ALIASES: i64 = 500;

/// Models: the tenants' catalogues, and the choice of an agent's model.
#[derive(Debug, Clone, Copy)]
pub struct Models<'d>(pub(super) &'d Directory);

impl Directory {
    #[must_use]
    pub const fn models(&self) -> Models<'_> {
        Models(self)
    }
}

impl Models<'_> {
    /// Returns the models of the tenant's catalogue: the built-in ones, and its own.
    pub async fn known(self, tenant: TenantId) -> Result<Vec<KnownModel>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let extras = store::catalogue::additions(&mut tx, AgentId::from(Uuid::nil())).await?;
        tx.commit().await?;
        let own = extras.supplement.clone();
        let catalogue = build_catalogue(extras.supplement);
        let mut models: BTreeMap<ModelId, KnownModel> = BTreeMap::new();
        for (model, card) in catalogue.models() {
            let is_own = own.models.contains_key(model);
            let (model, card) = (model.clone(), card.clone());
            let known = KnownModel { model: model.clone(), card, aliases: Vec::new(), is_own };
            models.insert(model, known);
        }
        for (alias, model) in catalogue.aliases() {
            let card = catalogue.card(model).clone();
            let known = models.entry(model.clone()).or_insert_with(|| KnownModel {
                model: model.clone(),
                card,
                aliases: Vec::new(),
                is_own: false,
            });
            known.is_own |= own.aliases.contains_key(alias);
            known.aliases.push(alias.to_owned());
        }
        Ok(models.into_values().collect())
    }

    /// Stores the properties of a model; an existing entry is replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a value is out of range, [`Error::TooMany`] at the limit.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        model: &ModelId,
        card: &ModelCard,
    ) -> Result<(), Error> {
        check_card(card)?;
        let mut tx = self.0.begin_change(tenant).await?;
        check_limit(
            "models and aliases",
            store::catalogue::count_except(&mut tx, Some(model), None).await?,
            MAX_MODELS_AND_ALIASES,
        )?;
        store::catalogue::put_model(&mut tx, model, card).await?;
        store::audit::record(&mut tx, actor, "model.put", model).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Deletes the tenant's entry for a model.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no entry for it.
    pub async fn delete(self, tenant: TenantId, actor: Actor, model: &str) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::catalogue::delete_model(&mut tx, model).await? {
            return Err(Error::not_found("model of your own", model));
        }
        store::audit::record(&mut tx, actor, "model.delete", model).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Stores an alias for a model, which is named by its id or another alias.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed alias or model, [`Error::NoProvider`] if the model's
    /// provider is not set up, [`Error::TooMany`] at the limit.
    pub async fn put_alias(
        self,
        tenant: TenantId,
        actor: Actor,
        alias: &str,
        model: &str,
    ) -> Result<ModelId, Error> {
        check_alias(alias)?;
        let mut tx = self.0.begin_change(tenant).await?;
        check_limit(
            "models and aliases",
            store::catalogue::count_except(&mut tx, None, Some(alias)).await?,
            MAX_MODELS_AND_ALIASES,
        )?;
        let extras = store::catalogue::additions(&mut tx, AgentId::from(Uuid::nil())).await?;
        let catalogue = build_catalogue(extras.supplement);
        let (model, _) = find_provider(&mut tx, &catalogue, model).await?;
        store::catalogue::put_alias(&mut tx, alias, &model).await?;
        store::audit::record(&mut tx, actor, "alias.put", alias).await?;
        tx.commit().await?;
        Ok(model)
    }

    /// Deletes an alias of the tenant.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such alias.
    pub async fn delete_alias(
        self,
        tenant: TenantId,
        actor: Actor,
        alias: &str,
    ) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::catalogue::delete_alias(&mut tx, alias).await? {
            return Err(Error::not_found("alias of your own", alias));
        }
        store::audit::record(&mut tx, actor, "alias.delete", alias).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// Validates an agent, whose models may be named by aliases.
pub(super) async fn check_agent(tx: &mut TenantTx, new: &NewAgent) -> Result<(), Error> {
    let named: Vec<&String> = new.model.iter().chain(&new.settings.fallbacks).collect();
    let is_id = |name: &&String| name.parse::<ModelId>().is_ok();
    if named.iter().all(is_id) {
        return new.check();
    }
    let CatalogueAdditions { supplement, .. } =
        store::catalogue::additions(tx, AgentId::from(Uuid::nil())).await?;
    let catalogue = build_catalogue(supplement);
    for name in named {
        resolve(&catalogue, name)?;
    }
    NewAgent { model: None, ..new.clone() }.check()
}

/// Returns the built-in catalogue with a tenant's additions.
pub(crate) fn build_catalogue(supplement: Supplement) -> TenantCatalogue {
    match supplement.models.is_empty() && supplement.aliases.is_empty() {
        true => Cow::Borrowed(Catalogue::built_in()),
        false => Cow::Owned(Catalogue::built_in().with(supplement)),
    }
}
