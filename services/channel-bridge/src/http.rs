//! HTTP endpoints that platforms call.
//!
//! A platform gets a success only after the gateway has stored the message. A caller that cannot
//! authenticate learns nothing else: not even whether there is such an account.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use holdfast_kit::{Budget, BudgetShare, trace};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{Instrument as _, field, info_span};

use crate::{
    accounts::{AccountHandle, Accounts},
    ingest::{AcceptError, Ingest},
    meter,
    telegram::{self, UpdateResult},
    webhook::{
        self, IDEMPOTENCY_KEY_HEADER, RequestError, SIGNATURE_HEADER, SignedRequest,
        TIMESTAMP_HEADER, Webhook,
    },
};

/// Maximum size of an update's body, in bytes: a text of the gateway's limit, and its envelope.
const MAX_UPDATE_BYTES: usize = 512 * 1024;

/// Maximum size of a program's body, in bytes: it may hold 8 MiB of files in base64.
const MAX_POST_BYTES: usize = 12 * 1024 * 1024;

/// Bytes of all bodies in memory.
const MAX_BODY_BYTES: u64 = 128 * 1024 * 1024;

/// Bytes of one account's bodies in memory: one large post, and small ones.
const MAX_ACCOUNT_BODY_BYTES: u64 = 16 * 1024 * 1024;

/// Time in which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Time for which a program's message is retried while the gateway is unavailable.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct HttpState {
    pub accounts: Arc<Accounts>,
    pub ingest: Ingest,
    /// Bytes of bodies in memory, by account.
    bodies: Arc<Budget<String>>,
}

pub fn router(doors: HttpState) -> Router {
    Router::new()
        .route("/telegram/{account}", post(from_telegram))
        .route("/webhook/{account}", post(from_program))
        .with_state(doors)
}

async fn from_telegram(
    State(doors): State<HttpState>,
    Path(account): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(AccountHandle::Telegram(telegram)) = doors.line(&account) else {
        return unauthorized(telegram::CHANNEL);
    };
    if !telegram.is_called_by(text(&headers, "x-telegram-bot-api-secret-token")) {
        return unauthorized(telegram::CHANNEL);
    }
    let share = doors.bodies.share(account);
    let body = match read(body, MAX_UPDATE_BYTES, &share).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    // Invalid JSON becomes `null`, which is dropped later: a refusal would make Telegram send it
    // forever.
    let update: Value = serde_json::from_slice(&body).unwrap_or_default();
    match telegram.handle_posted(update).await {
        UpdateResult::Done => StatusCode::OK.into_response(),
        UpdateResult::SendAgain => error_response(StatusCode::SERVICE_UNAVAILABLE, "not now"),
    }
}

async fn from_program(
    State(doors): State<HttpState>,
    Path(account): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let span = info_span!("webhook", tenant.id = field::Empty, account.id = field::Empty);
    if let Some(traceparent) = headers.get(trace::TRACEPARENT).and_then(|value| value.to_str().ok())
    {
        trace::continue_from(&span, traceparent);
    }
    async {
        let Some(AccountHandle::Webhook(webhook)) = doors.line(&account) else {
            return unauthorized(webhook::CHANNEL);
        };
        let signature = text(&headers, SIGNATURE_HEADER);
        let timestamp = text(&headers, TIMESTAMP_HEADER);
        if !webhook.is_plausible(signature, timestamp, webhook::now()) {
            return unauthorized(webhook::CHANNEL);
        }
        let share = doors.bodies.share(account);
        let body = match read(body, MAX_POST_BYTES, &share).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let post = SignedRequest {
            timestamp,
            signature,
            key: text(&headers, IDEMPOTENCY_KEY_HEADER),
            body: &body,
        };
        doors.take(&webhook, post).await
    }
    .instrument(span)
    .await
}

impl HttpState {
    pub fn new(accounts: Arc<Accounts>, ingest: Ingest) -> Self {
        Self { accounts, ingest, bodies: Budget::new(MAX_BODY_BYTES, MAX_ACCOUNT_BODY_BYTES) }
    }

    fn line(&self, account: &str) -> Option<AccountHandle> {
        self.accounts.get(account.parse().ok()?)
    }

