//! The service `Connections`.

use holdfast_directory::{Connection, NewConnection};
use holdfast_proto::gateway::v1::{
    self as pb, DeleteConnectionRequest, DeleteConnectionResponse, ListConnectionsRequest,
    ListConnectionsResponse, PutConnectionRequest, PutConnectionResponse,
    connections_server::Connections as Service,
};
use holdfast_types::{ConnectionKind, ConnectionScope, ConnectionSettings};
use serde_json::Value;
use tonic::{Request, Response, Status};

use super::{AgentNames, State, actor, invalid, non_empty, required, timestamp};
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.Connections`.
#[derive(Debug)]
pub struct Connections(pub State);

#[tonic::async_trait]
impl Service for Connections {
    async fn list_connections(
        &self,
        request: Request<ListConnectionsRequest>,
    ) -> Result<Response<ListConnectionsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let found =
            self.0.directory.connections().list(caller.tenant).await.map_err(Error::from)?;

        let agents = self.0.agent_names(caller.tenant).await?;
        let connections = found.into_iter().map(|found| connection_of(found, &agents)).collect();
        Ok(Response::new(ListConnectionsResponse { connections }))
    }

    async fn put_connection(
        &self,
        request: Request<PutConnectionRequest>,
    ) -> Result<Response<PutConnectionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let new = new_connection(required("connection", request.connection)?, request.secret)?;

        let put = self.0.directory.connections().put(caller.tenant, actor(&caller), new).await;

        let put = put.map_err(Error::from)?;
        let agents = self.0.agent_names(caller.tenant).await?;
        let connection = Some(connection_of(put, &agents));
        Ok(Response::new(PutConnectionResponse { connection }))
    }

    async fn delete_connection(
        &self,
        request: Request<DeleteConnectionRequest>,
    ) -> Result<Response<DeleteConnectionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);

        let by = actor(&caller);
        let deleted = self.0.directory.connections().delete(caller.tenant, by, &request.name).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteConnectionResponse {}))
    }
}

fn new_connection(given: pb::Connection, secret: String) -> Result<NewConnection, Error> {
    let told = |error: holdfast_types::InvalidConnection| invalid(error.to_string());
    let kind: ConnectionKind = given.kind.parse().map_err(told)?;
    let settings: Value = match given.settings.as_str() {
        "" => Value::Null,
        text => serde_json::from_str(text)
            .map_err(|error| invalid(format!("`settings` is no JSON: {error}")))?,
    };
    Ok(NewConnection {
        name: given.name,
        to: ConnectionSettings::from_settings(kind, settings).map_err(told)?,
        agent: non_empty(given.agent),
        used_by: given.used_by.parse::<ConnectionScope>().map_err(told)?,
        secret: non_empty(secret).map(Into::into),
    })
}

fn connection_of(connection: Connection, agents: &AgentNames) -> pb::Connection {
    pb::Connection {
        kind: connection.to.kind().as_str().to_owned(),
        settings: connection.to.settings().to_string(),
        agent: connection.agent.map(|agent| agents.of(agent)).unwrap_or_default(),
        used_by: connection.used_by.to_string(),
        name: connection.name,
        has_secret: connection.has_secret,
        updated_at: Some(timestamp(connection.updated_at)),
    }
}
