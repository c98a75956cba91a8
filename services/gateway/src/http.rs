//! HTTP routes: the OpenAI- and Anthropic-compatible APIs, AG-UI, the platform as an MCP server, health and metrics, and
//! their description.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::Request,
    middleware,
    response::IntoResponse as _,
    routing::{any_service, get, post},
};
use holdfast_kit::{Readiness, telemetry};
use http::header::CONTENT_TYPE;
use tonic::Status;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    agui, anthropic,
    api_error::ApiError,
    auth::Authenticator,
    edge,
    mcp::{
        self,
        sign_in::{self, SignIn},
    },
    openai::{self, OpenAi},
};

/// Description of the HTTP surface of the installation, in OpenAPI 3.1: what integrators read.
const DESCRIPTION: &str = include_str!("../openapi.json");

pub fn router(
    api: OpenAi,
    (mesh, bounds, sign_in): (mcp::Service, mcp::BodyLimits, SignIn),
    doorman: Authenticator,
    readiness: Readiness,
    telemetry: &telemetry::Config,
    grpc_address: SocketAddr,
) -> Router {
    let mesh = Router::new()
        .route("/mcp", any_service(mesh))
        .route_layer(middleware::from_fn_with_state(bounds, mcp::read_whole_body));
    let api = Router::new()
        .route("/chat", post(agui::run))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/v1/responses", post(openai::respond))
        .route("/v1/responses/{response}", get(openai::response).delete(openai::delete_response))
        .route("/v1/responses/{response}/cancel", post(openai::cancel_response))
        .route("/v1/responses/{response}/input_items", get(openai::input_items))
        .route("/v1/conversations", post(openai::create_conversation))
        .route(
            "/v1/conversations/{conversation}",
            get(openai::conversation).delete(openai::delete_conversation),
        )
        .route("/v1/conversations/{conversation}/items", get(openai::conversation_items))
        .route("/v1/embeddings", post(openai::embeddings))
        .route("/v1/audio/transcriptions", post(openai::transcribe))
        .route("/v1/audio/speech", post(openai::speak))
        .route("/v1/models", get(anthropic::models))
        .route("/v1/models/{*model}", get(anthropic::model))
        .with_state(api)
        .merge(mesh)
        .layer(CatchPanicLayer::custom(|_| ApiError::defect().into_response()))
        .route_layer(middleware::from_fn_with_state(doorman, edge::http))
        .route_layer(middleware::from_fn_with_state(sign_in.clone(), sign_in::announce))
        .merge(sign_in::router(sign_in));
    holdfast_doors::health(readiness, telemetry)
        .route("/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], DESCRIPTION)))
        .merge(api)
        .fallback(async move |request: Request| match is_grpc(&request) {
            true => grpc_is_elsewhere(grpc_address).into_http(),
            false => {
                ApiError::no_route(request.method().as_str(), request.uri().path()).into_response()
            }
        })
        .method_not_allowed_fallback(async |request: Request| {
            ApiError::no_method(request.method().as_str(), request.uri().path())
        })
        .layer(middleware::from_fn(anthropic::answer_in_own_form))
}

fn is_grpc(request: &Request) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Answer to a gRPC call, which a client would otherwise read as a broken message.
fn grpc_is_elsewhere(address: SocketAddr) -> Status {
    Status::invalid_argument(format!(
        "this is the gateway's HTTP port: gRPC is at port {}",
        address.port()
    ))
}
