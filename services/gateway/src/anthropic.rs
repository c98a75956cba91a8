//! The Anthropic-compatible API: Messages, and counting of tokens.
//!
//! | file | contents |
//! |---|---|
//! | `request.rs` | reading and checking a request |
//! | `content.rs` | its messages: blocks of text, pictures, calls and results |
//! | `tools.rs` | its tools |
//! | `answer.rs` | the message of the answer |
//! | `stream.rs` | its events |
//! | `count.rs` | estimate of a request's tokens |
//! | `models.rs` | agents in the form of Anthropic's models |
//! | `error.rs` | errors in Anthropic's form |
//!
//! Conversations, tools of the client and their results are those of Chat Completions (`openai.rs`).
//! A request always has its whole conversation: `metadata.user_id` names the user, not what the messages
//! are added to.

mod answer;
mod content;
mod count;
mod error;
mod models;
mod request;
mod stream;
mod tools;

use axum::{
    Extension, Json,
    extract::{Request, State},
    response::{AppendHeaders, IntoResponse as _, Response},
};
use holdfast_grpc::Caller;
use serde_json::{Value, json};

use crate::{
    api_error::ApiError,
    openai::{
        MODEL_PREFIX, OpenAi, StreamOptions, cancels_on_abort, id_headers, idempotency_key_of,
        mark_housekeeping, read_json, stream_response,
    },
};
use answer::{MessageHead, message_of};
use request::MessagesRequest;
use stream::MessageStream;

pub use error::answer_in_own_form;
pub use models::{model, models};

/// Beginning of the names of models that Anthropic's clients have built in.
const BUILT_IN_MODELS: &str = "claude-";

/// Agent of a model name: the default agent for names that clients have built in.
pub fn agent_model(name: &str) -> &str {
    if name.starts_with(BUILT_IN_MODELS) { MODEL_PREFIX } else { name }
}

/// Handler: answers with one message or a stream of events.
pub async fn messages(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let (key, cancels) = (idempotency_key_of(&headers)?, cancels_on_abort(&headers)?);
    let wanted: MessagesRequest = read_json(&api, request).await?;
    let (is_stream, shows_thinking) = (wanted.is_stream(), wanted.shows_thinking());
    let model = wanted.model().to_owned();
    let mut ask = wanted.check()?;
    mark_housekeeping(&mut ask, &headers)?;
    let (ignored, is_final_only) = (ask.ignored.header(), ask.has_format());
    let forget = ask.is_housekeeping().then(|| api.ingest().clone());

    let follow = api.accept_and_follow(&caller, key, ask).await?;

    let tags = (id_headers(&follow), ignored.map(AppendHeaders));
    let head = MessageHead { message: follow.message(), model };
    if is_stream {
        let options = StreamOptions {
            is_final_only,
            heartbeat: api.settings().gateway.heartbeat,
            cancel: cancels.then(|| api.ingest().clone()),
            forget,
        };
        let events = stream_response(follow, MessageStream::new(head, shows_thinking), options);
        return Ok((tags, events).into_response());
    }
    let session = follow.session();
    let finished = follow.finish(api.settings().gateway.answer_timeout).await?;
    if let Some(ingest) = forget {
        ingest.forget_unstored(caller.tenant, session).await;
    }
    match ApiError::of_result(&finished) {
        Some(refusal) => Ok((tags, refusal).into_response()),
        None => Ok((tags, Json(message_of(&head, &finished))).into_response()),
    }
}

/// Handler: estimates the tokens of a request that is not made.
pub async fn count_tokens(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let ask = read_json::<MessagesRequest>(&api, request).await?.check_count()?;
    api.agent_of(&caller, &ask.model).await?;
    let counted: Value = json!({ "input_tokens": count::input_tokens(&ask) });
    Ok((ask.ignored.header().map(AppendHeaders), Json(counted)).into_response())
}
