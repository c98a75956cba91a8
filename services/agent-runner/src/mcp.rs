//! Others' tools: the MCP servers that a tenant has set up, as its agents use them.
//!
//! ```text
//!  step ─ toolbox ─▶ what is known ─┬─ nothing is set up ─▶ the tools of every agent
//!            │                      └─ joined by what each server was seen to offer
//!            └─ asked for (tool_search, tool_describe, mcp_…)? look first ─▶ link ─▶ server
//! ```
//!
//! | file | what |
//! |---|---|
//! | `link.rs` | one agent's way to one server: connecting, listing, calling |
//! | `process.rs` | a server that is a process: in the sandbox, and how many |
//! | `tool.rs` | a server's tool, as an agent has it |
//! | `config.rs` | the table `[runner.mcp]` |
//!
//! Nobody is connected to before a model asks for what its agent was not shown, or calls what a
//! server brought. What was seen is believed for a while, or until the server says that it has
//! changed; a server that does not answer keeps what it was last seen to offer, and whoever calls
//! it is told.
//!
//! **What can go wrong.** A server is a stranger, and may be slow: each is asked beside the others,
//! and none for longer than its time. Each agent has connections of its own, so that no two agents
//! meet in what a server keeps of a connection.

mod config;
mod link;
mod process;
mod tool;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::future::join_all;
use holdfast_bus::{McpProbe, McpProbed, McpProbedTool};
use holdfast_directory::{Directory, OpenMcpServer};
use holdfast_mcp::Tool;
use holdfast_tools::{Away, Brought, Dynamic, Guard};
use holdfast_types::{AgentId, Fault as _, TenantId};
use tokio_util::sync::CancellationToken;
use tracing::debug;

pub use self::config::Mcp as Config;
use self::{
    link::{Link, Stamp, Ways},
    process::Walls,
    tool::McpTool,
};
use crate::{
    error::Error,
    worker::{Toolbox, Worker},
};

/// For how long what a tenant has set up is believed to be what it was.
const KEPT: Duration = Duration::from_secs(5);

/// The most tenants whose servers are kept.
const MOST_KEPT: usize = 10_000;

/// The most agents whose tools are kept together.
const MOST_TOOLBOXES: usize = 1_000;

/// For how long what a server offered is remembered after it was last asked for.
const REMEMBERED: Duration = Duration::from_hours(1);

/// How long a probe may take in all.
const PROBE: Duration = Duration::from_secs(25);

/// Whose way to which server.
type Which = (TenantId, AgentId, String);

type Servers = Arc<Vec<OpenMcpServer>>;

/// The tools of an agent, and what they were put together from.
type Joined = (Vec<Stamp>, Arc<Toolbox>);

/// The MCP servers of all tenants, as they are used here.
pub(crate) struct Mcp {
    directory: Directory,
    ways: Arc<Ways>,
    servers: Mutex<HashMap<TenantId, (Instant, Servers)>>,
    links: Mutex<HashMap<Which, Arc<Link>>>,
    toolboxes: Mutex<HashMap<(TenantId, AgentId), Joined>>,
}

/// Whether what a server offers is to be found out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// What is known will do.
    No,
    /// Someone asks for it.
    First,
}

