//! `holdfast setup`: a provider of models, its key, and the default model.
//!
//! The provider is stored first, and a runner calls it: what is checked is what messages will use,
//! with the key and the network of the runners. A new provider that fails is deleted again.

mod prompt;
mod vendors;

use std::{env, io::IsTerminal as _, time::Duration};

use clap::Args;
use holdfast_proto::gateway::v1::{
    Agent, DeleteProviderRequest, GetAgentRequest, ListAgentsRequest, ListModelsRequest,
    ListProvidersRequest, Provider, PutProviderRequest, RetiredModel, UpdateAgentRequest,
};
use serde_json::json;

use self::vendors::{VENDORS, Vendor};
use super::{super::option_values, check, local_servers::LocalServer};
use crate::{
    client::Client,
    error::Error,
    screen::{Screen, progress},
};

/// Time until every runner uses a changed provider.
const PROVIDER_CACHE_TIME: Duration = Duration::from_millis(2_200);
/// Number of models that are named as a choice.
const MAX_SHOWN_MODELS: usize = 8;

#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Provider: openai, anthropic, gemini, openrouter, ollama, or another name [default: asked]
    #[arg(long)]
    provider: Option<String>,
    /// API key of the provider: `@file`, `-` for stdin, or the key itself [default: the provider's
    /// own variable such as ANTHROPIC_API_KEY, else asked]
    #[arg(long, hide_env_values = true)]
    api_key: Option<String>,
    /// Model that becomes the default, as the provider names it [default: asked, else a usual one]
    #[arg(long)]
    model: Option<String>,
    /// Base URL of the API [default: that of the provider]
    #[arg(long)]
    base_url: Option<String>,
    /// API that a provider with another name has: openai, openai-responses, anthropic, gemini,
    /// ollama, azure, vertex, bedrock
    #[arg(long, value_parser = [
        "openai", "openai-responses", "anthropic", "gemini", "ollama", "azure", "vertex", "bedrock",
    ])]
    kind: Option<String>,
    /// Agent that uses the model, if it has one of its own [default: the default agent]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
    /// Do not call the model
    #[arg(long)]
    no_check: bool,
}

/// Provider, key and model to store.
struct Choice {
    provider: Provider,
    api_key: String,
    /// `provider:id`.
    model: String,
}

/// Runs `holdfast setup`.
///
/// # Errors
///
/// If something is missing and nobody can be asked, the gateway refuses, or the model fails.
pub async fn run(args: SetupArgs, client: &Client, screen: &Screen) -> Result<(), Error> {
    progress::end();
    let can_ask = std::io::stdin().is_terminal() && !screen.is_json();
    let known = providers(client).await?;
    let choice = choose(&args, client, screen, &known, can_ask).await?;
    let before = known.iter().find(|provider| provider.name == choice.provider.name);
    let agent = agent(client, &args.agent).await?;

    // With the default model that it has, until the new one has answered.
    let kept = before.map(|provider| provider.default_model.clone()).unwrap_or_default();
    put(client, Provider { default_model: kept, ..choice.provider.clone() }, &choice.api_key)
        .await?;
    if !args.no_check {
        call(client, screen, &agent, &choice, before.is_none()).await?;
    }
    let default_model = choice.model.clone();
    put(client, Provider { default_model, ..choice.provider.clone() }, "").await?;
    let own_model = !agent.model.is_empty() && agent.model != choice.model;
    if own_model {
        let changed = Agent { model: choice.model.clone(), ..agent.clone() };
        let request =
            client.request(UpdateAgentRequest { agent: Some(changed), base_version: None });
        client.answer(client.agents().update_agent(request).await)?;
    }
    progress::begin("waiting until all runners use it");
    tokio::time::sleep(PROVIDER_CACHE_TIME).await;
    progress::end();
    screen.done(
        &format!(
            "{} is the default model{}\nTry: holdfast chat \"hello\"",
            choice.model,
            if own_model { format!(", also of the agent {}", agent.name) } else { String::new() }
        ),
        &json!({
            "provider": choice.provider.name,
            "kind": choice.provider.kind,
            "model": choice.model,
            "agent": agent.name,
            "checked": !args.no_check,
        }),
    )
}

async fn providers(client: &Client) -> Result<Vec<Provider>, Error> {
    let request = client.request(ListProvidersRequest {});
    Ok(client.answer(client.providers().list_providers(request).await)?.providers)
}

