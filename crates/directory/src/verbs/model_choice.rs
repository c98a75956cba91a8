//! Choice of an agent's models, and the access to their providers.

use std::collections::HashMap;

use holdfast_llm::{Catalogue, ModelCard};
use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelId, TenantId};
use secrecy::SecretString;
use tracing::warn;
use uuid::Uuid;

use super::{Models, catalogue::build_catalogue};
use crate::{
    Agent, Error, ModelChoice, ModelSetup, Provider, ProviderCredentials, ProviderKind, Purpose,
    provider::{DEMO, catalogue::resolve},
    store::{self, prompt_facts::PromptFacts},
};

impl Models<'_> {
    /// Returns the model of an agent: its own, else the tenant's default, else the built-in one.
    ///
    /// # Errors
    ///
    /// [`Error::NoProvider`] if its provider is not set up, [`Error::Unsealable`] if the provider's key
    /// cannot be opened.
    pub async fn of_agent(self, tenant: TenantId, agent: &Agent) -> Result<ModelChoice, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let extras = store::catalogue::additions(&mut tx, agent.id).await?;
        let model = first_model(&mut tx, agent).await?;
        let choice = self.choose(&mut tx, &build_catalogue(extras.supplement), &model).await?;
        tx.commit().await?;
        Ok(choice)
    }

    /// Returns what is known about the first model of each agent; a model that no catalogue has is
    /// left out.
    pub async fn of_agents(self, tenant: TenantId) -> Result<HashMap<AgentId, ModelCard>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let extras = store::catalogue::additions(&mut tx, AgentId::from(Uuid::nil())).await?;
        let catalogue = build_catalogue(extras.supplement);
        let default = store::providers::default_model(&mut tx).await?;
        let agents = store::agents::all(&mut tx).await?;
        tx.commit().await?;
        let card = |agent: Agent| {
            let name = agent.model.or_else(|| default.clone()).unwrap_or_else(demo_model);
            let model = resolve(&catalogue, &name).ok()?;
            Some((agent.id, catalogue.find(&model)?.clone()))
        };
        Ok(agents.into_iter().filter_map(card).collect())
    }

    /// Returns the model of an agent with its fallbacks, catalogue and budgets, and the facts of its
    /// tenant for its prompt.
    ///
    /// A fallback that cannot be used is left out.
    ///
    /// # Errors
    ///
    /// [`Error::NoProvider`] if the provider of the agent's own model is not set up,
    /// [`Error::Unsealable`] if a key cannot be opened.
    pub async fn setup(self, tenant: TenantId, agent: &Agent) -> Result<ModelSetup, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let extras = store::catalogue::additions(&mut tx, agent.id).await?;
        let aliases = extras.supplement.aliases.clone();
        let catalogue = build_catalogue(extras.supplement);
        let model = first_model(&mut tx, agent).await?;
        let mut choices = vec![self.choose(&mut tx, &catalogue, &model).await?];
        for fallback in &agent.settings.fallbacks {
            match self.choose(&mut tx, &catalogue, fallback).await {
                Ok(choice) => choices.push(choice),
                Err(error @ (Error::NoProvider { .. } | Error::Invalid(_))) => {
                    warn!(error = &error as &dyn std::error::Error, "a fallback is left out");
                }
                Err(error) => return Err(error),
            }
        }
        let PromptFacts { product, actions, has_speech, has_search } =
            store::prompt_facts::get(&mut tx).await?;
        tx.commit().await?;
        let (budgets, limits) = (extras.budgets, extras.limits);
        Ok(ModelSetup {
            choices,
            catalogue,
            budgets,
            limits,
            has_speech,
            has_search,
            aliases,
            product,
            actions,
        })
    }

    /// Checks names of models that somebody wants to use.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a text that is no model's name, [`Error::NoProvider`] if the provider of
    /// a model is not set up.
    pub async fn check_names(
        self,
        tenant: TenantId,
        names: impl IntoIterator<Item = &str>,
    ) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let nobody = AgentId::from(Uuid::nil());
        let extras = store::catalogue::additions(&mut tx, nobody).await?;
        let catalogue = build_catalogue(extras.supplement);
        for name in names {
            find_provider(&mut tx, &catalogue, name).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Returns the model with this name or alias, and the access to its provider.
    async fn choose(
        self,
        tx: &mut TenantTx,
        catalogue: &Catalogue,
        name: &str,
    ) -> Result<ModelChoice, Error> {
        let (model, provider) = find_provider(tx, catalogue, name).await?;
        let (kind, base_url) = (provider.kind, provider.base_url);
        if kind == ProviderKind::Demo {
            let keys = ProviderCredentials::default();
            return Ok(ModelChoice { model, kind, base_url, api_key: None, keys });
        }
        let sealed = match provider.has_key {
            true => store::providers::api_key(tx, &provider.name).await?,
            false => None,
        };
        let api_key = match sealed {
            Some(sealed) => {
                let data_key = self.0.data_key(tx).await?;
                let key = data_key.open(Purpose::ProviderKey(&provider.name), &sealed)?;
                let key =
                    String::from_utf8(key).map_err(|_| Error::Unsealable("a provider's key"))?;
                Some(SecretString::from(key))
            }
            None => None,
        };
        let keys = self.0.credentials().load(tx, &provider.name, api_key.as_ref()).await?;
        Ok(ModelChoice { model, kind, base_url, api_key, keys })
    }
}

/// Returns the model with this name or alias, and its provider.
pub(super) async fn find_provider(
    tx: &mut TenantTx,
    catalogue: &Catalogue,
    name: &str,
) -> Result<(ModelId, Provider), Error> {
    let mut model = resolve(catalogue, name)?;
    let mut found = store::providers::get(tx, model.provider()).await?;
    let usual = catalogue.usual_provider(model.provider());
    if found.is_none() && usual != model.provider() {
        // Example: `google:gemini-3`, where the provider was set up as `gemini`.
        found = store::providers::get(tx, usual).await?;
        if found.is_some() {
            model = resolve(catalogue, &format!("{usual}:{}", model.id()))?;
        }
    }
    match found {
        Some(provider) => Ok((model, provider)),
        None if model.provider() == DEMO => {
            let demo = Provider {
                name: DEMO.to_owned(),
                kind: ProviderKind::Demo,
                base_url: String::new(),
                has_key: false,
                default_model: None,
            };
            Ok((model, demo))
        }
        None => {
            let provider = model.provider().to_owned();
            Err(Error::NoProvider { model: model.to_string(), provider })
        }
    }
}

/// Returns the name of the model that an agent uses first.
async fn first_model(tx: &mut TenantTx, agent: &Agent) -> Result<String, Error> {
    let model = match &agent.model {
        Some(model) => Some(model.clone()),
        None => store::providers::default_model(tx).await?,
    };
    Ok(model.unwrap_or_else(demo_model))
}

fn demo_model() -> String {
    format!("{DEMO}:{DEMO}")
}
