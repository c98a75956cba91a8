//! MCP servers of tenants, as tools of their agents.
//!
//! ```text
//!  step ─ toolbox ─▶ known tools ─┬─ no servers ─▶ the tools of every agent
//!            │                    └─ plus the tools that each server listed last
//!            └─ asked for (tool_search, tool_describe, mcp_…)? refresh first ─▶ link ─▶ server
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `link.rs` | one agent's link to one server: connecting, listing, calling |
//! | `process.rs` | servers that run as processes in the sandbox, and their number |
//! | `kept_folder.rs` | the files that are kept for such a server |
//! | `tool.rs` | a server's tool |
//! | `config.rs` | the table `[runner.mcp]` |
//!
//! A server is connected only when a model asks for tools that its agent was not shown, or calls a
//! server's tool. A list of tools is used for a while, or until the server reports a change. A
//! server that does not answer keeps its last list, and callers are told.
//!
//! **What can go wrong.** Servers are untrusted and may be slow: all are queried in parallel, each
//! with a time limit. Each agent has its own connections, so that agents share no state that a
//! server keeps for a connection.

mod kept_folder;
mod link;
mod process;
mod slots;
mod tool;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::future::join_all;
use holdfast_bus::{McpOmittedTool, McpProbeResult, McpProbeTool};
use holdfast_directory::{Directory, OpenMcpServer};
use holdfast_egress::Guard;
use holdfast_mcp::{OmitReason, Tool, ToolList};
use holdfast_tools::{DynamicTool, DynamicTools, UnavailableSource};
use holdfast_types::{AgentId, Fault as _, SessionId, TenantId};
use holdfast_workspace::Workspaces;
use tracing::debug;

use self::{
    kept_folder::KeptFolders,
    link::{Link, LinkShared, ToolListVersion},
    process::ServerSandbox,
    tool::McpTool,
};
use crate::{config::RunnerConfig, error::Error, tools::tool_set::ToolSet};

/// Time for which a tenant's list of servers is cached.
const SERVERS_TTL: Duration = Duration::from_secs(5);

/// Tenants whose lists are cached. When full, all are cleared.
const MAX_CACHED_TENANTS: usize = 10_000;

/// Agents whose toolboxes are cached. When full, all are cleared.
const MAX_CACHED_TOOLBOXES: usize = 1_000;

/// Time for which an unused server's list of tools is kept.
const UNUSED_LINK_TTL: Duration = Duration::from_hours(1);

/// Time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(25);

/// Characters that a probe shows of the name of a tool that is left out.
const MAX_OMITTED_NAME_CHARS: usize = 128;

/// Tenant, agent and server name.
type LinkKey = (TenantId, AgentId, String);

type Servers = Arc<Vec<OpenMcpServer>>;

/// Toolbox of an agent, and the versions of the tool lists it was made from.
type CachedToolbox = (Vec<ToolListVersion>, Arc<ToolSet>);

/// MCP servers of all tenants.
pub(crate) struct Mcp {
    directory: Directory,
    shared: Arc<LinkShared>,
    servers: Mutex<HashMap<TenantId, (Instant, Servers)>>,
    links: Mutex<HashMap<LinkKey, Arc<Link>>>,
    toolboxes: Mutex<HashMap<(TenantId, AgentId), CachedToolbox>>,
}

/// Whether tool lists are refreshed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolRefresh {
    UseCached,
    Refresh,
}

impl Mcp {
    pub(crate) fn new(
        directory: Directory,
        workspaces: Workspaces,
        config: &RunnerConfig,
    ) -> anyhow::Result<Self> {
        let guard = Guard::with_system_resolver(config.mcp.allow.clone())?;
        let scratch = &config.scratch;
        let kept = KeptFolders::new(workspaces, scratch.dir.clone(), scratch.cache);
        let sandbox = ServerSandbox::new(config.local_sandbox(), kept, guard.clone());
        let ways = LinkShared::new(config.mcp.clone(), guard, sandbox);
        Ok(Self {
            directory,
            shared: Arc::new(ways),
            servers: Mutex::default(),
            links: Mutex::default(),
            toolboxes: Mutex::default(),
        })
    }

