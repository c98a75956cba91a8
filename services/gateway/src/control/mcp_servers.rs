//! The service `McpServers`: external tools for agents.

use std::time::Duration;

use holdfast_bus::McpProbe;
use holdfast_directory::{McpServer, McpTransport, NewMcpServer};
use holdfast_proto::gateway::v1::{
    self as pb, DeleteMcpServerRequest, DeleteMcpServerResponse, ListMcpServersRequest,
    ListMcpServersResponse, ProbeMcpServerRequest, ProbeMcpServerResponse, PutMcpServerRequest,
    PutMcpServerResponse, mcp_servers_server::McpServers as Service,
};
use holdfast_types::TenantId;
use tonic::{Request, Response, Status};

use super::{State, actor, required};
use crate::{Error, audit};

/// Timeout for a runner to probe a server.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the name of the pool whose runners work for a tenant; empty for the default pool.
pub(super) async fn runner_pool(state: &State, tenant: TenantId) -> Result<String, Error> {
    let pool = state.sessions.runner_pools().of_tenant(tenant).await?.pool;
    Ok(pool.map(|pool| pool.to_string()).unwrap_or_default())
}

/// Implements `holdfast.gateway.v1.McpServers`.
#[derive(Debug)]
pub struct McpServers(pub State);

#[tonic::async_trait]
impl Service for McpServers {
    async fn list_mcp_servers(
        &self,
        request: Request<ListMcpServersRequest>,
    ) -> Result<Response<ListMcpServersResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let servers =
            self.0.directory.mcp_servers().list(caller.tenant).await.map_err(Error::from)?;

        let servers = servers.into_iter().map(server_of).collect();
        Ok(Response::new(ListMcpServersResponse { servers }))
    }

    async fn put_mcp_server(
        &self,
        request: Request<PutMcpServerRequest>,
    ) -> Result<Response<PutMcpServerResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let new = new_server(request)?;

        let put = self.0.directory.mcp_servers().put(caller.tenant, actor(&caller), new).await;

        let server = Some(server_of(put.map_err(Error::from)?));
        Ok(Response::new(PutMcpServerResponse { server }))
    }

    async fn delete_mcp_server(
        &self,
        request: Request<DeleteMcpServerRequest>,
    ) -> Result<Response<DeleteMcpServerResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);

        let by = actor(&caller);
        let deleted = self.0.directory.mcp_servers().delete(caller.tenant, by, &request.name).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteMcpServerResponse {}))
    }

    async fn probe_mcp_server(
        &self,
        request: Request<ProbeMcpServerRequest>,
    ) -> Result<Response<ProbeMcpServerResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let server = self.0.directory.mcp_servers().get(caller.tenant, &request.name).await;
        let server = server.map_err(Error::from)?.name;

        let probe = McpProbe { tenant: caller.tenant, server };
        let pool = runner_pool(&self.0, caller.tenant).await?;
        let probed =
            self.0.bus.probe_mcp(&pool, &probe, PROBE_TIMEOUT).await.map_err(Error::NoRunner)?;

        let tools = probed.tools.into_iter().map(|tool| pb::McpTool {
            name: tool.name,
            description: tool.description,
            reads: tool.reads,
        });
        let omitted = probed.omitted.into_iter();
        let omitted =
            omitted.map(|tool| pb::OmittedMcpTool { name: tool.name, reason: tool.reason });
        Ok(Response::new(ProbeMcpServerResponse {
            tools: tools.collect(),
            omitted: omitted.collect(),
            error: probed.error.unwrap_or_default(),
        }))
    }
}

fn new_server(request: PutMcpServerRequest) -> Result<NewMcpServer, Error> {
    let PutMcpServerRequest { server, secrets, keep_secrets } = request;
    let server = required("server", server)?;
    let transport = match server.transport.as_str() {
        "http" => McpTransport::Http { url: server.url },
        "stdio" => McpTransport::Stdio {
            command: server.command,
            args: server.args,
            network: server.network,
            keep: server.keep,
        },
        other => {
            return Err(Error::UnknownValue {
                field: "transport",
                given: other.chars().take(80).collect(),
                wanted: "http or stdio",
            });
        }
    };
    let secrets = secrets.into_iter().map(|(name, value)| (name, value.into()));
    Ok(NewMcpServer {
        name: server.name,
        transport,
        secrets: (!keep_secrets).then(|| secrets.collect()),
        agents: server.agents,
        enabled: server.enabled,
        harmless: server.harmless,
    })
}

fn server_of(server: McpServer) -> pb::McpServer {
    let agents = server.agents.unwrap_or_default();
    let shown = pb::McpServer {
        name: server.name,
        secret_names: server.secret_names,
        agents: agents.iter().map(ToString::to_string).collect(),
        enabled: server.enabled,
        harmless: server.harmless,
        ..pb::McpServer::default()
    };
    match server.transport {
        McpTransport::Http { url } => pb::McpServer { transport: "http".to_owned(), url, ..shown },
        McpTransport::Stdio { command, args, network, keep } => {
            pb::McpServer { transport: "stdio".to_owned(), command, args, network, keep, ..shown }
        }
    }
}
