//! One agent's link to one MCP server: connecting, listing, calling.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use holdfast_directory::{McpTransport, OpenMcpServer};
use holdfast_mcp::{Answer, Client, Error, Tool};
use holdfast_tools::{Guard, clean};
use holdfast_types::TenantId;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::info;
use uuid::Uuid;

use super::{
    config::Mcp as Config,
    lock,
    process::{Rooms, Running, Walls},
};

/// Longer than any call may take: callers have their own, shorter limits.
const A_CALL: Duration = Duration::from_hours(2);

/// Settings and limits that all links share.
pub(super) struct Ways {
    pub(super) config: Config,
    guard: Guard,
    walls: Walls,
    connections: Arc<Semaphore>,
    rooms: Arc<Rooms>,
    seen: AtomicU64,
}

impl Ways {
    pub(super) fn new(config: Config, guard: Guard, walls: Walls) -> Self {
        let connections = Arc::new(Semaphore::new(config.connections));
        let rooms = Arc::new(Rooms::new(config.processes, config.processes_per_tenant));
        Self { config, guard, walls, connections, rooms, seen: AtomicU64::new(1) }
    }
}

/// Reason why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Text that models may read.
    pub(super) why: String,
    /// Output of the server itself, only for those who configured it.
    pub(super) wrote: Option<String>,
}

impl Trouble {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self { why: why.to_string(), wrote: None }
    }

    /// The server's own words are not for models.
    fn of(error: &Error) -> Self {
        match error {
            Error::Refused { code, said } => Self {
                why: format!("it answers with error {code}"),
                wrote: Some(clean(said)).filter(|said| !said.is_empty()),
            },
            Error::Garbled(said) => Self {
                why: "it does not speak the protocol".to_owned(),
                wrote: Some(clean(said)).filter(|said| !said.is_empty()),
            },
            Error::Unreachable(_)
            | Error::Unauthorized
            | Error::Silent { .. }
            | Error::Closed
            | Error::Header(_) => Self::new(error),
        }
    }

    /// The reason with the server's output.
    pub(super) fn in_full(self) -> String {
        match self.wrote {
            Some(wrote) => format!("{}; it wrote: {wrote}", self.why),
            None => self.why,
        }
    }
}

/// Version of a link's list of tools; changes whenever the list does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(Uuid, u64);

pub(super) struct Link {
    ways: Arc<Ways>,
    tenant: TenantId,
    open: OpenMcpServer,
    /// Held while connecting or listing, so that others wait for the same result.
    turn: tokio::sync::Mutex<()>,
    connection: Mutex<Option<Arc<Connection>>>,
    seen: Mutex<Seen>,
    used: Mutex<Instant>,
    busy: AtomicUsize,
}

/// Result of the last listing.
#[derive(Debug, Default)]
struct Seen {
    at: Option<Instant>,
    tools: Arc<Vec<Tool>>,
    trouble: Option<Trouble>,
    number: u64,
}

