//! Middleware of every request: span, request id, authentication, limits, metrics.
//!
//! HTTP and gRPC share it; they differ in the form of an error. A call counts as open until the
//! last byte of its response is sent, not the first.
//!
//! Each response has the header `x-request-id`. Log lines of the request have it as `request.id`, and
//! the caller's own `x-client-request-id` as `request.client_id`.

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
use holdfast_grpc::Caller;
use holdfast_kit::trace::{TRACEPARENT, continue_from};
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Frame, SizeHint};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;
use tonic::{Code, Status};
use tracing::{Instrument as _, Span, field, info_span};
use uuid::Uuid;

use crate::{
    Error,
    api_error::ApiError,
    audit,
    auth::{Authenticator, SessionToken},
    bodies::{BodyCharge, BodyForm, BodyRefusal},
    calls::OpenCall,
    permissions::{self, Permission},
};

/// Response header with the id of the request, as in logs and in the audit log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Request header with an id of the caller's own, for the log.
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");

/// Maximum length of a caller's request id.
const MAX_CLIENT_ID_LEN: usize = 128;

pub async fn http(State(doorman): State<Authenticator>, request: Request, next: Next) -> Response {
    let (began, id) = (Instant::now(), Uuid::now_v7());
    let span = span("http", id, &request);
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = async {
        match doorman.admit(request.headers()).await.and_then(permit_route(&request)) {
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
    with_request_id(response, id)
}

/// Checks the rule of an HTTP request's route. A route without one is closed.
fn permit_route(
    request: &Request,
) -> impl FnOnce((Caller, OpenCall)) -> Result<(Caller, OpenCall), Error> {
    let route = request.extensions().get::<MatchedPath>();
    let rule = route.and_then(|route| permissions::of_http(route.as_str()));
    move |(caller, call)| {
        rule.ok_or(Error::NoRule)?.permits(&caller)?;
        Ok((caller, call))
    }
}

pub async fn grpc(State(doorman): State<Authenticator>, request: Request, next: Next) -> Response {
    let (began, id) = (Instant::now(), Uuid::now_v7());
    let session = request.extensions().get::<SessionToken>().cloned();
    let door = if session.is_some() { "console" } else { "grpc" };
    let (span, path) = (span(door, id, &request), request.uri().path().to_owned());
    let response = async {
        let admitted = match &session {
            Some(SessionToken(token)) => doorman.admit_session(token.expose_secret()).await,
            None => doorman.admit_any(request.headers(), request.uri().path()).await,
        };
        match admitted {
            Ok((caller, call)) => call_method(&doorman, request, next, (caller, call, id)).await,
            Err(error) => Status::from(error).into_http(),
        }
    }
    .instrument(span)
    .await;
    // A call that fails before its first response message has the status in the headers.
    let status = Status::from_header_map(response.headers());
    let (response, code) = match status {
        Some(status) if is_unreadable_request(&status) => {
            (Status::invalid_argument(status.message()).into_http(), Code::InvalidArgument)
        }
        // tonic's own refusal of a large message; ours have details.
        Some(status) if status.code() == Code::OutOfRange && status.details().is_empty() => {
            let told = format!("the request is too large: {}", status.message());
            (Status::invalid_argument(told).into_http(), Code::InvalidArgument)
        }
        Some(status) => (response, status.code()),
        None => (response, Code::Ok),
    };
    count(door, outcome_of_code(code));
    // Callers make up any number of paths of methods that do not exist.
    if permissions::of_grpc(&path).is_some() {
        record_duration(door, &path, began);
    }
    with_request_id(response, id)
}

/// Checks the rule of a method, and calls it. A method without one is closed.
async fn call_method(
    doorman: &Authenticator,
    request: Request,
    next: Next,
    (caller, call, id): (Caller, OpenCall, Uuid),
) -> Response {
    let Some(rule) = permissions::of_grpc(request.uri().path()) else {
        return Status::unimplemented("there is no such method").into_http();
    };
    if let Err(error) = rule.permits(&caller) {
        let status = Status::from(error);
        audit::record(doorman, &caller, (rule, id), status.code(), "").await;
        return status.into_http();
    }
    if rule.permission == Permission::Node {
        // A node's stream has small messages and stays open.
        return enter(request, next, caller, call).await;
    }
    let to_error = |refusal| axum::Error::new(Status::from(Error::from(refusal)));
    let form = BodyForm { to_error, is_drained: true };
    let (request, _charge) = charge(doorman, &caller, request, form);
    let entered = enter(request, next, caller.clone(), call);
    let code = |response: &Response| {
        Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
    };
    audit::audited(doorman, &caller, (rule, id), entered, code).await
}

fn with_request_id(mut response: Response, id: Uuid) -> Response {
    if let Ok(id) = HeaderValue::from_str(&id.simple().to_string()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
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

fn span(door: &'static str, id: Uuid, request: &Request) -> Span {
    let (path, id) = (request.uri().path(), id.simple());
    let span = info_span!(
        "request",
        door,
        path,
        request.id = %id,
        request.client_id = field::Empty,
        tenant.id = field::Empty
    );
    if let Some(own) = client_request_id(request.headers()) {
        span.record("request.client_id", own);
    }
    if let Some(traceparent) = traceparent(request.headers()) {
        continue_from(&span, traceparent);
    }
    span
}

/// Returns the caller's own id, if it can stand in a log line.
fn client_request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(CLIENT_REQUEST_ID)?.to_str().ok()?;
    let is_usable = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    ((1..=MAX_CLIENT_ID_LEN).contains(&id.len()) && id.as_bytes().iter().all(is_usable))
        .then_some(id)
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
