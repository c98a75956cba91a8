//! What a tenant knows of models, and the budgets.

use std::{borrow::Cow, collections::BTreeMap};

use holdfast_llm::{Card, Catalogue, Supplement};
use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelId, TenantId};
use uuid::Uuid;

use super::check_room;
use crate::{
    Actor, Budget, Directory, Error, KnownModel, NewAgent,
    catalogue::{Known, check_alias, check_card, resolve},
    store::{self, catalogue::Extras},
};

/// Models and aliases of one tenant.
const MOST: i64 = 500;

impl Directory {
    /// The models that the tenant knows: what every build does, and its own.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub async fn known_models(&self, tenant: TenantId) -> Result<Vec<KnownModel>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let extras = store::catalogue::extras(&mut tx, AgentId::from(Uuid::nil())).await?;
        tx.commit().await?;
        let own = extras.supplement.clone();
        let catalogue = known(extras.supplement);
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

    /// What is known to a tenant of models.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub async fn catalogue(&self, tenant: TenantId) -> Result<Known, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let extras = store::catalogue::extras(&mut tx, AgentId::from(Uuid::nil())).await?;
        tx.commit().await?;
        Ok(known(extras.supplement))
    }

    /// Says what a model is; what was known of it before is replaced.
    ///
    /// # Errors
    ///
    /// If no model is like that, or the tenant has too many.
    pub async fn put_model(
        &self,
        tenant: TenantId,
        actor: Actor,
        model: &ModelId,
        card: &Card,
    ) -> Result<(), Error> {
        check_card(card)?;
        let mut tx = self.change(tenant).await?;
        check_room("models and aliases", store::catalogue::count(&mut tx).await?, MOST)?;
        store::catalogue::put_model(&mut tx, model, card).await?;
        store::audit::record(&mut tx, actor, "model.put", model).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Forgets what the tenant said of a model.
    ///
    /// # Errors
    ///
    /// If it said nothing of it.
    pub async fn delete_model(
        &self,
        tenant: TenantId,
        actor: Actor,
        model: &str,
    ) -> Result<(), Error> {
        let mut tx = self.change(tenant).await?;
        if !store::catalogue::delete_model(&mut tx, model).await? {
            return Err(Error::not_found("model of your own", model));
        }
        store::audit::record(&mut tx, actor, "model.delete", model).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Gives a model, named by its id or another alias, a short name.
    ///
    /// # Errors
    ///
    /// If it can be no name, or the tenant has too many.
    pub async fn put_alias(
        &self,
        tenant: TenantId,
        actor: Actor,
        alias: &str,
        model: &str,
    ) -> Result<ModelId, Error> {
        check_alias(alias)?;
        let mut tx = self.change(tenant).await?;
        check_room("models and aliases", store::catalogue::count(&mut tx).await?, MOST)?;
        let extras = store::catalogue::extras(&mut tx, AgentId::from(Uuid::nil())).await?;
        let model = resolve(&known(extras.supplement), model)?;
        store::catalogue::put_alias(&mut tx, alias, &model).await?;
        store::audit::record(&mut tx, actor, "alias.put", alias).await?;
        tx.commit().await?;
        Ok(model)
    }

    /// Takes a short name away.
    ///
    /// # Errors
    ///
    /// If the tenant gave no such name.
    pub async fn delete_alias(
        &self,
        tenant: TenantId,
        actor: Actor,
        alias: &str,
    ) -> Result<(), Error> {
        let mut tx = self.change(tenant).await?;
        if !store::catalogue::delete_alias(&mut tx, alias).await? {
            return Err(Error::not_found("alias of your own", alias));
        }
        store::audit::record(&mut tx, actor, "alias.delete", alias).await?;
        tx.commit().await?;
        Ok(())
    }

    /// The tenant's budgets, its own first.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub async fn budgets(&self, tenant: TenantId) -> Result<Vec<Budget>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let budgets = store::budgets::all(&mut tx).await?;
        tx.commit().await?;
        Ok(budgets)
    }

    /// Sets what may be used in a day; it counts within a second or two.
    ///
    /// # Errors
    ///
    /// If it limits nothing.
    pub async fn put_budget(
        &self,
        tenant: TenantId,
        actor: Actor,
        budget: &Budget,
    ) -> Result<(), Error> {
        budget.check()?;
        let mut tx = self.change(tenant).await?;
        store::budgets::put(&mut tx, budget).await.map_err(|error| {
            match (budget.agent, holdfast_pg::on_constraint("budgets_agent", &error)) {
                (Some(agent), true) => Error::not_found("agent", agent),
                _ => error.into(),
            }
        })?;
        store::audit::record(&mut tx, actor, "budget.put", whose(budget.agent)).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Lets any amount be used.
    ///
    /// # Errors
    ///
    /// If there was no budget.
    pub async fn delete_budget(
        &self,
        tenant: TenantId,
        actor: Actor,
        agent: Option<AgentId>,
    ) -> Result<(), Error> {
        let mut tx = self.change(tenant).await?;
        if !store::budgets::delete(&mut tx, agent).await? {
            return Err(Error::not_found("budget of", whose(agent)));
        }
        store::audit::record(&mut tx, actor, "budget.delete", whose(agent)).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Refuses an agent that could never work. Its models may be named by aliases.
    pub(crate) async fn check_agent(&self, tx: &mut TenantTx, new: &NewAgent) -> Result<(), Error> {
        let named: Vec<&String> = new.model.iter().chain(&new.settings.fallbacks).collect();
        let is_id = |name: &&String| name.parse::<ModelId>().is_ok();
        if named.iter().all(is_id) {
            return new.check();
        }
        let Extras { supplement, .. } =
            store::catalogue::extras(tx, AgentId::from(Uuid::nil())).await?;
        let catalogue = known(supplement);
        for name in named {
            resolve(&catalogue, name)?;
        }
        NewAgent { model: None, ..new.clone() }.check()
    }
}

/// What every build knows, and what a tenant adds.
pub(crate) fn known(supplement: Supplement) -> Known {
    match supplement.models.is_empty() && supplement.aliases.is_empty() {
        true => Cow::Borrowed(Catalogue::built_in()),
        false => Cow::Owned(Catalogue::built_in().with(supplement)),
    }
}

fn whose(agent: Option<AgentId>) -> String {
    agent.map_or_else(|| "the tenant".to_owned(), |agent| agent.to_string())
}
