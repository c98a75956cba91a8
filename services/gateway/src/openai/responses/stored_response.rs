//! Responses that were made before: read, listed with their input, cancelled, deleted.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::{Path, Query, State},
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::Caller;
use holdfast_session::MessageStatus;
use holdfast_types::{Body, MessageId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        OpenAi, items,
        sse::{StreamOptions, id_headers, stream_response},
    },
    object::{ResponseFields, ResponseHead, ResponseObject, ResponseStatus},
    response_stream::ResponseStream,
};
use crate::{api_error::ApiError, follow::TurnResult, permissions::rights::ConversationRight};

/// Time that a cancelled turn has to end before its state is told.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReadOptions {
    stream: Option<bool>,
    starting_after: Option<u64>,
}

/// Response as it is stored.
struct StoredResponse {
    status: MessageStatus,
    frame: ResponseHead,
    messages: Vec<(MessageId, Body)>,
}

/// Handler of `GET /v1/responses/{response}`: the response, or its events as a stream,
/// from its start or after one of them.
pub async fn response(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(options): Query<ReadOptions>,
    _headers: HeaderMap,
) -> Result<Response, ApiError> {
    if options.starting_after.is_some() && !options.stream.unwrap_or_default() {
        let message = "`starting_after` resumes a stream: add `stream=true`";
        return Err(ApiError::invalid_field("starting_after", message));
    }
    let stored = api.stored_response(&caller, &id).await?;
    if options.stream.unwrap_or_default() {
        let starting_after = options.starting_after;
        let message = stored.status.message;
        let follow = api.follower.message_from_start(caller.tenant, message).await?;
        let tags = id_headers(&follow);
        let options = StreamOptions {
            is_final_only: stored.frame.options.format.is_some(),
            heartbeat: api.settings().gateway.heartbeat,
            cancel: None,
            forget: None,
        };
        let events =
            stream_response(follow, ResponseStream::resumed(stored.frame, starting_after), options);
        return Ok((tags, events).into_response());
    }
    Ok(shown(stored.status, &stored.frame))
}

/// Handler of `DELETE /v1/responses/{response}`.
pub async fn delete_response(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let status = api.stored_response(&caller, &id).await?.status;
    // Those who may read a response of others may not end it.
    api.ingest.check_session(&caller, status.session, ConversationRight::Control).await?;
    if status.outcome.is_none() {
        api.ingest.cancel_message(caller.tenant, status.session, status.seq).await?;
    }
    api.ingest.remove_response(caller.tenant, status.session, status.message).await?;
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })))
}

/// Handler of `POST /v1/responses/{response}/cancel`.
pub async fn cancel_response(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let stored = api.stored_response(&caller, &id).await?;
    let StoredResponse { status, frame, .. } = stored;
    api.ingest.check_session(&caller, status.session, ConversationRight::Control).await?;
    if status.outcome.is_none() {
        api.ingest.cancel_message(caller.tenant, status.session, status.seq).await?;
        let follow = api.follower.message(caller.tenant, status.message).await?;
        // A turn that goes on beyond this is told as in progress.
        let _ = follow.finish(CANCEL_TIMEOUT).await;
    }
    let status = api.ingest.message_status(caller.tenant, status.message).await?;
    Ok(shown(status, &frame))
}

/// Handler of `GET /v1/responses/{response}/input_items`.
pub async fn input_items(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(page): Query<items::Page>,
) -> Result<Json<Value>, ApiError> {
    let stored = api.stored_response(&caller, &id).await?;
    let all = stored.messages.iter().flat_map(|(id, body)| items::of_message(*id, body)).collect();
    page.show(all).map(Json)
}

fn shown(status: MessageStatus, frame: &ResponseHead) -> Response {
    let is_new = status.is_new;
    let Some(finished) = TurnResult::of_status(status) else {
        let state = if is_new { ResponseStatus::Queued } else { ResponseStatus::InProgress };
        return Json(ResponseObject::new(frame, state, &[])).into_response();
    };
    match (ResponseStatus::of_outcome(&finished), ApiError::of_result(&finished)) {
        (ResponseStatus::Failed, Some(refusal)) => {
            let failed = ResponseObject::new(frame, ResponseStatus::Failed, &[]);
            Json(failed.with_error(&refusal)).into_response()
        }
        (state, Some(_)) => Json(ResponseObject::new(frame, state, &[])).into_response(),
        (_, None) => Json(ResponseObject::of_result(frame, &finished)).into_response(),
    }
}

impl OpenAi {
    async fn stored_response(&self, caller: &Caller, id: &str) -> Result<StoredResponse, ApiError> {
        let unknown = || ApiError::no_stored_response(id);
        let status = self.response_status(caller, id).await;
        let status =
            status.map_err(|error| if error.is_not_found() { unknown() } else { error })?;
        let fields = status.response_fields.clone().ok_or_else(unknown)?;
        let fields: ResponseFields = serde_json::from_value(fields).unwrap_or_default();
        let messages = self.ingest.request_messages(caller.tenant, &status).await?;
        let own = messages.iter().find(|(id, _)| *id == status.message);
        let options = own.and_then(|(_, body)| body.answer_options.clone()).unwrap_or_default();
        let frame = ResponseHead { message: status.message, options, fields };
        Ok(StoredResponse { status, frame, messages })
    }
}
