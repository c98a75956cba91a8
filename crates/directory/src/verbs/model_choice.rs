//! Choice of an agent's models, and the access to their providers.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use holdfast_llm::{Catalogue, ModelCard, RequestExtras, Supplement};
use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelId, TenantId};
use tracing::warn;
use uuid::Uuid;

use super::{
    Models,
    catalogue::build_catalogue,
    providers::{open_headers, platform::PlatformAccess},
};
use crate::{
    Agent, Error, ModelChoice, ModelSetup, Provider, ProviderAccess, ProviderCredentials,
    ProviderKind, Purpose, SecretUse, TenantCatalogue,
    provider::{DEMO, catalogue::resolve, platform::has_price},
    store::{self, prompt_facts::PromptFacts},
};

/// Model in the choice of a provider that is asked for something else than a chat.
const ANY_MODEL: &str = "any";

impl Models<'_> {
    /// Returns the model of an agent: its own, else the tenant's default, else the built-in one.
    ///
    /// # Errors
    ///
    /// [`Error::NoModel`] if that is the built-in one and this directory is
    /// [without it](crate::Directory::without_demo_model), [`Error::NoProvider`] if its provider is
    /// not set up, [`Error::Unsealable`] if the provider's key cannot be opened.
    pub async fn of_agent(self, tenant: TenantId, agent: &Agent) -> Result<ModelChoice, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let extras = store::catalogue::additions(&mut tx, agent.id).await?;
        let model = first_model(&mut tx, agent).await?;
        let (catalogue, usage) =
            (build_catalogue(extras.supplement), SecretUse::Models(Some(agent.id)));
        let choice = self.choose(&mut tx, &catalogue, &model, usage).await?;
        tx.commit().await?;
        Ok(choice)
    }

    /// Returns what is known about the first model of each agent; a model that no catalogue has is
    /// left out.
    pub async fn of_agents(self, tenant: TenantId) -> Result<HashMap<AgentId, ModelCard>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let extras = store::catalogue::additions(&mut tx, AgentId::from(Uuid::nil())).await?;
        let catalogue = build_catalogue(extras.supplement);
        let default = default_model(&mut tx).await?;
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
        let usage = SecretUse::Models(Some(agent.id));
        let mut choices = vec![self.choose(&mut tx, &catalogue, &model, usage).await?];
        for fallback in &agent.settings.fallbacks {
            match self.choose(&mut tx, &catalogue, fallback, usage).await {
                Ok(choice) => choices.push(choice),
                Err(error @ (Error::NoProvider { .. } | Error::NoModel | Error::Invalid(_))) => {
                    warn!(error = &error as &dyn std::error::Error, "a fallback is left out");
                }
                Err(error) => return Err(error),
            }
        }
        let PromptFacts { product, actions, has_speech, has_search } =
            store::prompt_facts::get(&mut tx).await?;
        tx.commit().await?;
        let (budgets, limits) = (extras.budgets, extras.limits);
        let catalogue = with_platform_cards(catalogue, &choices);
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

    /// Returns all providers of a tenant, and what an agent's requests to them may cost.
    ///
    /// A provider whose key cannot be opened is left out, as are those of the installation: their keys
    /// serve models of chats, whose prices are the built-in ones. Of each choice only the provider
    /// counts: its model is not one of a chat.
    pub async fn providers(
        self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<ProviderAccess, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let extras = store::catalogue::additions(&mut tx, agent).await?;
        let catalogue = build_catalogue(extras.supplement);
        let mut choices = Vec::new();
        for provider in store::providers::all(&mut tx).await? {
            let name = format!("{}:{ANY_MODEL}", provider.name);
            let usage = SecretUse::Models(Some(agent));
            match self.choose(&mut tx, &catalogue, &name, usage).await {
                Ok(choice) if choice.is_platform => {}
                Ok(choice) => choices.push(choice),
                Err(
                    error @ (Error::Unsealable(_)
                    | Error::NoModel
                    | Error::NoProvider { .. }
                    | Error::Invalid(_)),
                ) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, provider = provider.name, "a provider is left out");
                }
                Err(error) => return Err(error),
            }
        }
        tx.commit().await?;
        let (budgets, limits) = (extras.budgets, extras.limits);
        Ok(ProviderAccess { choices, catalogue, budgets, limits })
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
    pub(super) async fn choose(
        self,
        tx: &mut TenantTx,
        catalogue: &Catalogue,
        name: &str,
        usage: SecretUse,
    ) -> Result<ModelChoice, Error> {
        let (model, provider) = match find_provider(tx, catalogue, name).await? {
            (model, FoundProvider::Own(provider)) => (model, provider),
            (model, FoundProvider::Platform) => {
                let access = self.platform_choice(tx, &model, usage).await?;
                return access.ok_or_else(|| no_provider(&model));
            }
        };
        let (kind, base_url) = (provider.kind, provider.base_url);
        if kind == ProviderKind::Demo {
            if !self.0.has_demo_model {
                return Err(Error::NoModel);
            }
            let keys = ProviderCredentials::default();
            let extras = RequestExtras::default();
            let (api_key, is_platform) = (None, false);
            return Ok(ModelChoice { model, kind, base_url, api_key, keys, extras, is_platform });
        }
        let sealed = match provider.has_key {
            true => store::providers::api_key(tx, &provider.name).await?,
            false => None,
        };
        let api_key = match sealed {
            Some(sealed) => {
                let data_key = self.0.data_key(tx).await?;
                let purpose = Purpose::ProviderKey(&provider.name);
                Some(data_key.open_text(purpose, &sealed, usage).await?)
            }
            None => None,
        };
        let keys = self.0.credentials().load(tx, &provider.name, api_key.as_ref(), usage).await?;
        // A provider with an address and without a key is a server of the tenant's own.
        if keys.profiles.is_empty()
            && base_url.is_empty()
            && let Some(choice) = self.platform_choice(tx, &model, usage).await?
        {
            return Ok(choice);
        }
        let headers = match provider.header_names.is_empty() {
            true => None,
            false => store::providers::headers(tx, &provider.name).await?,
        };
        let headers = match headers {
            Some(sealed) => {
                let data_key = self.0.data_key(tx).await?;
                open_headers(&data_key, &provider.name, &sealed, usage).await?
            }
            None => BTreeMap::new(),
        };
        let extras = RequestExtras { headers, body: provider.extra_body };
        let is_platform = false;
        Ok(ModelChoice { model, kind, base_url, api_key, keys, extras, is_platform })
    }

    /// Returns the access to a model by keys of the installation, if the tenant's plan allows its
    /// provider. No setting of the tenant is part of it: the keys go to the installation's host.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if nobody could be billed for the model.
    async fn platform_choice(
        self,
        tx: &mut TenantTx,
        model: &ModelId,
        usage: SecretUse,
    ) -> Result<Option<ModelChoice>, Error> {
        let access = self.0.platform_keys().load(tx, model.provider(), usage).await?;
        let Some(PlatformAccess { kind, base_url, keys }) = access else { return Ok(None) };
        if !has_price(model, &base_url) {
            return Err(Error::Invalid(format!(
                "`{model}` has no price in the catalogue, so it is not asked with the platform's \
                 keys: take a model that `holdfast models list` shows with its price, or set up \
                 `{}` with a key of your own",
                model.provider()
            )));
        }
        Ok(Some(ModelChoice {
            model: model.clone(),
            kind,
            base_url,
            api_key: None,
            keys,
            extras: RequestExtras::default(),
            is_platform: true,
        }))
    }
}

