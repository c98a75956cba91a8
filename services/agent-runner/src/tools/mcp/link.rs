//! One agent's link to one MCP server: connecting, listing, calling.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use holdfast_directory::{McpTransport, OpenMcpServer};
use holdfast_egress::Guard;
use holdfast_mcp::{Client, Content, Error, Tool, ToolList, ToolResult};
use holdfast_tools::clean;
use holdfast_types::{AgentId, SessionId, TenantId};
use serde_json::{Map, Value};
use tracing::info;
use uuid::Uuid;

use super::{
    lock,
    process::{ServerCommand, ServerProcess, ServerSandbox},
    slots::{TenantSlot, TenantSlots},
};
use crate::config::McpConfig;

/// Longer than any call may take: callers have their own, shorter limits.
const CALL_TIMEOUT: Duration = Duration::from_hours(2);

/// Settings and limits that all links share.
pub(super) struct LinkShared {
    pub(super) config: McpConfig,
    guard: Guard,
    sandbox: ServerSandbox,
    connections: Arc<TenantSlots>,
    process_slots: Arc<TenantSlots>,
    next_version: AtomicU64,
}

impl LinkShared {
    pub(super) fn new(config: McpConfig, guard: Guard, sandbox: ServerSandbox) -> Self {
        let connections = TenantSlots::new(
            "connections to servers are open",
            config.connections,
            config.connections_per_tenant,
        );
        let process_slots = TenantSlots::new(
            "servers run as processes",
            config.processes,
            config.processes_per_tenant,
        );
        Self { config, guard, sandbox, connections, process_slots, next_version: AtomicU64::new(1) }
    }
}

/// Reason why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerFailure {
    /// Text that models may read.
    pub(super) reason: String,
    /// Output of the server itself, only for those who configured it.
    pub(super) server_output: Option<String>,
}

impl ServerFailure {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self { reason: why.to_string(), server_output: None }
    }

    /// The server's own words are not for models.
    fn of(error: &Error) -> Self {
        match error {
            Error::Refused { code, said } => Self {
                reason: format!("it answers with error {code}"),
                server_output: Some(clean(said)).filter(|said| !said.is_empty()),
            },
            Error::Garbled(said) => Self {
                reason: "it does not speak the protocol".to_owned(),
                server_output: Some(clean(said)).filter(|said| !said.is_empty()),
            },
            Error::Unreachable(_)
            | Error::Unauthorized
            | Error::Silent { .. }
            | Error::Closed
            | Error::Header(_) => Self::new(error),
        }
    }

    /// The reason with the server's output.
    pub(super) fn with_output(self) -> String {
        match self.server_output {
            Some(wrote) => format!("{}; it wrote: {wrote}", self.reason),
            None => self.reason,
        }
    }
}

/// Version of a link's list of tools; changes whenever the list does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToolListVersion(Uuid, u64);

pub(super) struct Link {
    shared: Arc<LinkShared>,
    tenant: TenantId,
    /// Agent that uses the server; `None` in a probe.
    agent: Option<AgentId>,
    open: OpenMcpServer,
    /// Held while connecting or listing, so that others wait for the same result.
    connecting: tokio::sync::Mutex<()>,
    connection: Mutex<Option<Arc<Connection>>>,
    tool_list: Mutex<LastListing>,
    used: Mutex<Instant>,
    busy: AtomicUsize,
}

/// Result of the last listing.
#[derive(Debug, Default)]
struct LastListing {
    at: Option<Instant>,
    tools: Arc<Vec<Tool>>,
    trouble: Option<ServerFailure>,
    number: u64,
}

struct Connection {
    client: Client,
    /// Process of the server, if it runs here; killed when the connection is dropped.
    process: Option<ServerProcess>,
    /// Sessions that have called the process.
    users: Mutex<BTreeSet<SessionId>>,
    _slot: Option<TenantSlot>,
}

