//! Routes of the bridge: `/<channel>/<account>` and below.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, Request, State},
    http::StatusCode,
    response::Response,
    routing::any,
};
use holdfast_kit::{Budget, trace};
use holdfast_types::TenantId;
use tracing::{Instrument as _, info_span};

use crate::{
    accounts::Accounts,
    http::{InboundRequest, error_response, unauthorized},
};

/// Bytes of all bodies in memory.
const MAX_BODY_BYTES: u64 = 128 * 1024 * 1024;

/// Bytes of one tenant's bodies in memory: two large posts, and small ones. Not of one account's: a tenant
/// may have many accounts, and anybody who knows their addresses can send bodies to them.
const MAX_TENANT_BODY_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Debug, Clone)]
pub struct HttpState {
    accounts: Arc<Accounts>,
    /// Bytes of bodies in memory, by tenant.
    bodies: Arc<Budget<TenantId>>,
}

pub fn router(state: HttpState) -> Router {
    Router::new()
        .route("/{channel}/{account}", any(receive))
        .route("/{channel}/{account}/{*path}", any(receive))
        .with_state(state)
}

impl HttpState {
    pub fn new(accounts: Arc<Accounts>) -> Self {
        Self { accounts, bodies: Budget::new(MAX_BODY_BYTES, MAX_TENANT_BODY_BYTES) }
    }
}

async fn receive(
    State(state): State<HttpState>,
    Path(path): Path<Vec<(String, String)>>,
    request: Request,
) -> Response {
    let part = |name: &str| {
        let found = path.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    let Some(channel) = state.accounts.channel(part("channel")) else {
        return error_response(StatusCode::NOT_FOUND, "there is nothing here");
    };
    // `/<channel>/<account>.js` is the file `js` below the account.
    let (id, file) = part("account").split_once('.').unwrap_or((part("account"), ""));
    let path = if file.is_empty() { part("path") } else { file };
    let account = id.parse().ok().and_then(|id| state.accounts.get(id));
    let account = account.filter(|account| account.account().channel == channel.name);
    let Some(account) = account else { return unauthorized(channel.name) };
    let served = account.account();
    let span = info_span!(
        "receive",
        channel = channel.name,
        tenant.id = %served.tenant,
        account.id = %served.id,
    );
    let share = state.bodies.share(served.tenant);
    let (head, body) = request.into_parts();
    if let Some(traceparent) = head.headers.get(trace::TRACEPARENT)
        && let Ok(traceparent) = traceparent.to_str()
    {
        trace::continue_from(&span, traceparent);
    }
    let request = InboundRequest::new(head, path.to_owned(), body, share);
    account.receive(request).instrument(span).await
}