impl Mcp {
    /// Over what the directory knows.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub(crate) fn new(
        directory: Directory,
        config: &Config,
        sandbox: holdfast_sandbox::Config,
    ) -> anyhow::Result<Self> {
        let guard = Guard::of_system(config.allow.clone())?;
        let ways = Ways::new(config.clone(), guard, Walls::new(sandbox));
        Ok(Self {
            directory,
            ways: Arc::new(ways),
            servers: Mutex::default(),
            links: Mutex::default(),
            toolboxes: Mutex::default(),
        })
    }

    /// The tools of an agent: those that every agent has, and what its servers bring.
    ///
    /// # Errors
    ///
    /// If nobody can say which servers it has.
    pub(crate) async fn toolbox(
        &self,
        own: &Arc<Toolbox>,
        tenant: TenantId,
        agent: AgentId,
        look: Look,
    ) -> Result<Arc<Toolbox>, Error> {
        let servers = self.servers(tenant).await?;
        let links: Vec<Arc<Link>> = servers
            .iter()
            .filter(|open| open.server.is_for(agent))
            .map(|open| self.link((tenant, agent, open.server.name.clone()), open))
            .collect();
        if links.is_empty() {
            return Ok(Arc::clone(own));
        }
        if look == Look::First {
            join_all(links.iter().map(|link| link.look())).await;
        }
        let stamps: Vec<Stamp> = links.iter().map(|link| link.stamp()).collect();
        let which = (tenant, agent);
        if let Some((of, toolbox)) = lock(&self.toolboxes).get(&which)
            && *of == stamps
        {
            return Ok(Arc::clone(toolbox));
        }
        let (brought, origins) = brought(&links);
        let toolbox = Arc::new(own.joined_by(brought, &origins).map_err(Error::policy)?);
        let mut toolboxes = lock(&self.toolboxes);
        if toolboxes.len() >= MOST_TOOLBOXES {
            toolboxes.clear();
        }
        toolboxes.insert(which, (stamps, Arc::clone(&toolbox)));
        Ok(toolbox)
    }

    /// What a tenant has set up, as it is now or was a moment ago.
    async fn servers(&self, tenant: TenantId) -> Result<Servers, Error> {
        if !self.ways.config.enabled {
            return Ok(Servers::default());
        }
        let now = Instant::now();
        let kept = lock(&self.servers).get(&tenant).cloned();
        let stale = match kept {
            Some((at, servers)) if now.duration_since(at) < KEPT => return Ok(servers),
            kept => kept.map(|(_, servers)| servers),
        };
        let found = self.directory.open_mcp_servers(tenant).await;
        let servers = match (found, stale) {
            (Ok(servers), _) => Arc::new(servers),
            // What was set up a while ago will do while nobody can say what is now.
            (Err(error), Some(servers)) if error.kind().is_transient() => return Ok(servers),
            (Err(error), _) => return Err(Error::directory(error)),
        };
        let mut kept = lock(&self.servers);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(tenant, (now, Arc::clone(&servers)));
        Ok(servers)
    }

    /// The way to a server. One that was changed meanwhile is another.
    fn link(&self, which: Which, open: &OpenMcpServer) -> Arc<Link> {
        let mut links = lock(&self.links);
        match links.get(&which) {
            Some(link) if link.version() == open.server.version => Arc::clone(link),
            Some(_) | None => {
                let link = Arc::new(Link::new(Arc::clone(&self.ways), which.0, open.clone()));
                links.insert(which, Arc::clone(&link));
                link
            }
        }
    }

    /// Looks at a server as an agent would, on a connection for this once.
    pub(crate) async fn probe(&self, tenant: TenantId, server: &str) -> McpProbed {
        let failed = |why: String| McpProbed { error: Some(why), ..McpProbed::default() };
        // As it is now: it was changed a moment ago, most likely.
        lock(&self.servers).remove(&tenant);
        let servers = match self.servers(tenant).await {
            Ok(servers) => servers,
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a probe found no servers");
                return failed("what is set up cannot be read now: try again".to_owned());
            }
        };
        let Some(open) = servers.iter().find(|open| open.server.name == server) else {
            let why = match self.ways.config.enabled {
                true => "it is not enabled, or was deleted",
                false => "`runner.mcp.enabled` is off: no server is used on this platform",
            };
            return failed(why.to_owned());
        };
        let link = Link::new(Arc::clone(&self.ways), tenant, open.clone());
        let looked = tokio::time::timeout(PROBE, link.tools()).await;
        link.end().await;
        match looked {
            Ok(Ok(tools)) => McpProbed { tools: probed(server, &tools), error: None },
            Ok(Err(trouble)) => failed(trouble.in_full()),
            Err(_) => failed(format!("it did not answer within {} s", PROBE.as_secs())),
        }
    }

    /// Ends connections that nobody used for a while, and forgets what nobody asks for.
    pub(crate) async fn tidy(&self) {
        let links: Vec<Arc<Link>> = {
            let mut links = lock(&self.links);
            links.retain(|_, link| link.is_busy() || link.idle() < REMEMBERED);
            links.values().cloned().collect()
        };
        let idle = self.ways.config.idle;
        let over = links.iter().filter(|link| !link.is_busy() && link.idle() >= idle);
        join_all(over.map(|link| link.end())).await;
    }

    /// Ends all connections, and all processes.
    pub(crate) async fn end(&self) {
        let links: Vec<Arc<Link>> = lock(&self.links).drain().map(|(_, link)| link).collect();
        join_all(links.iter().map(|link| link.end())).await;
    }
}

