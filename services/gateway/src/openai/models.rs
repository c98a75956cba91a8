//! `GET /v1/models`: a tenant's agents.

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
};
use holdfast_grpc::Caller;
use holdfast_types::AgentId;
use serde::Serialize;

use super::{OpenAi, conversation::MODEL_PREFIX};
use crate::api_error::ApiError;

#[derive(Debug, Serialize)]
pub struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

#[derive(Debug, Serialize)]
pub struct Models {
    object: &'static str,
    data: Vec<Model>,
}

/// Handler: lists the default agent as `holdfast`, and every agent by its own name.
pub async fn models(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Models>, ApiError> {
    let default = api.ingest.agent(caller.tenant, "").await?;
    let agents = api.ingest.agents(caller.tenant).await?;
    let own =
        agents.iter().map(|agent| Model::new(format!("{MODEL_PREFIX}/{}", agent.name), agent.id));
    let data = [Model::new(MODEL_PREFIX.to_owned(), default.id)].into_iter().chain(own).collect();
    Ok(Json(Models { object: "list", data }))
}

pub async fn model(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    model: Result<Path<String>, PathRejection>,
) -> Result<Json<Model>, ApiError> {
    let Ok(Path(model)) = model else {
        return Err(ApiError::invalid_field("model", "the model's name is not UTF-8"));
    };
    let agent = api.agent_of(caller.tenant, &model).await?;
    Ok(Json(Model::new(model, agent.id)))
}

impl Model {
    fn new(id: String, agent: AgentId) -> Self {
        Self {
            id,
            object: "model",
            created: super::sse::created_at(agent.as_uuid()),
            owned_by: MODEL_PREFIX,
        }
    }
}