/// Guard of a call in progress.
struct CallGuard<'a>(&'a Link);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Link {
    pub(super) fn new(
        ways: Arc<LinkShared>,
        tenant: TenantId,
        agent: Option<AgentId>,
        open: OpenMcpServer,
    ) -> Self {
        Self {
            shared: ways,
            tenant,
            agent,
            open,
            connecting: tokio::sync::Mutex::default(),
            connection: Mutex::default(),
            tool_list: Mutex::default(),
            used: Mutex::new(Instant::now()),
            busy: AtomicUsize::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.open.server.name
    }

    /// Whether the tools that the server marks read-only are declared harmless.
    pub(super) const fn is_harmless(&self) -> bool {
        self.open.server.harmless
    }

    pub(super) const fn version(&self) -> Uuid {
        self.open.server.version
    }

    pub(super) fn version_stamp(&self) -> ToolListVersion {
        ToolListVersion(self.version(), lock(&self.tool_list).number)
    }

    /// Tools that the server listed last.
    pub(super) fn tools_listed(&self) -> Arc<Vec<Tool>> {
        Arc::clone(&lock(&self.tool_list).tools)
    }

    /// Reason why the last listing failed.
    pub(super) fn failure_reason(&self) -> Option<String> {
        lock(&self.tool_list).trouble.as_ref().map(|trouble| trouble.reason.clone())
    }

    /// Whether the tools were never listed.
    pub(super) fn is_never_listed(&self) -> bool {
        lock(&self.tool_list).at.is_none()
    }

    /// Whether the server is a process.
    pub(super) const fn is_process(&self) -> bool {
        matches!(self.open.server.transport, McpTransport::Stdio { .. })
    }

    /// Connection to the process of the server, if it runs.
    fn process(&self) -> Option<Arc<Connection>> {
        let there = lock(&self.connection).clone();
        there.filter(|there| there.process.is_some() && !there.client.is_closed())
    }

    pub(super) fn has_process(&self) -> bool {
        self.process().is_some()
    }

    /// Whether the process runs, and the session has called it.
    pub(super) fn is_held_for(&self, session: SessionId) -> bool {
        self.process().is_some_and(|there| lock(&there.users).contains(&session))
    }

    /// Forgets that a session has called the process. Returns whether no other has.
    pub(super) fn leave(&self, session: SessionId) -> bool {
        self.process().is_some_and(|there| {
            let mut users = lock(&there.users);
            users.remove(&session) && users.is_empty()
        })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Time since the last use.
    pub(super) fn idle(&self) -> Duration {
        lock(&self.used).elapsed()
    }

    /// Refreshes the list of tools if it is outdated.
    pub(super) async fn refresh_tools(&self) {
        if !self.is_outdated() {
            return;
        }
        let _turn = self.connecting.lock().await;
        // Another caller may have refreshed it meanwhile.
        if !self.is_outdated() {
            return;
        }
        let looked = self.list_tools().await;
        let mut seen = lock(&self.tool_list);
        seen.at = Some(Instant::now());
        seen.number = self.shared.next_version.fetch_add(1, Ordering::Relaxed);
        match looked {
            Ok(ToolList { tools, omitted, has_more: _ }) => {
                let (listed, left_out) = (tools.len(), omitted.len());
                info!(mcp.server = self.name(), tools = listed, left_out, "listed an mcp server");
                (seen.tools, seen.trouble) = (Arc::new(tools), None);
            }
            // The last list stays; callers are told.
            Err(trouble) => {
                info!(mcp.server = self.name(), "an mcp server cannot be used");
                seen.trouble = Some(trouble);
            }
        }
    }

    pub(super) async fn list_tools_now(&self) -> Result<ToolList, ServerFailure> {
        let _turn = self.connecting.lock().await;
        self.list_tools().await
    }

    async fn list_tools(&self) -> Result<ToolList, ServerFailure> {
        let _busy = self.busy();
        let connection = self.connect().await?;
        let listed = connection.client.tools(self.shared.config.connect_timeout).await;
        listed.map_err(|error| self.on_failure(&connection, &error))
    }

    fn is_outdated(&self) -> bool {
        let changed = lock(&self.connection).as_ref().is_some_and(|it| it.client.has_changed());
        let seen = lock(&self.tool_list);
        let config = &self.shared.config;
        match (seen.at, &seen.trouble) {
            (None, _) => true,
            (Some(at), Some(_)) => at.elapsed() >= config.retry,
            (Some(at), None) => changed || at.elapsed() >= config.refresh,
        }
    }

    /// `Err` if the call surely did not reach the server; `Ok(Err(_))` if it may have.
    pub(super) async fn call(
        &self,
        session: SessionId,
        tool: &str,
        input: Map<String, Value>,
    ) -> Result<Result<ToolResult, Error>, ServerFailure> {
        let _busy = self.busy();
        let connection = {
            let _turn = self.connecting.lock().await;
            self.connect().await?
        };
        lock(&connection.users).insert(session);
        let mut answer = connection.client.call(tool, input, CALL_TIMEOUT).await;
        if let Err(error) = &answer {
            self.on_failure(&connection, error);
        }
        // Before anybody is told of the answer: it must not name what a crash would lose.
        if let Some(process) = &connection.process
            && let Err(reason) = process.store_folder().await
            && let Ok(result) = &mut answer
        {
            result.content.push(Content::Text(reason));
        }
        Ok(answer)
    }

    fn busy(&self) -> CallGuard<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        CallGuard(self)
    }

    /// Returns the connection, connecting if there is none. The caller must hold `turn`.
    async fn connect(&self) -> Result<Arc<Connection>, ServerFailure> {
        let there = lock(&self.connection).clone();
        if let Some(connection) = there.filter(|connection| !connection.client.is_closed()) {
            return Ok(connection);
        }
        *lock(&self.connection) = None;
        let connection = Arc::new(match &self.open.server.transport {
            McpTransport::Http { url } => self.connect_http(url).await?,
            McpTransport::Stdio { command, args, network, keep } => {
                let keep_for = self.agent.filter(|_| *keep);
                let (name, env) = (self.name(), self.open.secrets.as_slice());
                let (program, network) = (command.as_str(), *network);
                let server = ServerCommand { name, program, args, env, network, keep_for };
                self.start_process(&server).await?
            }
        });
        *lock(&self.connection) = Some(Arc::clone(&connection));
        Ok(connection)
    }

    async fn connect_http(&self, url: &str) -> Result<Connection, ServerFailure> {
        let slot = self.shared.connections.acquire(self.tenant).map_err(ServerFailure::new)?;
        let parsed = Guard::parse(url).map_err(ServerFailure::new)?;
        let client = match self.open.secrets.is_empty() {
            true => self.shared.guard.client(&parsed),
            // The secrets are headers.
            false => self.shared.guard.client_for_secret(&parsed),
        };
        let client = client.map_err(ServerFailure::new)?.clone();
        let patience = self.shared.config.connect_timeout;
        let client = Client::over_http(client, parsed.as_str(), &self.open.secrets, patience).await;
        let client = client.map_err(|error| ServerFailure::of(&error))?;
        Ok(Connection { client, process: None, users: Mutex::default(), _slot: Some(slot) })
    }

    async fn start_process(&self, server: &ServerCommand<'_>) -> Result<Connection, ServerFailure> {
        let room = self.shared.process_slots.acquire(self.tenant).map_err(ServerFailure::new)?;
        let (process, stdin, stdout) = self.shared.sandbox.start(server, room).await?;
        let patience = self.shared.config.connect_timeout;
        match Client::over_pipes(stdout, stdin, patience).await {
            Ok(client) => {
                let users = Mutex::default();
                Ok(Connection { client, process: Some(process), users, _slot: None })
            }
            Err(error) => Err(process.failure(&error).await),
        }
    }

    /// Drops a connection that is lost.
    fn on_failure(&self, connection: &Arc<Connection>, error: &Error) -> ServerFailure {
        if error.is_lost() || connection.client.is_closed() {
            let mut there = lock(&self.connection);
            if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, connection)) {
                *there = None;
            }
        }
        ServerFailure::of(error)
    }

    /// Closes the connection and ends its process.
    pub(super) async fn close(&self) {
        let there = lock(&self.connection).take();
        // Otherwise a caller still holds it and closes it by dropping it.
        if let Some(Ok(connection)) = there.map(Arc::try_unwrap) {
            let Connection { client, process, .. } = connection;
            client.close().await;
            if let Some(process) = process {
                process.end().await;
            }
        }
    }
}
