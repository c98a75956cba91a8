//! The gRPC door: which services stand behind it, and how their server is set up.

mod arrivals;
mod messages;

use std::time::Duration;

use axum::{Router, middleware};
use holdfast_kit::Readiness;
use holdfast_proto::gateway::v1::{ingest_server::IngestServer, messages_server::MessagesServer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    service::Routes,
    transport::{Server, server::TcpIncoming},
};
use tower_http::catch_panic::CatchPanicLayer;

pub use arrivals::Arrivals;
pub use messages::Messages;

use crate::{auth::Doorman, edge};

/// How often a silent connection is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long it may take to say so. After that its streams, and what they cost, are let go.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest message, in bytes: bridges and callers hand over files with it.
const ARRIVAL: usize = 24 * 1024 * 1024;

/// The services of the door, each with its limit on a request's size.
pub fn routes(messages: Messages, arrivals: Arrivals, body_limit: usize) -> Routes {
    Routes::new(MessagesServer::new(messages).max_decoding_message_size(body_limit.max(ARRIVAL)))
        .add_service(IngestServer::new(arrivals).max_decoding_message_size(body_limit.max(ARRIVAL)))
}

/// Puts the doorman before the services, and what is open to everybody beside them.
///
/// # Errors
///
/// If the contracts' description cannot be served.
pub fn router(services: Routes, doorman: Doorman, readiness: &Readiness) -> anyhow::Result<Router> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(holdfast_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let open = Routes::new(holdfast_grpc::health_service(readiness))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .into_axum_router()
        .reset_fallback();
    let services = services
        .into_axum_router()
        .layer(CatchPanicLayer::custom(|_| {
            Status::internal("internal error").into_http::<axum::body::Body>()
        }))
        .layer(middleware::from_fn_with_state(doorman, edge::grpc));
    Ok(services.merge(open))
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
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .add_routes(Routes::from(router).prepare())
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
        .await?;
    Ok(())
}