impl fmt::Debug for Mcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mcp").field("links", &lock(&self.links).len()).finish_non_exhaustive()
    }
}

/// What servers were seen to bring, and whose each tool is.
fn brought(links: &[Arc<Link>]) -> (Brought, Vec<(String, String)>) {
    let seen: Vec<(&Arc<Link>, Arc<Vec<Tool>>)> =
        links.iter().map(|link| (link, link.seen())).collect();
    let all = seen
        .iter()
        .flat_map(|(link, tools)| tools.iter().map(|tool| (link.name(), tool.name.as_str())));
    let names = holdfast_mcp::names(all);
    let (mut tools, mut origins) = (Vec::<Arc<dyn Dynamic>>::new(), Vec::new());
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
        let why = link.trouble()?;
        let prefix = format!("mcp_{}_", link.name());
        Some(Away { prefix, why: format!("the MCP server `{}`: {why}", link.name()) })
    });
    let unseen = links.iter().any(|link| link.is_unseen());
    (Brought { tools, away: away.collect(), unseen }, origins)
}

fn probed(server: &str, tools: &[Tool]) -> Vec<McpProbedTool> {
    let names = holdfast_mcp::names(tools.iter().map(|tool| (server, tool.name.as_str())));
    let one = |(name, (_, own)): (String, (&str, &str))| {
        let tool = tools.iter().find(|tool| tool.name == own)?;
        let description = holdfast_tools::clean(&tool.description);
        Some(McpProbedTool { name, description, reads: tool.reads })
    };
    names.into_iter().filter_map(one).collect()
}

/// Whether a call of this name has to do with what servers bring.
pub(crate) fn is_asked_for_by(tool: &str) -> bool {
    matches!(tool, "tool_search" | "tool_describe") || tool.starts_with("mcp_")
}

/// Whether a list of tools names some that servers bring.
pub(crate) fn is_named_in(tools: &[String]) -> bool {
    tools.iter().any(|entry| entry.starts_with("mcp_") || entry.starts_with("group:mcp"))
}

/// Answers those who want to know what a server offers, until `stop`.
pub(crate) async fn answer(worker: Arc<Worker>, stop: CancellationToken) {
    let probes = tokio::select! {
        probes = worker.bus.mcp_probes() => probes,
        () = stop.cancelled() => return,
    };
    let mut probes = match probes {
        Ok(probes) => probes,
        Err(error) => {
            debug!(%error, "nobody can ask this runner about mcp servers");
            return;
        }
    };
    loop {
        let asked = tokio::select! {
            asked = probes.next::<McpProbe>() => asked,
            () = stop.cancelled() => return,
        };
        let Some((probe, asker)) = asked else { return };
        let worker = Arc::clone(&worker);
        tokio::spawn(async move {
            let probed = worker.mcp.probe(probe.tenant, &probe.server).await;
            asker.answer(&probed).await;
        });
    }
}

/// Keeps connections no longer than they are used, until `stop`.
pub(crate) async fn tidy(worker: Arc<Worker>, stop: CancellationToken) {
    let every =
        (worker.config.mcp.idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(30));
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => worker.mcp.tidy().await,
            () = stop.cancelled() => return,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
