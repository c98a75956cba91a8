//! The gRPC server and its services.

mod channel_ingest;
mod messages;

use std::time::Duration;

use axum::{Router, middleware};
use holdfast_grpc::deadline::DeadlineLayer;
use holdfast_kit::Readiness;
use holdfast_proto::gateway::v1::{ingest_server::IngestServer, messages_server::MessagesServer};
use tonic::{Status, service::Routes};
use tower_http::catch_panic::CatchPanicLayer;

pub use channel_ingest::ChannelIngest;
pub use messages::Messages;

use crate::{auth::Authenticator, edge};

/// Minimum size limit of a message, in bytes: bridges and callers send files in it.
const MIN_MESSAGE_LIMIT_BYTES: usize = 24 * 1024 * 1024;

/// Maximum time until a call's response begins. Callers send a shorter one.
const MAX_CALL_TIME: Duration = Duration::from_secs(3600);

/// The service for messages of callers, with its limit on a request's size.
pub fn routes(messages: Messages, body_limit: usize) -> Routes {
    Routes::new(
        MessagesServer::new(messages)
            .max_decoding_message_size(body_limit.max(MIN_MESSAGE_LIMIT_BYTES)),
    )
}

/// Adds the service for messages of channels, which only the mesh calls.
pub fn add_ingest(routes: Routes, arrivals: ChannelIngest, body_limit: usize) -> Routes {
    routes.add_service(
        IngestServer::new(arrivals)
            .max_decoding_message_size(body_limit.max(MIN_MESSAGE_LIMIT_BYTES)),
    )
}

/// Puts authentication in front of the services; health stays open, and so does reflection if it is
/// on.
///
/// # Errors
///
/// If the descriptors of the protos cannot be decoded.
pub fn router(
    services: Routes,
    doorman: Authenticator,
    readiness: &Readiness,
    has_reflection: bool,
) -> anyhow::Result<Router> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(holdfast_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut open = Routes::new(holdfast_grpc::health_service(readiness));
    if has_reflection {
        open =
            open.add_service(reflection().build_v1()?).add_service(reflection().build_v1alpha()?);
    }
    let open = open.into_axum_router().reset_fallback();
    Ok(admitted(services, doorman).merge(open))
}

/// Puts authentication in front of the services.
pub fn admitted(services: Routes, doorman: Authenticator) -> Router {
    services
        .into_axum_router()
        .layer(CatchPanicLayer::custom(|_| {
            Status::internal("internal error").into_http::<axum::body::Body>()
        }))
        .layer(DeadlineLayer::new(MAX_CALL_TIME))
        .layer(middleware::from_fn_with_state(doorman, edge::grpc))
}