    /// Toolbox of an agent: the tools of every agent, and those of its servers.
    pub(crate) async fn toolbox(
        &self,
        own: &Arc<ToolSet>,
        tenant: TenantId,
        agent: AgentId,
        look: ToolRefresh,
    ) -> Result<Arc<ToolSet>, Error> {
        let servers = self.servers(tenant).await?;
        let links: Vec<Arc<Link>> = self.links(&servers, tenant, agent).collect();
        if links.is_empty() {
            return Ok(Arc::clone(own));
        }
        if look == ToolRefresh::Refresh {
            join_all(links.iter().map(|link| link.refresh_tools())).await;
        }
        let stamps: Vec<ToolListVersion> = links.iter().map(|link| link.version_stamp()).collect();
        let which = (tenant, agent);
        if let Some((of, toolbox)) = lock(&self.toolboxes).get(&which)
            && *of == stamps
        {
            return Ok(Arc::clone(toolbox));
        }
        let (brought, origins) = server_tools(&links);
        let toolbox = Arc::new(own.with_server_tools(brought, &origins).map_err(Error::policy)?);
        let mut toolboxes = lock(&self.toolboxes);
        if toolboxes.len() >= MAX_CACHED_TOOLBOXES {
            toolboxes.clear();
        }
        toolboxes.insert(which, (stamps, Arc::clone(&toolbox)));
        Ok(toolbox)
    }

    /// Servers of a tenant, cached for a moment.
    async fn servers(&self, tenant: TenantId) -> Result<Servers, Error> {
        if !self.shared.config.enabled {
            return Ok(Servers::default());
        }
        let now = Instant::now();
        let kept = lock(&self.servers).get(&tenant).cloned();
        let stale = match kept {
            Some((at, servers)) if now.duration_since(at) < SERVERS_TTL => return Ok(servers),
            kept => kept.map(|(_, servers)| servers),
        };
        let found = self.directory.mcp_servers().open(tenant).await;
        let servers = match (found, stale) {
            (Ok(servers), _) => Arc::new(servers),
            // The old list is used while the directory is unavailable.
            (Err(error), Some(servers)) if error.kind().is_transient() => return Ok(servers),
            (Err(error), _) => return Err(Error::directory(error)),
        };
        let mut kept = lock(&self.servers);
        if kept.len() >= MAX_CACHED_TENANTS {
            kept.clear();
        }
        kept.insert(tenant, (now, Arc::clone(&servers)));
        Ok(servers)
    }

    /// Link to a server. A server that was changed gets a new link.
    fn link(&self, which: LinkKey, open: &OpenMcpServer) -> Arc<Link> {
        let mut links = lock(&self.links);
        match links.get(&which) {
            Some(link) if link.version() == open.server.version => Arc::clone(link),
            Some(_) | None => {
                let link = Arc::new(Link::new(
                    Arc::clone(&self.shared),
                    which.0,
                    Some(which.1),
                    open.clone(),
                ));
                links.insert(which, Arc::clone(&link));
                link
            }
        }
    }

    /// Servers of an agent that are processes and do not run here.
    pub(crate) async fn absent_processes(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Vec<String>, Error> {
        let servers = self.servers(tenant).await?;
        let links = self.links(&servers, tenant, agent);
        let absent = links.filter(|link| link.is_process() && !link.has_process());
        Ok(absent.map(|link| link.name().to_owned()).collect())
    }

    fn links<'a>(
        &'a self,
        servers: &'a [OpenMcpServer],
        tenant: TenantId,
        agent: AgentId,
    ) -> impl Iterator<Item = Arc<Link>> + 'a {
        servers
            .iter()
            .filter(move |open| open.server.is_for(agent))
            .map(move |open| self.link((tenant, agent, open.server.name.clone()), open))
    }

    /// Servers that run here as processes and that the session has called.
    pub(crate) fn processes_of(&self, tenant: TenantId, session: SessionId) -> Vec<String> {
        let links = lock(&self.links);
        let of_tenant = links.iter().filter(|((owner, ..), _)| *owner == tenant);
        let held = of_tenant.filter(|(_, link)| link.is_held_for(session));
        held.map(|(_, link)| link.name().to_owned()).collect()
    }

    /// Ends a server's process if no session but this one has called it.
    pub(crate) async fn leave_process(&self, tenant: TenantId, session: SessionId, server: &str) {
        let links: Vec<Arc<Link>> = {
            let links = lock(&self.links);
            let named = links.iter().filter(|((of, _, name), _)| *of == tenant && name == server);
            named.map(|(_, link)| Arc::clone(link)).collect()
        };
        for link in links {
            if link.is_held_for(session) && link.leave(session) {
                link.close().await;
            }
        }
    }

    /// Connects to a server once, as an agent would, and lists its tools.
    pub(crate) async fn probe(&self, tenant: TenantId, server: &str) -> McpProbeResult {
        let failed = |why: String| McpProbeResult { error: Some(why), ..McpProbeResult::default() };
        // Read again: it was probably changed a moment ago.
        lock(&self.servers).remove(&tenant);
        let servers = match self.servers(tenant).await {
            Ok(servers) => servers,
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a probe found no servers");
                return failed("what is set up cannot be read now: try again".to_owned());
            }
        };
        let Some(open) = servers.iter().find(|open| open.server.name == server) else {
            let why = match self.shared.config.enabled {
                true => "it is not enabled, or was deleted",
                false => "`runner.mcp.enabled` is off: no server is used on this platform",
            };
            return failed(why.to_owned());
        };
        let link = Link::new(Arc::clone(&self.shared), tenant, None, open.clone());
        let looked = tokio::time::timeout(PROBE_TIMEOUT, link.list_tools_now()).await;
        link.close().await;
        match looked {
            Ok(Ok(list)) => probe_result(server, &list),
            Ok(Err(trouble)) => failed(trouble.with_output()),
            Err(_) => failed(format!("it did not answer within {} s", PROBE_TIMEOUT.as_secs())),
        }
    }

    /// Closes connections that are idle, and drops links that nobody uses.
    pub(crate) async fn close_idle(&self) {
        let links: Vec<Arc<Link>> = {
            let mut links = lock(&self.links);
            links.retain(|_, link| link.is_busy() || link.idle() < UNUSED_LINK_TTL);
            links.values().cloned().collect()
        };
        let idle = self.shared.config.idle;
        let over = links.iter().filter(|link| !link.is_busy() && link.idle() >= idle);
        join_all(over.map(|link| link.close())).await;
    }

    /// Closes all connections and ends all processes.
    pub(crate) async fn close_all(&self) {
        let links: Vec<Arc<Link>> = lock(&self.links).drain().map(|(_, link)| link).collect();
        join_all(links.iter().map(|link| link.close())).await;
    }
}

