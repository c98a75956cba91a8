//! `GET /v1/models`: a tenant's agents, for clients of OpenAI's and of Anthropic's API.

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::Caller;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::agent_model;
use crate::{
    api_error::ApiError,
    openai::{Model, OpenAi, find_model, list_models},
};

/// Header that Anthropic's clients send with each request.
const VERSION_HEADER: &str = "anthropic-version";

/// Handler: lists the agents.
pub async fn models(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let listed = list_models(&api, &caller).await?;
    Ok(match is_anthropic_client(&headers) {
        true => Json(model_list(listed.data().iter().map(model_info).collect())).into_response(),
        false => Json(listed).into_response(),
    })
}

/// Handler: shows one agent.
pub async fn model(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    model: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Ok(Path(given)) = model else {
        return Err(ApiError::invalid_field("model", "the model's name is not UTF-8"));
    };
    let is_anthropic = is_anthropic_client(&headers);
    let name = if is_anthropic { agent_model(&given) } else { &given }.to_owned();
    let model = find_model(&api, &caller, given, &name).await?;
    Ok(match is_anthropic {
        true => Json(model_info(&model)).into_response(),
        false => Json(model).into_response(),
    })
}

/// Whether a request is from a client of Anthropic's API.
pub(super) fn is_anthropic_client(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION_HEADER)
}

/// A model: an agent by its name, and what is known of its limits.
fn model_info(model: &Model) -> Value {
    let (id, limits) = (model.id(), model.limits());
    let seconds = i64::try_from(model.created()).unwrap_or_default();
    let created = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
    json!({
        "type": "model",
        "id": id,
        "display_name": id,
        "created_at": created.to_string(),
        "lifecycle": "active",
        "max_input_tokens": limits.map(|(context, _)| context),
        "max_tokens": limits.map(|(_, output)| output),
    })
}

/// All models on one page.
fn model_list(models: Vec<Value>) -> Value {
    let id = |model: Option<&Value>| model.map_or(Value::Null, |model| model["id"].clone());
    json!({
        "first_id": id(models.first()),
        "last_id": id(models.last()),
        "has_more": false,
        "data": models,
    })
}