/// Provider of a model.
pub(super) enum FoundProvider {
    Own(Provider),
    /// One of the installation, which the tenant's plan allows.
    Platform,
}

fn no_provider(model: &ModelId) -> Error {
    let provider = model.provider().to_owned();
    Error::NoProvider { model: model.to_string(), provider }
}

/// The catalogue with the built-in cards of models that are asked with keys of the installation: a
/// tenant's card says neither what the operator pays for, nor how much it is.
fn with_platform_cards(catalogue: TenantCatalogue, choices: &[ModelChoice]) -> TenantCatalogue {
    let mut cards = Supplement::default();
    for ModelChoice { model, .. } in choices.iter().filter(|choice| choice.is_platform) {
        let (card, built_in) = (catalogue.card(model), Catalogue::built_in().card(model));
        if card != built_in {
            cards.models.insert(model.clone(), built_in.clone());
        }
    }
    if cards.models.is_empty() { catalogue } else { Cow::Owned(catalogue.with(cards)) }
}

/// Returns the model with this name or alias, and its provider.
pub(super) async fn find_provider(
    tx: &mut TenantTx,
    catalogue: &Catalogue,
    name: &str,
) -> Result<(ModelId, FoundProvider), Error> {
    let mut model = resolve(catalogue, name)?;
    let mut found = store::providers::get(tx, model.provider()).await?;
    let usual = catalogue.usual_provider(model.provider()).to_owned();
    if found.is_none() && usual != model.provider() {
        // Example: `google:gemini-3`, where the provider was set up as `gemini`.
        found = store::providers::get(tx, &usual).await?;
        if found.is_some() {
            model = resolve(catalogue, &format!("{usual}:{}", model.id()))?;
        }
    }
    match found {
        Some(provider) => Ok((model, FoundProvider::Own(provider))),
        None if model.provider() == DEMO => {
            let demo = Provider {
                name: DEMO.to_owned(),
                kind: ProviderKind::Demo,
                base_url: String::new(),
                has_key: false,
                default_model: None,
                header_names: Vec::new(),
                extra_body: serde_json::Map::new(),
            };
            Ok((model, FoundProvider::Own(demo)))
        }
        None => {
            for name in [model.provider(), usual.as_str()] {
                if store::providers::platform::is_allowed(tx, name).await? {
                    let model = resolve(catalogue, &format!("{name}:{}", model.id()))?;
                    return Ok((model, FoundProvider::Platform));
                }
            }
            Err(no_provider(&model))
        }
    }
}

/// Returns the name of the model that an agent uses first.
async fn first_model(tx: &mut TenantTx, agent: &Agent) -> Result<String, Error> {
    let model = match &agent.model {
        Some(model) => Some(model.clone()),
        None => default_model(tx).await?,
    };
    Ok(model.unwrap_or_else(demo_model))
}

/// Returns the tenant's default model, else that of the installation for its plan.
pub(super) async fn default_model(tx: &mut TenantTx) -> sqlx::Result<Option<String>> {
    match store::providers::default_model(tx).await? {
        Some(model) => Ok(Some(model)),
        None => store::providers::platform::default_model(tx).await,
    }
}

fn demo_model() -> String {
    format!("{DEMO}:{DEMO}")
}
