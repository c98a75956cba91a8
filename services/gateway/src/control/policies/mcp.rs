//! Tools of an agent's MCP servers, as probed by a runner on request.

use std::time::Duration;

use futures::future::join_all;
use holdfast_agent::policy::{Origin, Tool};
use holdfast_bus::McpProbe;
use holdfast_types::{AgentId, TenantId};

use super::{super::mcp_servers::runner_pool, Policies};
use crate::Error;

/// Timeout for a runner to probe a server; all servers are probed concurrently.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(super) struct McpTools {
    pub(super) tools: Vec<Tool>,
    /// Name and description of each tool.
    pub(super) summaries: Vec<(String, String)>,
    /// Servers that could not be probed, and why.
    pub(super) unreachable: Vec<String>,
}

/// Probes all of an agent's servers.
pub(super) async fn probe_servers(
    of: &Policies,
    tenant: TenantId,
    agent: AgentId,
) -> Result<McpTools, Error> {
    let mut servers = of.0.directory.mcp_servers().list(tenant).await?;
    servers.retain(|server| server.enabled && server.is_for(agent));
    let pool = runner_pool(&of.0, tenant).await?;
    let probes = servers.into_iter().map(|server| async {
        let probe = McpProbe { tenant, server: server.name };
        let probed = of.0.bus.probe_mcp(&pool, &probe, PROBE_TIMEOUT).await;
        (probe.server, probed)
    });
    let mut brought = McpTools::default();
    for (server, probed) in join_all(probes).await {
        let probed = match probed {
            Ok(probed) => probed,
            Err(_) => {
                brought.unreachable.push(format!("{server}: no runner looked at it in time"));
                continue;
            }
        };
        brought.unreachable.extend(probed.error.map(|why| format!("{server}: {why}")));
        for tool in probed.tools {
            brought.summaries.push((tool.name.clone(), tool.description));
            brought.tools.push(Tool { name: tool.name, origin: Origin::Mcp(server.clone()) });
        }
    }
    Ok(brought)
}