    async fn take(&self, webhook: &Webhook, post: SignedRequest<'_>) -> Response {
        let request = match webhook.read(post, webhook::now()) {
            Ok(request) => request,
            Err(RequestError::Signature) => return unauthorized(webhook::CHANNEL),
            Err(bad @ RequestError::KeyNotSigned) => {
                meter::update(webhook::CHANNEL, "unauthorized");
                return error_response(StatusCode::UNAUTHORIZED, &bad.to_string());
            }
            Err(bad @ RequestError::Malformed(_)) => {
                meter::update(webhook::CHANNEL, "malformed");
                return error_response(StatusCode::BAD_REQUEST, &bad.to_string());
            }
            Err(bad @ RequestError::NotAllowed(_)) => {
                meter::update(webhook::CHANNEL, "not_allowed");
                return error_response(StatusCode::FORBIDDEN, &bad.to_string());
            }
        };
        let span = tracing::Span::current();
        span.record("tenant.id", field::display(webhook.tenant()));
        span.record("account.id", &request.account_id);
        match self.ingest.accept_within(webhook.tenant(), request, ACCEPT_TIMEOUT).await {
            Ok(accepted) => {
                let outcome = if accepted.duplicate { "duplicate" } else { "accepted" };
                meter::update(webhook::CHANNEL, outcome);
                let status = if accepted.duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
                (status, Json(webhook::accepted_response(&accepted))).into_response()
            }
            Err(refusal) => refusal_response(&refusal),
        }
    }
}

fn refusal_response(refusal: &AcceptError) -> Response {
    let (status, outcome) = match refusal {
        AcceptError::Full { .. } | AcceptError::QuotaSpent(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "rejected")
        }
        AcceptError::KeyReused(_) => (StatusCode::CONFLICT, "rejected"),
        AcceptError::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "rejected"),
        AcceptError::Unavailable(_) | AcceptError::Forbidden(_) | AcceptError::GatewayFailed(_) => {
            tracing::warn!(%refusal, "a message was not taken in; its sender is told to send it again");
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
    };
    meter::update(webhook::CHANNEL, outcome);
    let (message, after) = match refusal {
        AcceptError::Full { reason, after } => (reason.as_str(), Some(after.as_secs().max(1))),
        AcceptError::QuotaSpent(reason)
        | AcceptError::KeyReused(reason)
        | AcceptError::Invalid(reason) => (reason.as_str(), None),
        // Internal problems are not revealed to callers.
        AcceptError::Unavailable(_) | AcceptError::Forbidden(_) | AcceptError::GatewayFailed(_) => {
            ("not now: send it again with the same key", Some(2))
        }
    };
    let response = error_response(status, message);
    match after {
        Some(after) => ([(header::RETRY_AFTER, after.to_string())], response).into_response(),
        None => response,
    }
}

/// Response while other bodies use up the memory for bodies.
fn busy() -> Response {
    let response = error_response(StatusCode::TOO_MANY_REQUESTS, "not now: send it again");
    ([(header::RETRY_AFTER, "1")], response).into_response()
}

fn unauthorized(channel: &'static str) -> Response {
    meter::update(channel, "unauthorized");
    error_response(StatusCode::UNAUTHORIZED, "not authenticated")
}

fn error_response(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({"error": error}))).into_response()
}

/// Returns a header as text; empty if it is missing or not text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Reads a body, which is charged to its account.
async fn read(body: Body, largest: usize, share: &BudgetShare<String>) -> Result<Bytes, Response> {
    let too_large = || {
        let error = format!("the body cannot be read, or has more than {largest} bytes");
        error_response(StatusCode::PAYLOAD_TOO_LARGE, &error)
    };
    let whole = async {
        let (mut frames, mut read) = (body.into_data_stream(), BytesMut::new());
        while let Some(frame) = frames.next().await {
            let frame = frame.map_err(|_| too_large())?;
            if read.len() + frame.len() > largest {
                return Err(too_large());
            }
            let bytes = u64::try_from(frame.len()).unwrap_or(u64::MAX);
            share.grow(bytes).map_err(|_spent| busy())?;
            read.extend_from_slice(&frame);
        }
        Ok(read.freeze())
    };
    match timeout(BODY_TIMEOUT, whole).await {
        Ok(read) => read,
        Err(_) => {
            Err(error_response(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))
        }
    }
}