/// Returns the agent of this name, or the default agent.
async fn agent(client: &Client, name: &str) -> Result<Agent, Error> {
    if name.is_empty() {
        let request = client.request(ListAgentsRequest {});
        let listed = client.answer(client.agents().list_agents(request).await)?;
        let default = listed.agents.into_iter().find(|agent| agent.is_default);
        return default.ok_or_else(|| Error::NotFound("there is no default agent".to_owned()));
    }
    let request = client.request(GetAgentRequest { agent: name.to_owned() });
    Ok(client.answer(client.agents().get_agent(request).await)?.agent.unwrap_or_default())
}

async fn put(client: &Client, provider: Provider, api_key: &str) -> Result<(), Error> {
    let request = PutProviderRequest {
        provider: Some(provider),
        api_key: api_key.to_owned(),
        ..PutProviderRequest::default()
    };
    client.answer(client.providers().put_provider(client.request(request)).await).map(|_| ())
}

/// Completes the options by the environment and by questions.
async fn choose(
    args: &SetupArgs,
    client: &Client,
    screen: &Screen,
    known: &[Provider],
    can_ask: bool,
) -> Result<Choice, Error> {
    let found = local_servers(args, client, known, can_ask).await;
    let name = match &args.provider {
        Some(name) => name.trim().to_lowercase(),
        None if can_ask => prompt::vendor(screen, &found)?,
        None => {
            let names: Vec<&str> = VENDORS.iter().map(|vendor| vendor.name).collect();
            let names = names.join(", ");
            return Err(Error::Usage(format!("name the provider by --provider: {names}")));
        }
    };
    let vendor = Vendor::find(&name);
    let stored = known.iter().find(|provider| provider.name == name);
    let local = found.iter().find(|server| server.provider == name);
    let kind = args.kind.as_deref().unwrap_or(vendor.kind);
    let base_url = match (&args.base_url, stored) {
        (Some(url), _) => url.clone(),
        (None, Some(stored)) => stored.base_url.clone(),
        (None, None) if local.is_some() => {
            local.map(|server| server.base_url.clone()).unwrap_or_default()
        }
        (None, None) if vendor.needs_address && can_ask => {
            prompt::line("Base URL of its API, for example https://host/v1", "")?
        }
        (None, None) => String::new(),
    };
    let has_key = stored.is_some_and(|provider| provider.has_key);
    let needs_key = vendor.needs_key && args.base_url.is_none();
    let api_key = key(args, screen, &vendor, has_key, needs_key, can_ask)?;
    let mut known = KnownModels::load(client, &name).await?;
    if let Some(server) = local {
        known.have_only(&server.models);
    }
    let model = match &args.model {
        Some(model) => model.clone(),
        None if can_ask => {
            if !known.ids.is_empty() {
                screen.note(&format!("Known models: {}", known.ids.join(", ")))?;
            }
            prompt::line("Model", &known.suggested)?
        }
        None => known.suggested.clone(),
    };
    let model = model.trim();
    if model.is_empty() {
        return Err(Error::Usage(format!("name a model of {name} by --model")));
    }
    let id = model.strip_prefix(&format!("{name}:")).unwrap_or(model);
    // Another address may have a model of that name still.
    if base_url.is_empty() {
        known.check_not_retired(id)?;
    }
    Ok(Choice {
        model: format!("{name}:{id}"),
        provider: Provider { name, kind: kind.to_owned(), base_url, ..Provider::default() },
        api_key,
    })
}

/// Model servers on this machine that may be what is set up. Only runners of `holdfast up` reach
/// them.
async fn local_servers(
    args: &SetupArgs,
    client: &Client,
    known: &[Provider],
    can_ask: bool,
) -> Vec<LocalServer> {
    if !client.is_local_mesh() {
        return Vec::new();
    }
    match &args.provider {
        Some(name) if args.model.is_none() => {
            let name = name.trim().to_lowercase();
            let stored = known.iter().find(|provider| provider.name == name);
            let base_url = args.base_url.as_ref().or(stored.map(|stored| &stored.base_url));
            let server = LocalServer::find(&name, base_url.map(String::as_str)).await;
            server.into_iter().collect()
        }
        None if can_ask && args.base_url.is_none() => LocalServer::find_all().await,
        Some(_) | None => Vec::new(),
    }
}

