//! Requests of a program: authenticated, read, handed over, answered.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    http::{Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde_json::json;

use super::{
    IDEMPOTENCY_KEY_HEADER, Webhook,
    inbound::{RequestError, SignedRequest},
    sign::{self, SIGNATURE_HEADER, TIMESTAMP_HEADER},
};
use crate::{
    http::{InboundRequest, error_response, unauthorized},
    ingest::AcceptError,
    meter,
};

/// Maximum size of a body, in bytes: it may hold 8 MiB of files in base64.
const MAX_POST_BYTES: usize = 12 * 1024 * 1024;

/// Time for which a message is retried while the gateway is unavailable.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

impl Webhook {
    pub(super) async fn receive_message(self: Arc<Self>, mut request: InboundRequest) -> Response {
        let channel = self.account.channel;
        let header = |request: &InboundRequest, name| request.header(name).to_owned();
        let signature = header(&request, SIGNATURE_HEADER);
        let timestamp = header(&request, TIMESTAMP_HEADER);
        let key = header(&request, IDEMPOTENCY_KEY_HEADER);
        if request.method != Method::POST || !request.path.is_empty() {
            return error_response(StatusCode::METHOD_NOT_ALLOWED, "messages are sent with POST");
        }
        if !self.is_plausible(&signature, &timestamp, sign::now()) {
            return unauthorized(channel);
        }
        let body = match request.read_body(MAX_POST_BYTES).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let post =
            SignedRequest { timestamp: &timestamp, signature: &signature, key: &key, body: &body };
        let message = match self.read(post, sign::now()) {
            Ok(message) => message,
            Err(RequestError::Signature) => return unauthorized(channel),
            Err(bad) => {
                let (status, outcome) = match &bad {
                    RequestError::Signature | RequestError::KeyNotSigned => {
                        (StatusCode::UNAUTHORIZED, "unauthorized")
                    }
                    RequestError::Malformed(_) => (StatusCode::BAD_REQUEST, "malformed"),
                    RequestError::NotAllowed(_) => (StatusCode::FORBIDDEN, "not_allowed"),
                };
                meter::update(channel, outcome);
                return error_response(status, &bad.to_string());
            }
        };
        let account = &self.account;
        match account.ingest.accept_within(account.tenant, message, ACCEPT_TIMEOUT).await {
            Ok(accepted) => {
                let outcome = if accepted.duplicate { "duplicate" } else { "accepted" };
                meter::update(channel, outcome);
                let status = if accepted.duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
                let body = json!({
                    "message_id": accepted.message_id,
                    "session_id": accepted.session_id,
                    "duplicate": accepted.duplicate,
                });
                (status, Json(body)).into_response()
            }
            Err(refusal) => refusal_response(channel, &refusal),
        }
    }
}

fn refusal_response(channel: &'static str, refusal: &AcceptError) -> Response {
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
    meter::update(channel, outcome);
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
