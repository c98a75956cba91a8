//! HTTP routes: the OpenAI-compatible API, the platform as an MCP server, health and metrics.

use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    middleware,
    response::IntoResponse as _,
    routing::{any_service, get, post},
};
use bytes::Bytes;
use holdfast_kit::Readiness;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    auth::Doorman,
    edge, mcp,
    openai::{self, OpenAi, Refusal},
};

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
    holdfast_doors::health(readiness)
        .merge(api)
        .fallback(async |request: Request| {
            Refusal::no_route(request.method().as_str(), request.uri().path())
        })
        .method_not_allowed_fallback(async |request: Request| {
            Refusal::no_method(request.method().as_str(), request.uri().path())
        })
}

/// Reads a request's body as JSON.
///
/// # Errors
///
/// If the body is too large, too slow, not UTF-8, not JSON, or not of the type `T`.
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
