//! gRPC services: parse requests, call operations, convert results.

mod convert;
mod input;
mod knowledge;
mod memory;
mod search;

use std::time::Duration;

use axum::Router;
use holdfast_grpc::{
    MeshAuthLayer, Scope, Signer, caller, deadline::DeadlineLayer, trace::TraceLayer,
};
use holdfast_kit::{Readiness, telemetry};
use holdfast_proto::memory::v1::{knowledge_server::KnowledgeServer, memory_server::MemoryServer};
use holdfast_types::TenantId;
use tonic::{Request, Status, service::Routes};
use tower_http::catch_panic::CatchPanicLayer;

use crate::{embedders::Embedders, find::Searcher, operations::MemoryService, space::Views};

/// Services that may call this one. Both need the view of all of a tenant's content: for people who
/// administer it, and for erasure.
const CALLERS: [&str; 2] = ["gateway", "agent-runner"];

/// Maximum message size in bytes: a document of 4 MiB and its metadata.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum duration of a call. Callers send a shorter one.
const MAX_CALL_TIME: Duration = Duration::from_secs(60);

/// State of the gRPC services.
#[derive(Debug, Clone)]
pub struct GrpcServices {
    pub keeper: MemoryService,
    pub finder: Searcher,
    pub embedders: Embedders,
    pub views: Views,
    /// Default half-life of dated notes in days.
    pub half_life_days: f64,
}

/// Returns the routes: gRPC for services of the mesh, health and metrics.
pub fn router(
    door: GrpcServices,
    signer: Signer,
    readiness: &Readiness,
    telemetry: &telemetry::Config,
) -> Router {
    let calls =
        Routes::new(MemoryServer::new(door.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES))
            .add_service(KnowledgeServer::new(door).max_decoding_message_size(MAX_MESSAGE_BYTES))
            .into_axum_router()
            .reset_fallback()
            .layer(CatchPanicLayer::custom(|_| {
                Status::internal("internal error").into_http::<axum::body::Body>()
            }))
            .layer(DeadlineLayer::new(MAX_CALL_TIME))
            .layer(MeshAuthLayer::new(signer, "memory-service", &CALLERS))
            .layer(TraceLayer);
    let health =
        Routes::new(holdfast_grpc::health_service(readiness)).into_axum_router().reset_fallback();
    holdfast_doors::health(readiness.clone(), telemetry).merge(health).merge(calls)
}

/// Checks that a service of the mesh makes the call. Returns the tenant and the message.
fn mesh_call<T>(request: Request<T>) -> Result<(TenantId, T), Status> {
    let (caller, message) = caller(request)?;
    caller.require(Scope::Service)?;
    Ok((caller.tenant, message))
}

fn to_status(error: crate::Error) -> Status {
    holdfast_grpc::status(&error)
}
