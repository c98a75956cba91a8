//! The service `Nodes`: creating and revoking nodes, and their connections.
//!
//! `nodes/link.rs` holds one connection: requests from the bus to the node, and its answers back.

mod convert;
mod link;

use std::{pin::Pin, time::Duration};

use futures::{Stream, future::join_all, stream};
use holdfast_directory::{NewNode, Node};
use holdfast_proto::gateway::v1::{
    self as pb, AttachRequest, AttachResponse, CreateNodeRequest, CreateNodeResponse,
    GetNodeRequest, GetNodeResponse, ListNodesRequest, ListNodesResponse, RevokeNodeRequest,
    RevokeNodeResponse,
    nodes_server::{Nodes as Service, NodesServer},
};
use holdfast_types::{ConnectionScope, NodeReply, NodeRequest, NodeRequestOutcome, TenantId};
use secrecy::ExposeSecret as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, service::Routes};

use crate::{
    Error, audit,
    control::{State, actor, invalid, timestamp},
};
use link::NodeLink;

/// Wait for the gateway that holds a node's connection to answer.
const NODE_QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of messages queued for a node.
const MAX_QUEUED_REQUESTS: usize = 64;

/// Implements `holdfast.gateway.v1.Nodes`.
#[derive(Debug)]
pub struct Nodes {
    state: State,
    stop: CancellationToken,
}

impl Nodes {
    /// Handlers without connections of nodes, for other APIs.
    pub fn new(state: State) -> Self {
        Self { state, stop: CancellationToken::new() }
    }
}

/// Adds the service to `routes`; its connections end when `stop` is cancelled.
pub fn add_service(
    routes: Routes,
    state: &State,
    stop: &CancellationToken,
    limit: usize,
) -> Routes {
    let nodes = Nodes { state: state.clone(), stop: stop.clone() };
    routes.add_service(NodesServer::new(nodes).max_decoding_message_size(limit))
}

type NodeRequestStream = Pin<Box<dyn Stream<Item = Result<AttachResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Service for Nodes {
    type AttachStream = NodeRequestStream;

    async fn list_nodes(
        &self,
        request: Request<ListNodesRequest>,
    ) -> Result<Response<ListNodesResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let nodes = self.state.directory.nodes().list(caller.tenant).await.map_err(Error::from)?;

        let shown = nodes.into_iter().map(|node| self.node_with_status(caller.tenant, node));
        Ok(Response::new(ListNodesResponse { nodes: join_all(shown).await }))
    }

    async fn get_node(
        &self,
        request: Request<GetNodeRequest>,
    ) -> Result<Response<GetNodeResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let node = self.state.directory.nodes().get(caller.tenant, &request.node).await;

        let node = self.node_with_status(caller.tenant, node.map_err(Error::from)?).await;
        Ok(Response::new(GetNodeResponse { node: Some(node) }))
    }

    async fn create_node(
        &self,
        request: Request<CreateNodeRequest>,
    ) -> Result<Response<CreateNodeResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let used_by = request
            .used_by
            .parse::<ConnectionScope>()
            .map_err(|wrong| invalid(wrong.to_string()))?;
        let new = NewNode { name: request.name, used_by };

        let made = self.state.directory.nodes().create(caller.tenant, actor(&caller), new).await;

        let (node, token) = made.map_err(Error::from)?;
        let node = Some(self.node_with_status(caller.tenant, node).await);
        let token = token.expose_secret().to_owned();
        Ok(Response::new(CreateNodeResponse { node, token }))
    }

    async fn revoke_node(
        &self,
        request: Request<RevokeNodeRequest>,
    ) -> Result<Response<RevokeNodeResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.node);
        let (tenant, by) = (caller.tenant, actor(&caller));

        let revoked = self.state.directory.nodes().revoke(tenant, by, &request.node).await;

        let node = revoked.map_err(Error::from)?;
        // If this is lost, the gateway that holds the connection notices the revocation at its next
        // check.
        drop(self.state.bus.ask_node(tenant, node, &NodeRequest::Look, NODE_QUERY_TIMEOUT).await);
        Ok(Response::new(RevokeNodeResponse {}))
    }

    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<NodeRequestStream>, Status> {
        // The token tells which node it is. The middleware checked only that it belongs to a node.
        let token = request.metadata().get("authorization").and_then(|text| text.to_str().ok());
        let token = token.and_then(|text| text.split_once(' ')).map_or("", |(_, token)| token);
        let token = token.trim().to_owned();
        let (_, said) = holdfast_grpc::caller(request)?;
        let known = self.state.directory.nodes().authenticate(&token).await.map_err(Error::from)?;

        let (asks, asked) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let link = NodeLink::new(self.state.clone(), known, asks);
        tokio::spawn(link.run(said, self.stop.clone()));

        let next = |mut asked: mpsc::Receiver<_>| async move {
            asked.recv().await.map(|ask| (ask, asked))
        };
        Ok(Response::new(Box::pin(stream::unfold(asked, next))))
    }
}

impl Nodes {
    /// Converts a node, and asks whether it is connected.
    async fn node_with_status(&self, tenant: TenantId, node: Node) -> pb::Node {
        let reached = match node.may_be_connected {
            true => {
                self.state
                    .bus
                    .ask_node(tenant, node.id, &NodeRequest::Here, NODE_QUERY_TIMEOUT)
                    .await
            }
            false => NodeRequestOutcome::NotConnected,
        };
        pb::Node {
            connected: matches!(reached, NodeRequestOutcome::Answered(NodeReply::Here { .. })),
            id: node.id.to_string(),
            name: node.name,
            used_by: node.used_by.to_string(),
            platform: node.report.platform,
            version: node.report.version,
            commands: node.report.commands,
            last_seen_at: node.last_seen_at.map(timestamp),
            created_at: Some(timestamp(node.created_at)),
            revoked_at: node.revoked_at.map(timestamp),
        }
    }
}