/// Returns the key; empty if there is none, or the stored one is kept.
fn key(
    args: &SetupArgs,
    screen: &Screen,
    vendor: &Vendor,
    has_key: bool,
    needs_key: bool,
    can_ask: bool,
) -> Result<String, Error> {
    let set = |name: &String| env::var(name).ok().filter(|value| !value.is_empty());
    let given = match &args.api_key {
        Some(given) => option_values::secret(given)?,
        None => match vendor.variables().iter().find_map(set) {
            Some(key) => key,
            None if can_ask && (vendor.needs_key || has_key) => {
                let kept = match (has_key, needs_key) {
                    (true, _) => " (empty keeps the stored one)",
                    (false, true) => "",
                    (false, false) => " (empty if it needs none)",
                };
                prompt::secret(screen, &format!("API key of {}{kept}: ", vendor.name))?
            }
            None => String::new(),
        },
    };
    let given = given.trim().to_owned();
    if given.is_empty() && needs_key && !has_key {
        let variables = vendor.variables().join(" or ");
        return Err(Error::Usage(format!(
            "{} needs an API key: --api-key @file, or {variables}{}",
            vendor.name,
            if vendor.keys.is_empty() { String::new() } else { format!("; see {}", vendor.keys) }
        )));
    }
    Ok(given)
}

/// What the installation knows of a provider's models; ids are without the provider.
struct KnownModels {
    /// Some models whose end nobody has announced.
    ids: Vec<String>,
    /// A good default; empty if there is none.
    suggested: String,
    retired: Vec<RetiredModel>,
}

impl KnownModels {
    async fn load(client: &Client, provider: &str) -> Result<Self, Error> {
        let request = client.request(ListModelsRequest { own: false });
        let listed = client.answer(client.models().list_models(request).await)?;
        let prefix = format!("{provider}:");
        let id = |model: &str| model.strip_prefix(&prefix).map(str::to_owned);
        let mut retired = listed.retired;
        retired.retain(|retired| retired.model.starts_with(&prefix));
        let is_current = |model: &String| !retired.iter().any(|retired| retired.model == *model);
        let current = listed.models.into_iter().map(|known| known.model).filter(is_current);
        let ids = current.filter_map(|model| id(&model)).take(MAX_SHOWN_MODELS).collect();
        let suggested = listed.suggested.iter().find_map(|model| id(model)).unwrap_or_default();
        Ok(Self { ids, suggested, retired })
    }

    /// Replaces the models by those that a server has.
    fn have_only(&mut self, models: &[String]) {
        self.ids = models.iter().take(MAX_SHOWN_MODELS).cloned().collect();
        if !models.contains(&self.suggested) {
            self.suggested = models.first().cloned().unwrap_or_default();
        }
    }

    /// Refuses a model that its vendor has switched off.
    fn check_not_retired(&self, id: &str) -> Result<(), Error> {
        let is_it = |retired: &&RetiredModel| {
            retired.is_off && retired.model.split_once(':').is_some_and(|(_, own)| own == id)
        };
        match self.retired.iter().find(is_it) {
            Some(RetiredModel { model, on, successor, .. }) => Err(Error::Usage(format!(
                "`{model}` was switched off by its vendor ({on}): use `{successor}`"
            ))),
            None => Ok(()),
        }
    }
}

/// Calls the model. If it fails, a provider that is new is deleted.
async fn call(
    client: &Client,
    screen: &Screen,
    agent: &Agent,
    choice: &Choice,
    is_new: bool,
) -> Result<(), Error> {
    progress::begin(format!("asking {}", choice.model));
    tokio::time::sleep(PROVIDER_CACHE_TIME).await;
    let asked = check::ask(client, &agent.name, Some(&choice.model)).await;
    progress::end();
    let failure = match asked {
        Ok(time) => {
            return screen.note(&format!("{} answered in {} ms", choice.model, time.as_millis()));
        }
        Err(failure) => failure,
    };
    let name = &choice.provider.name;
    let state = if is_new {
        let request = client.request(DeleteProviderRequest { name: name.clone() });
        client.answer(client.providers().delete_provider(request).await)?;
        "nothing was changed".to_owned()
    } else if choice.api_key.is_empty() {
        format!("the provider {name} and the default model are as before")
    } else {
        format!("the provider {name} has the new key, and the default model is as before")
    };
    let reason = match failure.reason.as_str() {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    Err(Error::NoAnswer(format!(
        "{} does not answer{reason}: {}\n{}; {state}",
        choice.model,
        failure.message.trim(),
        failure.advice()
    )))
}
