//! `models.*`: the models of the tenant's providers.

use holdfast_proto::gateway::v1::{self as pb, models_server::Models as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        call::{Call, rpc},
        connection::now_ms,
        error::MethodError,
    },
    Method, READ, Reply, method,
    sessions::NoParams,
};
use crate::control::models::Models;

pub const METHODS: &[Method] = &[
    method!(
        "models.list",
        READ,
        list,
        [
            "agentId",
            "sessionKey",
            "authProfileId",
            "includeDetails",
            "includeProviderCapabilities",
            "includeDefaultModels",
            "preparedOnly",
            "refresh",
        ]
    ),
    method!("models.authStatus", READ, auth_status, ["refresh", "agentId"]),
];

/// Model of a tenant that has set up no provider.
const BUILT_IN_MODEL: &str = "demo:demo";

/// Providers that the tenant has set up, and the model of agents that have none of their own.
pub struct ModelSetup {
    pub default_model: String,
    providers: Vec<String>,
}

impl ModelSetup {
    pub async fn load(call: &Call) -> Result<Self, MethodError> {
        let known = call.state().directory.providers().list(call.tenant()).await?;
        let default = known.iter().find_map(|provider| provider.default_model.clone());
        let default_model = default.unwrap_or_else(|| BUILT_IN_MODEL.to_owned());
        let mut providers: Vec<String> = known.into_iter().map(|provider| provider.name).collect();
        providers.extend(default_model.split_once(':').map(|(name, _)| name.to_owned()));
        Ok(Self { default_model, providers })
    }

    fn has(&self, provider: &str) -> bool {
        self.providers.iter().any(|known| known == provider)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListParams {
    view: Option<String>,
    provider: Option<String>,
}

async fn list(call: Call, params: ListParams) -> Reply {
    let mut models = match params.view.as_deref() {
        Some("all" | "provider-config") => all(&call).await?,
        None | Some("default" | "configured") => choices(&call).await?,
        Some(_) => {
            return Err(MethodError::invalid(
                "invalid models.list params: view: must be `default`, `configured` or `all`",
            ));
        }
    };
    if let Some(provider) = &params.provider {
        models.retain(|model| model["provider"] == **provider);
    }
    Ok(json!({ "models": models }))
}

/// Models of the providers that are set up.
pub async fn choices(call: &Call) -> Result<Vec<Value>, MethodError> {
    let mut models = all(call).await?;
    models.retain(|model| model["available"] == true);
    Ok(models)
}

async fn all(call: &Call) -> Result<Vec<Value>, MethodError> {
    let setup = ModelSetup::load(call).await?;
    let known = known(call).await?;
    let mut models: Vec<Value> = known.iter().map(|model| choice(model, &setup)).collect();
    if !known.iter().any(|model| model.model == setup.default_model) {
        let default = pb::KnownModel { model: setup.default_model.clone(), ..Default::default() };
        models.insert(0, choice(&default, &setup));
    }
    Ok(models)
}

async fn known(call: &Call) -> Result<Vec<pb::KnownModel>, MethodError> {
    let handler = Models(call.state().clone());
    let request = pb::ListModelsRequest::default();
    Ok(rpc!(call, "Models/ListModels", handler, list_models, request)?.models)
}

fn choice(known: &pb::KnownModel, setup: &ModelSetup) -> Value {
    let (provider, id) = known.model.split_once(':').unwrap_or(("", &known.model));
    let card: Value = serde_json::from_str(&known.card).unwrap_or_default();
    let mut choice = json!({
        "id": id,
        "name": id,
        "provider": provider,
        "available": setup.has(provider),
        "reasoning": card["thinking"].as_bool().unwrap_or(false),
        "input": if card["images"] == true { json!(["text", "image"]) } else { json!(["text"]) },
    });
    if let Some(context) = card["context"].as_u64() {
        choice["contextWindow"] = context.into();
    }
    if let Some(alias) = known.aliases.first() {
        choice["alias"] = alias.as_str().into();
    }
    choice
}

/// State of the providers' keys. Secrets are not shown.
async fn auth_status(call: Call, NoParams {}: NoParams) -> Reply {
    let mut names = ModelSetup::load(&call).await?.providers;
    names.sort_unstable();
    names.dedup();
    let providers: Vec<Value> = names
        .iter()
        .map(|name| {
            json!({ "provider": name, "displayName": name, "status": "static", "profiles": [] })
        })
        .collect();
    Ok(json!({ "ts": now_ms(), "providers": providers }))
}
