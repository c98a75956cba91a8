//! Application service: the homeserver pushes events to the bridge
//! (<https://spec.matrix.org/latest/application-service-api/>).
//!
//! The homeserver repeats a transaction until it gets a success, and sends no other before. So the
//! success is sent after the gateway has all messages. A repeated transaction is recognized by its
//! id, and its messages by theirs.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json,
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use secrecy::ExposeSecret as _;
use serde_json::json;
use subtle::ConstantTimeEq as _;
use tokio::time::sleep;
use tracing::warn;

use super::{Matrix, sync::REJECTED, wire::Transaction};
use crate::{
    connection::Disconnected,
    http::{InboundRequest, error_response, unauthorized},
    inbound::{RetryMode, UpdateResult},
};

/// Maximum size of a transaction's body, in bytes: a hundred events of 64 KiB, and their envelope.
const MAX_TRANSACTION_BYTES: usize = 8 * 1024 * 1024;

/// Number of finished transactions that are remembered.
const MAX_TRANSACTIONS: usize = 100;

/// Interval at which the homeserver is asked whether it still accepts the token.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);

/// Transactions that were finished last.
#[derive(Debug, Default)]
pub struct Transactions(Mutex<VecDeque<String>>);

impl Transactions {
    fn is_finished(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known == id)
    }

    fn finish(&self, id: String) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_TRANSACTIONS {
            known.pop_front();
        }
        known.push_back(id);
    }
}

impl Matrix {
    /// Registers the account's user, and checks now and then that the token is accepted.
    pub(super) async fn watch(self: Arc<Self>) -> Disconnected {
        if let Some(user) = &self.settings.user {
            let localpart = user.trim_start_matches('@').split(':').next().unwrap_or_default();
            if let Err(error) = self.server.register(localpart).await {
                return error.disconnected(REJECTED);
            }
        }
        let me = match self.me().await {
            Ok(me) => me,
            Err(error) => return error.disconnected(REJECTED),
        };
        self.account.report_working(format!("application service, as {}", me.id));
        loop {
            sleep(CHECK_INTERVAL).await;
            if let Err(error) = self.server.whoami().await {
                return error.disconnected(REJECTED);
            }
        }
    }

    /// Handles a call of the homeserver.
    pub(super) async fn receive_transaction(
        self: Arc<Self>,
        mut request: InboundRequest,
    ) -> Response {
        if !self.is_called_by(&request) {
            return unauthorized(self.account.channel);
        }
        let path = request.path.trim_start_matches("_matrix/app/v1/").to_owned();
        match (request.method.clone(), path.split_once('/')) {
            (Method::PUT, Some(("transactions", id))) => {
                if self.transactions.is_finished(id) {
                    return empty();
                }
                match request.read_body(MAX_TRANSACTION_BYTES).await {
                    Ok(body) => self.take_transaction(id, &body).await,
                    Err(refused) => refused,
                }
            }
            (Method::GET, Some(("users", user))) => match self.me().await {
                Ok(me) if me.id == user => empty(),
                _ => not_found(),
            },
            (Method::POST, None) if path == "ping" => empty(),
            _ => not_found(),
        }
    }

    async fn take_transaction(self: &Arc<Self>, id: &str, body: &[u8]) -> Response {
        let not_now = || error_response(StatusCode::SERVICE_UNAVAILABLE, "not now");
        // A refusal would make the homeserver send it for ever, and nothing else.
        let Ok(transaction) = serde_json::from_slice::<Transaction>(body) else {
            warn!(account.id = %self.account.id, "a transaction is not understood and is passed over");
            return empty();
        };
        if self.me().await.is_err() {
            return not_now();
        }
        for event in transaction.events {
            let handled = self.handle_event(&event.room_id, &event, RetryMode::Once).await;
            if handled == UpdateResult::SendAgain {
                return not_now();
            }
        }
        self.transactions.finish(id.to_owned());
        empty()
    }

    /// Whether the caller has the homeserver's token. Old homeservers send it in the query.
    fn is_called_by(&self, request: &InboundRequest) -> bool {
        let Some(ours) = &self.hs_token else { return false };
        let in_query = request.query.split('&').find_map(|pair| pair.strip_prefix("access_token="));
        let given = request.header("authorization").strip_prefix("Bearer ").or(in_query);
        let ours = ours.expose_secret().as_bytes();
        given.is_some_and(|given| bool::from(ours.ct_eq(given.as_bytes())))
    }
}

fn empty() -> Response {
    Json(json!({})).into_response()
}

fn not_found() -> Response {
    let body = json!({"errcode": "M_NOT_FOUND", "error": "there is nothing here"});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}
