//! The service `Ingest`: messages that bridges received. For services of the mesh only.

use holdfast_proto::gateway::v1::{
    AcceptRequest, AcceptResponse, ingest_server::Ingest as Service,
};
use tonic::{Request, Response, Status};

use crate::{auth::Authenticator, ingest::Ingest};

/// Implements `holdfast.gateway.v1.Ingest`.
#[derive(Debug)]
pub struct ChannelIngest {
    ingest: Ingest,
    authenticator: Authenticator,
}

impl ChannelIngest {
    pub const fn new(ingest: Ingest, authenticator: Authenticator) -> Self {
        Self { ingest, authenticator }
    }
}

#[tonic::async_trait]
impl Service for ChannelIngest {
    async fn accept(
        &self,
        request: Request<AcceptRequest>,
    ) -> Result<Response<AcceptResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let tenant = self.authenticator.count_message(caller.tenant).await?;
        let (taken, agent) = self.ingest.accept_channel_message(&tenant, request).await?;
        self.ingest.notify_runners(&taken);

        let accepted = taken.accepted;
        Ok(Response::new(AcceptResponse {
            message_id: accepted.message.to_string(),
            session_id: accepted.session.to_string(),
            seq: accepted.seq,
            duplicate: accepted.duplicate,
            agent: agent.to_string(),
        }))
    }
}