impl fmt::Debug for Mcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mcp").field("links", &lock(&self.links).len()).finish_non_exhaustive()
    }
}

/// Tools of the servers, and the server of each tool.
fn server_tools(links: &[Arc<Link>]) -> (DynamicTools, Vec<(String, String)>) {
    let seen: Vec<(&Arc<Link>, Arc<Vec<Tool>>)> =
        links.iter().map(|link| (link, link.tools_listed())).collect();
    let all = seen
        .iter()
        .flat_map(|(link, tools)| tools.iter().map(|tool| (link.name(), tool.name.as_str())));
    let names = holdfast_mcp::assign_tool_names(all);
    let (mut tools, mut origins) = (Vec::<Arc<dyn DynamicTool>>::new(), Vec::new());
    for (name, (server, tool)) in names {
        let of = seen.iter().find(|(link, _)| link.name() == server);
        let Some((link, tool)) = of.and_then(|(link, tools)| {
            Some((*link, tools.iter().find(|known| known.name == tool)?))
        }) else {
            continue;
        };
        origins.push((name.clone(), server.to_owned()));
        tools.push(Arc::new(McpTool::new(name, Arc::clone(link), tool.clone())));
    }
    let away = links.iter().filter_map(|link| {
        let why = link.failure_reason()?;
        let prefix = format!("mcp_{}_", link.name());
        Some(UnavailableSource {
            prefix,
            reason: format!("the MCP server `{}`: {why}", link.name()),
        })
    });
    let unseen = links.iter().any(|link| link.is_never_listed());
    (DynamicTools { tools, unavailable: away.collect(), is_incomplete: unseen }, origins)
}

fn probe_result(server: &str, list: &ToolList) -> McpProbeResult {
    let name = |name: &str| -> String {
        holdfast_tools::visible(name).chars().take(MAX_OMITTED_NAME_CHARS).collect()
    };
    let omitted = list.omitted.iter();
    let mut omitted: Vec<McpOmittedTool> = omitted
        .map(|tool| McpOmittedTool { name: name(&tool.name), reason: tool.reason.to_string() })
        .collect();
    if list.has_more {
        let reason = OmitReason::TooManyTools.to_string();
        omitted.push(McpOmittedTool { name: String::new(), reason });
    }
    McpProbeResult { tools: probed_tools(server, &list.tools), omitted, error: None }
}

fn probed_tools(server: &str, tools: &[Tool]) -> Vec<McpProbeTool> {
    let names =
        holdfast_mcp::assign_tool_names(tools.iter().map(|tool| (server, tool.name.as_str())));
    let one = |(name, (_, own)): (String, (&str, &str))| {
        let tool = tools.iter().find(|tool| tool.name == own)?;
        let description = holdfast_tools::clean(&tool.description);
        Some(McpProbeTool { name, description, reads: tool.reads })
    };
    names.into_iter().filter_map(one).collect()
}

/// Whether a call of this name may need tools of servers.
pub(crate) fn may_need_servers(tool: &str) -> bool {
    matches!(tool, "tool_search" | "tool_describe") || tool.starts_with("mcp_")
}

/// Whether a list of tools names tools of servers.
pub(crate) fn names_server_tools(tools: &[String]) -> bool {
    tools.iter().any(|entry| entry.starts_with("mcp_") || entry.starts_with("group:mcp"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
