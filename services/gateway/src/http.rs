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
    auth::Authenticator,
    edge, mcp,
    openai::{self, ApiError, OpenAi},
};

pub fn router(
    api: OpenAi,
    (mesh, bounds): (mcp::Service, mcp::BodyLimits),
    doorman: Authenticator,
    readiness: Readiness,
) -> Router {
    let mesh = Router::new()
        .route("/mcp", any_service(mesh))
        .route_layer(middleware::from_fn_with_state(bounds, mcp::read_whole_body));
    let api = Router::new()
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/responses", post(openai::respond))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{*model}", get(openai::model))
        .with_state(api)
        .merge(mesh)
        .layer(CatchPanicLayer::custom(|_| ApiError::defect().into_response()))
        .route_layer(middleware::from_fn_with_state(doorman, edge::http));
    holdfast_doors::health(readiness)
        .merge(api)
        .fallback(async |request: Request| {
            ApiError::no_route(request.method().as_str(), request.uri().path())
        })
        .method_not_allowed_fallback(async |request: Request| {
            ApiError::no_method(request.method().as_str(), request.uri().path())
        })
}

/// Reads a request's body as JSON.
///
/// # Errors
///
/// If the body is too large, too slow, not UTF-8, not JSON, or not of the type `T`.
pub async fn read_json<T: DeserializeOwned>(
    request: Request,
    limit: usize,
    patience: Duration,
) -> Result<T, ApiError> {
    let body = Limited::new(request.into_body(), limit).collect();
    let body: Bytes = match tokio::time::timeout(patience, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
            return Err(ApiError::too_large(limit));
        }
        Ok(Err(_)) => return Err(ApiError::bad_body("the body ended too early: send it again")),
        Err(_) => return Err(ApiError::too_slow(patience)),
    };
    let text = std::str::from_utf8(&body).map_err(|error| {
        let at = error.valid_up_to();
        ApiError::bad_body(&format!("the body is not UTF-8 from byte {at} on: encode it as UTF-8"))
    })?;
    serde_json::from_str(text).map_err(|error| {
        let what = if error.is_data() { "is not what it should be" } else { "is no JSON" };
        ApiError::bad_body(&format!("the body {what}: {error}"))
    })
}
