//! `/v1/responses`.
//!
//! | file | contents |
//! |---|---|
//! | `request.rs` | reading and checking a request |
//! | `references.rs` | references to items of earlier answers |
//! | `object.rs` | the response object |
//! | `response_stream.rs` | its events |
//! | `stored_response.rs` | responses that are read, listed with their input, cancelled or deleted |

mod object;
mod references;
mod request;
mod response_stream;
mod stored_response;

use axum::{
    Extension, Json,
    extract::{Request, State},
    response::{AppendHeaders, IntoResponse as _, Response},
};
use holdfast_grpc::Caller;

use super::{
    OpenAi,
    body::read_json,
    conversation::{cancels_on_abort, idempotency_key_of},
    sse::{StreamOptions, id_headers, stream_response},
};
use crate::{api_error::ApiError, follow::FollowedMessage};
use object::{ResponseHead, ResponseObject, ResponseStatus};
use request::ResponsesRequest;
use response_stream::ResponseStream;

pub use request::conversation_id;
pub use stored_response::{cancel_response, delete_response, input_items, response};

/// Handler: answers with one JSON object or a stream.
pub async fn respond(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let key = idempotency_key_of(request.headers())?;
    let cancels = cancels_on_abort(request.headers())?;
    let mut wanted: ResponsesRequest = read_json(&api, request).await?;
    if let Some(items) = wanted.input_items() {
        api.resolve_references(&caller, items).await?;
    }
    let stream = wanted.streams();
    let (ask, fields) = wanted.check()?;
    let ignored = ask.ignored.header();
    let (options, is_final_only) = (ask.options.clone().unwrap_or_default(), ask.has_format());

    let follow = api.accept_and_follow(&caller, key, ask).await?;

    let tags = (id_headers(&follow), ignored.map(AppendHeaders));
    let frame = ResponseHead { message: follow.message(), options, fields };
    if stream {
        let options = StreamOptions {
            is_final_only,
            heartbeat: api.settings().gateway.heartbeat,
            cancel: (cancels && !frame.fields.background).then(|| api.ingest.clone()),
            forget: (!frame.fields.store).then(|| api.ingest.clone()),
        };
        let events = stream_response(follow, ResponseStream::new(frame), options);
        return Ok((tags, events).into_response());
    }
    if frame.fields.background {
        let queued = ResponseObject::new(&frame, ResponseStatus::Queued, &[]);
        return Ok((tags, Json(queued)).into_response());
    }
    let session = follow.session();
    let answered = finish(&api, follow, &frame).await?;
    if !frame.fields.store {
        api.ingest.forget_unstored(caller.tenant, session).await;
    }
    Ok((tags, answered).into_response())
}

async fn finish(
    api: &OpenAi,
    follow: FollowedMessage,
    frame: &ResponseHead,
) -> Result<Response, ApiError> {
    let finished = follow.finish(api.settings().gateway.answer_timeout).await?;
    Ok(match ApiError::of_result(&finished) {
        Some(refusal) => refusal.into_response(),
        None => Json(ResponseObject::of_result(frame, &finished)).into_response(),
    })
}
