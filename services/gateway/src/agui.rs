//! `POST /chat`: the AG-UI protocol. A run is a message and its answer, as a stream of events.
//!
//! | file | contents |
//! |---|---|
//! | `input.rs` | `RunAgentInput`: reading and checking it |
//! | `stream.rs` | the events |
//!
//! The thread is a session of this name, the run an idempotency key. Messages, tools of the client
//! and their results are treated as those of Chat Completions (`openai.rs`).

mod input;
mod stream;

use axum::{
    Extension,
    extract::{Query, Request, State},
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::Caller;
use serde::Deserialize;

use crate::{
    api_error::ApiError,
    openai::{
        OpenAi, StreamOptions, cancels_on_abort, id_headers, idempotency_key_of, read_json,
        stream_response,
    },
};
use input::RunAgentInput;
use stream::RunEvents;

#[derive(Debug, Deserialize)]
pub struct ChosenAgent {
    /// Empty for the tenant's default agent.
    #[serde(default)]
    agent: String,
}

/// Handler: answers with the events of one run.
pub async fn run(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    Query(ChosenAgent { agent }): Query<ChosenAgent>,
    request: Request,
) -> Result<Response, ApiError> {
    let key = idempotency_key_of(request.headers())?;
    let cancels = cancels_on_abort(request.headers())?;
    let input: RunAgentInput = read_json(&api, request).await?;
    let (run, ask) = input.check(&agent)?;
    let key = key.unwrap_or_else(|| run.idempotency_key());

    let follow = api.accept_and_follow(&caller, Some(key), ask).await?;

    let options = StreamOptions {
        is_final_only: false,
        heartbeat: api.settings().gateway.heartbeat,
        cancel: cancels.then(|| api.ingest().clone()),
        forget: None,
    };
    let tags = id_headers(&follow);
    let events = RunEvents::new(run, follow.message());
    Ok((tags, stream_response(follow, events, options)).into_response())
}
