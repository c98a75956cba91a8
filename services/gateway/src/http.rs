//! The HTTP door: the OpenAI-compatible API, the mesh as an MCP server, and what operators and
//! probes look at.

use std::time::Duration;

use axum::{
    Json, Router,
    extract::{Request, State},
    middleware,
    response::{IntoResponse, Response},
    routing::{any_service, get, post},
    serve::ListenerExt as _,
};
use bytes::Bytes;
use holdfast_kit::{Readiness, metrics, net};
use http::{StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    auth::Doorman,
    edge, mcp,
    openai::{self, OpenAi, Refusal},
};

/// Everything behind the door.
pub fn router(
    api: OpenAi,
    (mesh, bounds): (mcp::Service, mcp::Bounds),
    doorman: Doorman,
    readiness: Readiness,
) -> Router {
    let mesh = Router::new()
        .route("/mcp", any_service(mesh))
        .route_layer(middleware::from_fn_with_state(bounds, mcp::whole));
    let api = Router::new()
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/responses", post(openai::respond))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{*model}", get(openai::model))
        .with_state(api)
        .merge(mesh)
        .layer(CatchPanicLayer::custom(|_| Refusal::defect().into_response()))
        .route_layer(middleware::from_fn_with_state(doorman, edge::http));
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(counted))
        .merge(api)
        .fallback(async |request: Request| {
            Refusal::no_route(request.method().as_str(), request.uri().path())
        })
        .method_not_allowed_fallback(async |request: Request| {
            Refusal::no_method(request.method().as_str(), request.uri().path())
        })
}

/// Serves until `stop` is cancelled, then finishes the calls in flight.
///
/// # Errors
///
/// If the server fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    axum::serve(listener.tap_io(net::nodelay), router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await?;
    Ok(())
}

/// Reads a request's body, as JSON.
///
/// # Errors
///
/// If it is too large, too slow, not UTF-8, no JSON, or not what it should be.
pub async fn read<T: DeserializeOwned>(
    request: Request,
    limit: usize,
    patience: Duration,
) -> Result<T, Refusal> {
    let body = Limited::new(request.into_body(), limit).collect();
    let body: Bytes = match tokio::time::timeout(patience, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
            return Err(Refusal::too_large(limit));
        }
        Ok(Err(_)) => return Err(Refusal::bad_body("the body ended too early: send it again")),
        Err(_) => return Err(Refusal::too_slow(patience)),
    };
    let text = std::str::from_utf8(&body).map_err(|error| {
        let at = error.valid_up_to();
        Refusal::bad_body(&format!("the body is not UTF-8 from byte {at} on: encode it as UTF-8"))
    })?;
    serde_json::from_str(text).map_err(|error| {
        let what = if error.is_data() { "is not what it should be" } else { "is no JSON" };
        Refusal::bad_body(&format!("the body {what}: {error}"))
    })
}

async fn ready(State(readiness): State<Readiness>) -> Response {
    let failing = readiness.failing();
    let status = if failing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": failing.is_empty(), "failing": failing }))).into_response()
}

async fn counted() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render())
}
