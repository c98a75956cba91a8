//! The gRPC server and its services.

mod channel_ingest;
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

pub use channel_ingest::ChannelIngest;
pub use messages::Messages;

use crate::{auth::Authenticator, edge};

/// Interval of keep-alive pings on an idle connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// Timeout of a ping's answer. After it the connection is closed and its streams are freed.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum size limit of a message, in bytes: bridges and callers send files in it.
const MIN_MESSAGE_LIMIT_BYTES: usize = 24 * 1024 * 1024;

/// Services for messages, each with its limit on a request's size.
pub fn routes(messages: Messages, arrivals: ChannelIngest, body_limit: usize) -> Routes {
    Routes::new(
        MessagesServer::new(messages)
            .max_decoding_message_size(body_limit.max(MIN_MESSAGE_LIMIT_BYTES)),
    )
    .add_service(
        IngestServer::new(arrivals)
            .max_decoding_message_size(body_limit.max(MIN_MESSAGE_LIMIT_BYTES)),
    )
}

/// Puts authentication in front of the services; health and reflection stay open.
///
/// # Errors
///
/// If the descriptors of the protos cannot be decoded.
pub fn router(
    services: Routes,
    doorman: Authenticator,
    readiness: &Readiness,
) -> anyhow::Result<Router> {
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
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .add_routes(Routes::from(router).prepare())
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
        .await?;
    Ok(())
}
