//! Middleware of every request: span, request id, authentication, limits, metrics.
//!
//! HTTP and gRPC share it; they differ in the form of an error. A call counts as open until the
//! last byte of its response is sent, not the first.
//!
//! Each response has the header `x-request-id`: the caller's, if it sent a usable one, otherwise a
//! new one. Log lines of the request have it as `request.id`.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use holdfast_grpc::{Caller, Scope};
use holdfast_kit::trace::{TRACEPARENT, continue_from};
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;
use tonic::{Code, Status};
use tracing::{Instrument as _, Span, field, info_span};
use uuid::Uuid;

use crate::{
    Error,
    api_error::ApiError,
    auth::Authenticator,
    bodies::{BodyCharge, BodyForm, BodyRefusal},
    calls::OpenCall,
};

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of a caller's request id.
const MAX_REQUEST_ID_LEN: usize = 128;

pub async fn http(State(doorman): State<Authenticator>, request: Request, next: Next) -> Response {
    let (began, id) = (Instant::now(), request_id(request.headers()));
    let span = span("http", &id, &request);
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = async {
        match doorman.admit(request.headers()).await {
            Ok((caller, call)) => {
                let to_error = |refusal: BodyRefusal| axum::Error::new(refusal);
                let (request, _charge) =
                    charge(&doorman, &caller, request, BodyForm { to_error, is_drained: false });
                enter(request, next, caller, call).await
            }
            Err(error) => ApiError::from(error).into_response(),
        }
    }
    .instrument(span)
    .await;
    let status = response.status();
    count("http", if status.is_success() { "ok" } else { outcome_of_status(status.as_u16()) });
    if let Some(route) = route {
        record_duration("http", route.as_str(), began);
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

pub async fn grpc(State(doorman): State<Authenticator>, request: Request, next: Next) -> Response {
    let (began, id) = (Instant::now(), request_id(request.headers()));
    let (span, path) = (span("grpc", &id, &request), request.uri().path().to_owned());
    let (response, is_admitted) = async {
        match doorman.admit_any(request.headers(), request.uri().path()).await {
            // A node's stream has small messages and stays open.
            Ok((caller, call)) if caller.scopes.has(Scope::Node) => {
                (enter(request, next, caller, call).await, true)
            }
            Ok((caller, call)) => {
                let to_error = |refusal| axum::Error::new(Status::from(Error::from(refusal)));
                let (request, _charge) =
                    charge(&doorman, &caller, request, BodyForm { to_error, is_drained: true });
                (enter(request, next, caller, call).await, true)
            }
            Err(error) => (Status::from(error).into_http(), false),
        }
    }
    .instrument(span)
    .await;
    // A call that fails before its first response message has the status in the headers.
    let status = Status::from_header_map(response.headers());
    let (mut response, code) = match status {
        Some(status) if is_unreadable_request(&status) => {
            (Status::invalid_argument(status.message()).into_http(), Code::InvalidArgument)
        }
        Some(status) if status.code() == Code::OutOfRange => {
            let told = format!("the request is too large: {}", status.message());
            (Status::invalid_argument(told).into_http(), Code::InvalidArgument)
        }
        Some(status) => (response, status.code()),
        None => (response, Code::Ok),
    };
    count("grpc", outcome_of_code(code));
    // Callers make up any number of paths of methods that do not exist.
    if is_admitted && code != Code::Unimplemented {
        record_duration("grpc", &path, began);
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Whether a call failed because its request is no message. tonic reports that as a defect of the
/// server.
fn is_unreadable_request(status: &Status) -> bool {
    const REASONS: [&str; 2] =
        ["failed to decode Protobuf message", "protocol error: received message with"];
    status.code() == Code::Internal
        && REASONS.iter().any(|reason| status.message().starts_with(reason))
}

/// Charges the request's body to its tenant, until the charge is dropped.
fn charge(
    doorman: &Authenticator,
    caller: &Caller,
    request: Request,
    form: BodyForm,
) -> (Request, BodyCharge) {
    let (parts, body) = request.into_parts();
    let (body, charge) = doorman.bodies().charge(caller.tenant, body, form);
    (Request::from_parts(parts, body), charge)
}

async fn enter(mut request: Request, next: Next, caller: Caller, call: OpenCall) -> Response {
    Span::current().record("tenant.id", field::display(caller.tenant));
    request.extensions_mut().insert(caller);
    next.run(request).await.map(|body| Body::new(CallBody { body, _call: call }))
}

fn span(door: &'static str, id: &HeaderValue, request: &Request) -> Span {
    let (path, id) = (request.uri().path(), id.to_str().unwrap_or_default());
    let span = info_span!("request", door, path, request.id = id, tenant.id = field::Empty);
    if let Some(traceparent) = traceparent(request.headers()) {
        continue_from(&span, traceparent);
    }
    span
}

/// Returns the caller's id, if it can stand in a log line, or a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_usable = |id: &&HeaderValue| {
        let id = id.as_bytes();
        (1..=MAX_REQUEST_ID_LEN).contains(&id.len())
            && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
    };
    headers.get(REQUEST_ID).filter(is_usable).cloned().unwrap_or_else(|| {
        let id = Uuid::now_v7().to_string();
        HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("none"))
    })
}

fn traceparent(headers: &HeaderMap) -> Option<&str> {
    headers.get(TRACEPARENT)?.to_str().ok()
}

fn count(door: &'static str, outcome: &'static str) {
    metrics::counter!("holdfast_gateway_requests_total", "door" => door, "outcome" => outcome)
        .increment(1);
}

/// Records the time until the response began: for a unary call, the whole call.
fn record_duration(door: &'static str, method: &str, began: Instant) {
    metrics::histogram!(
        "holdfast_gateway_request_duration_seconds", "door" => door, "method" => method.to_owned()
    )
    .record(began.elapsed());
}

const fn outcome_of_status(status: u16) -> &'static str {
    match status {
        401 => "unauthenticated",
        403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        429 => "exhausted",
        503 | 504 => "unavailable",
        400..=499 => "invalid",
        _ => "internal",
    }
}

const fn outcome_of_code(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Unauthenticated => outcome_of_status(401),
        Code::PermissionDenied => outcome_of_status(403),
        Code::NotFound => outcome_of_status(404),
        Code::Aborted | Code::AlreadyExists | Code::FailedPrecondition => outcome_of_status(409),
        Code::ResourceExhausted => outcome_of_status(429),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => outcome_of_status(503),
        Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented => outcome_of_status(400),
        Code::Internal | Code::Unknown | Code::DataLoss => outcome_of_status(500),
    }
}

/// Response body that keeps its call open until it is dropped.
struct CallBody {
    body: Body,
    _call: OpenCall,
}

impl hyper::body::Body for CallBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