struct Connection {
    client: Client,
    /// Process of the server, if it runs here; killed when the connection is dropped.
    process: Option<Running>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Guard of a call in progress.
struct Busy<'a>(&'a Link);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Link {
    pub(super) fn new(ways: Arc<Ways>, tenant: TenantId, open: OpenMcpServer) -> Self {
        Self {
            ways,
            tenant,
            open,
            turn: tokio::sync::Mutex::default(),
            connection: Mutex::default(),
            seen: Mutex::default(),
            used: Mutex::new(Instant::now()),
            busy: AtomicUsize::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.open.server.name
    }

    pub(super) const fn version(&self) -> Uuid {
        self.open.server.version
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp(self.version(), lock(&self.seen).number)
    }

    /// Tools that the server listed last.
    pub(super) fn seen(&self) -> Arc<Vec<Tool>> {
        Arc::clone(&lock(&self.seen).tools)
    }

    /// Reason why the last listing failed.
    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.seen).trouble.as_ref().map(|trouble| trouble.why.clone())
    }

    /// Whether the tools were never listed.
    pub(super) fn is_unseen(&self) -> bool {
        lock(&self.seen).at.is_none()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Time since the last use.
    pub(super) fn idle(&self) -> Duration {
        lock(&self.used).elapsed()
    }

    /// Refreshes the list of tools if it is outdated.
    pub(super) async fn look(&self) {
        if !self.is_to_be_looked_at() {
            return;
        }
        let _turn = self.turn.lock().await;
        // Another caller may have refreshed it meanwhile.
        if !self.is_to_be_looked_at() {
            return;
        }
        let looked = self.list().await;
        let mut seen = lock(&self.seen);
        seen.at = Some(Instant::now());
        seen.number = self.ways.seen.fetch_add(1, Ordering::Relaxed);
        match looked {
            Ok(tools) => {
                info!(mcp.server = self.name(), tools = tools.len(), "an mcp server was looked at");
                (seen.tools, seen.trouble) = (Arc::new(tools), None);
            }
            // The last list stays; callers are told.
            Err(trouble) => {
                info!(mcp.server = self.name(), "an mcp server cannot be used");
                seen.trouble = Some(trouble);
            }
        }
    }

    pub(super) async fn tools(&self) -> Result<Vec<Tool>, Trouble> {
        let _turn = self.turn.lock().await;
        self.list().await
    }

    async fn list(&self) -> Result<Vec<Tool>, Trouble> {
        let _busy = self.busy();
        let connection = self.connect().await?;
        let listed = connection.client.tools(self.ways.config.connect_timeout).await;
        listed.map_err(|error| self.failed(&connection, &error))
    }

    fn is_to_be_looked_at(&self) -> bool {
        let changed = lock(&self.connection).as_ref().is_some_and(|it| it.client.has_changed());
        let seen = lock(&self.seen);
        let config = &self.ways.config;
        match (seen.at, &seen.trouble) {
            (None, _) => true,
            (Some(at), Some(_)) => at.elapsed() >= config.retry,
            (Some(at), None) => changed || at.elapsed() >= config.refresh,
        }
    }

    /// `Err` if the call surely did not reach the server; `Ok(Err(_))` if it may have.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: Map<String, Value>,
    ) -> Result<Result<Answer, Error>, Trouble> {
        let _busy = self.busy();
        let connection = {
            let _turn = self.turn.lock().await;
            self.connect().await?
        };
        let answer = connection.client.call(tool, input, A_CALL).await;
        if let Err(error) = &answer {
            self.failed(&connection, error);
        }
        Ok(answer)
    }

    fn busy(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self)
    }

    /// Returns the connection, connecting if there is none. The caller must hold `turn`.
    async fn connect(&self) -> Result<Arc<Connection>, Trouble> {
        let there = lock(&self.connection).clone();
        if let Some(connection) = there.filter(|connection| !connection.client.is_closed()) {
            return Ok(connection);
        }
        *lock(&self.connection) = None;
        let connection = Arc::new(match &self.open.server.transport {
            McpTransport::Http { url } => self.reach(url).await?,
            McpTransport::Stdio { command, args, network } => {
                self.start(command, args, *network).await?
            }
        });
        *lock(&self.connection) = Some(Arc::clone(&connection));
        Ok(connection)
    }

    async fn reach(&self, url: &str) -> Result<Connection, Trouble> {
        let permit = Arc::clone(&self.ways.connections).try_acquire_owned();
        let permit = permit.map_err(|_| {
            Trouble::new("as many servers are connected to as may be: try again later")
        })?;
        let parsed = Guard::parse(url).map_err(Trouble::new)?;
        let client = self.ways.guard.client(&parsed).map_err(Trouble::new)?.clone();
        let patience = self.ways.config.connect_timeout;
        let client = Client::over_http(client, parsed.as_str(), &self.open.secrets, patience).await;
        let client = client.map_err(|error| Trouble::of(&error))?;
        Ok(Connection { client, process: None, _permit: Some(permit) })
    }

    async fn start(
        &self,
        command: &str,
        args: &[String],
        network: bool,
    ) -> Result<Connection, Trouble> {
        let room = self.ways.rooms.take(self.tenant).map_err(Trouble::new)?;
        let env = &self.open.secrets;
        let started = self.ways.walls.start(command, args, env, network, room).await;
        let (process, stdin, stdout) = started.map_err(Trouble::new)?;
        let patience = self.ways.config.connect_timeout;
        match Client::over_pipes(stdout, stdin, patience).await {
            Ok(client) => Ok(Connection { client, process: Some(process), _permit: None }),
            Err(error) => Err(process.why(&error).await),
        }
    }

    /// Drops a connection that is lost.
    fn failed(&self, connection: &Arc<Connection>, error: &Error) -> Trouble {
        if error.is_lost() || connection.client.is_closed() {
            let mut there = lock(&self.connection);
            if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, connection)) {
                *there = None;
            }
        }
        Trouble::of(error)
    }

    /// Closes the connection and ends its process.
    pub(super) async fn end(&self) {
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
