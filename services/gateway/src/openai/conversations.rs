//! `/v1/conversations`: a conversation is a session of its own.
//!
//! One without messages takes no storage: its id is enough, and no other tenant's can be found by it.

use axum::{
    Extension, Json,
    extract::{Path, Query, Request, State},
};
use holdfast_grpc::Caller;
use holdfast_types::SessionId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    OpenAi,
    body::read_json,
    conversation::{MODEL_PREFIX, conversation_name},
    ignored_fields::{OtherFields, refuse_others},
    items,
    responses::conversation_id,
    sse::created_at,
};
use crate::api_error::ApiError;

/// Entries of a conversation that its list of items reads, the newest ones.
const MAX_ENTRIES: usize = 1_000;

/// Handler of `POST /v1/conversations`.
pub async fn create_conversation(
    State(api): State<OpenAi>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let fields: OtherFields = read_json(&api, request).await?;
    refuse_others(&fields)?;
    Ok(Json(shown(Uuid::now_v7())))
}

/// Handler of `GET /v1/conversations/{conversation}`.
pub async fn conversation(Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    read(&id).map(|id| Json(shown(id)))
}

/// Handler of `DELETE /v1/conversations/{conversation}`.
pub async fn delete_conversation(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    for session in api.sessions_of(&caller, read(&id)?).await? {
        api.ingest.delete_session(caller.tenant, session).await?;
    }
    Ok(Json(json!({ "id": id, "object": "conversation.deleted", "deleted": true })))
}

/// Handler of `GET /v1/conversations/{conversation}/items`.
pub async fn conversation_items(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(page): Query<items::Page>,
) -> Result<Json<Value>, ApiError> {
    let mut all = Vec::new();
    for session in api.sessions_of(&caller, read(&id)?).await? {
        let entries = api.ingest.newest_entries(caller.tenant, session, MAX_ENTRIES).await?;
        all.extend(items::of_entries(&entries));
    }
    page.show(all).map(Json)
}

impl OpenAi {
    /// Sessions of a conversation: one for each agent that answered in it.
    async fn sessions_of(
        &self,
        caller: &Caller,
        conversation: Uuid,
    ) -> Result<Vec<SessionId>, ApiError> {
        let mut agents = self.ingest.agents(caller).await?;
        let default = self.agent_of(caller, MODEL_PREFIX).await?;
        if agents.iter().all(|agent| agent.id != default.id) {
            agents.push(default);
        }
        let mut found = Vec::new();
        for agent in &agents {
            let key =
                self.ingest.named_key(caller, agent, &conversation_name(conversation)).await?;
            found.extend(self.ingest.find_session(caller.tenant, &key).await?);
        }
        Ok(found)
    }
}

fn read(id: &str) -> Result<Uuid, ApiError> {
    conversation_id(id).ok_or_else(|| ApiError::no_conversation(id))
}

fn shown(id: Uuid) -> Value {
    json!({
        "id": format!("conv_{}", id.simple()),
        "object": "conversation",
        "created_at": created_at(id),
        "metadata": {},
    })
}
