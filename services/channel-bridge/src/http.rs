//! HTTP endpoints that platforms call.
//!
//! A platform gets a success only after the gateway has stored the message. A caller that cannot
//! authenticate learns nothing else: not even whether there is such an account.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use holdfast_kit::trace;
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{Instrument as _, field, info_span};

use crate::{
    accounts::{Accounts, Line},
    ingest::{Ingest, Refusal},
    meter,
    telegram::{self, Taken},
    webhook::{self, Bad, IDEMPOTENCY_KEY, Post, SIGNATURE, TIMESTAMP, Webhook},
};

/// Maximum size of an update's body, in bytes: a text of the gateway's limit, and its envelope.
const LARGEST: usize = 512 * 1024;

/// Maximum size of a program's body, in bytes: it may hold 8 MiB of files in base64.
const LARGEST_POST: usize = 12 * 1024 * 1024;

/// Time in which a body must arrive.
const BODY: Duration = Duration::from_secs(20);

/// Time for which a program's message is retried while the gateway is unavailable.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Doors {
    pub accounts: Arc<Accounts>,
    pub ingest: Ingest,
}

pub fn router(doors: Doors) -> Router {
    Router::new()
        .route("/telegram/{account}", post(from_telegram))
        .route("/webhook/{account}", post(from_program))
        .with_state(doors)
}

async fn from_telegram(
    State(doors): State<Doors>,
    Path(account): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(Line::Telegram(telegram)) = doors.line(&account) else {
        return unauthorized(telegram::CHANNEL);
    };
    if !telegram.is_called_by(text(&headers, "x-telegram-bot-api-secret-token")) {
        return unauthorized(telegram::CHANNEL);
    }
    let body = match read(body, LARGEST).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    // Invalid JSON becomes `null`, which is dropped later: a refusal would make Telegram send it
    // forever.
    let update: Value = serde_json::from_slice(&body).unwrap_or_default();
    match telegram.take_posted(update).await {
        Taken::Done => StatusCode::OK.into_response(),
        Taken::NotNow => told(StatusCode::SERVICE_UNAVAILABLE, "not now"),
    }
}

async fn from_program(
    State(doors): State<Doors>,
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
        let Some(Line::Webhook(webhook)) = doors.line(&account) else {
            return unauthorized(webhook::CHANNEL);
        };
        let body = match read(body, LARGEST_POST).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let post = Post {
            timestamp: text(&headers, TIMESTAMP),
            signature: text(&headers, SIGNATURE),
            key: text(&headers, IDEMPOTENCY_KEY),
            body: &body,
        };
        doors.take(&webhook, post).await
    }
    .instrument(span)
    .await
}

impl Doors {
    fn line(&self, account: &str) -> Option<Line> {
        self.accounts.get(account.parse().ok()?)
    }

    async fn take(&self, webhook: &Webhook, post: Post<'_>) -> Response {
        let request = match webhook.read(post, webhook::now()) {
            Ok(request) => request,
            Err(Bad::Signature) => return unauthorized(webhook::CHANNEL),
            Err(bad @ Bad::KeyNotSigned) => {
                meter::update(webhook::CHANNEL, "unauthorized");
                return told(StatusCode::UNAUTHORIZED, &bad.to_string());
            }
            Err(bad @ Bad::Malformed(_)) => {
                meter::update(webhook::CHANNEL, "malformed");
                return told(StatusCode::BAD_REQUEST, &bad.to_string());
            }
            Err(bad @ Bad::NotAllowed(_)) => {
                meter::update(webhook::CHANNEL, "not_allowed");
                return told(StatusCode::FORBIDDEN, &bad.to_string());
            }
        };
        let span = tracing::Span::current();
        span.record("tenant.id", field::display(webhook.tenant()));
        span.record("account.id", &request.account_id);
        match self.ingest.accept_within(webhook.tenant(), request, PATIENCE).await {
            Ok(accepted) => {
                let outcome = if accepted.duplicate { "duplicate" } else { "accepted" };
                meter::update(webhook::CHANNEL, outcome);
                let status = if accepted.duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
                (status, Json(webhook::told(&accepted))).into_response()
            }
            Err(refusal) => refused(&refusal),
        }
    }
}

fn refused(refusal: &Refusal) -> Response {
    let (status, outcome) = match refusal {
        Refusal::Full { .. } => (StatusCode::TOO_MANY_REQUESTS, "rejected"),
        Refusal::Reused(_) => (StatusCode::CONFLICT, "rejected"),
        Refusal::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "rejected"),
        Refusal::Away(_) | Refusal::Forbidden(_) | Refusal::Broken(_) => {
            tracing::warn!(%refusal, "a message was not taken in; its sender is told to send it again");
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
    };
    meter::update(webhook::CHANNEL, outcome);
    let (message, after) = match refusal {
        Refusal::Full { reason, after } => {
            (reason.as_str(), Some(after.map_or(1, |after| after.as_secs().max(1))))
        }
        Refusal::Reused(reason) | Refusal::Invalid(reason) => (reason.as_str(), None),
        // Internal problems are not revealed to callers.
        Refusal::Away(_) | Refusal::Forbidden(_) | Refusal::Broken(_) => {
            ("not now: send it again with the same key", Some(2))
        }
    };
    let response = told(status, message);
    match after {
        Some(after) => ([(header::RETRY_AFTER, after.to_string())], response).into_response(),
        None => response,
    }
}

fn unauthorized(channel: &'static str) -> Response {
    meter::update(channel, "unauthorized");
    told(StatusCode::UNAUTHORIZED, "not authenticated")
}

fn told(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({"error": error}))).into_response()
}

/// Returns a header as text; empty if it is missing or not text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn read(body: Body, largest: usize) -> Result<Bytes, Response> {
    match timeout(BODY, to_bytes(body, largest)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let error = format!("the body cannot be read, or has more than {largest} bytes");
            Err(told(StatusCode::PAYLOAD_TOO_LARGE, &error))
        }
        Err(_) => Err(told(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}
