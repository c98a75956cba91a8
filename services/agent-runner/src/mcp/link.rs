//! One agent's way to one server: connecting, listing, calling.

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

/// Longer than any call may take: whoever calls has a time of their own, and gives up first.
const A_CALL: Duration = Duration::from_hours(2);

/// What ways to servers have in common.
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

/// Why a server cannot be used, in words for whoever wants to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// What a model is told.
    pub(super) why: String,
    /// What the server wrote besides, which only those who set it up are shown.
    pub(super) wrote: Option<String>,
}

impl Trouble {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self { why: why.to_string(), wrote: None }
    }

    /// Why a connection was of no use. What the server said itself is not for models.
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

    /// All of it.
    pub(super) fn in_full(self) -> String {
        match self.wrote {
            Some(wrote) => format!("{}; it wrote: {wrote}", self.why),
            None => self.why,
        }
    }
}

/// A state of what was seen: another one whenever that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(Uuid, u64);

/// One agent's way to one server.
pub(super) struct Link {
    ways: Arc<Ways>,
    tenant: TenantId,
    open: OpenMcpServer,
    /// Held while somebody connects or lists, so that others wait for the same.
    turn: tokio::sync::Mutex<()>,
    connection: Mutex<Option<Arc<Connection>>>,
    seen: Mutex<Seen>,
    used: Mutex<Instant>,
    busy: AtomicUsize,
}

/// What a server was last seen to offer.
#[derive(Debug, Default)]
struct Seen {
    at: Option<Instant>,
    tools: Arc<Vec<Tool>>,
    trouble: Option<Trouble>,
    number: u64,
}

struct Connection {
    client: Client,
    /// What it stands on; gone with it.
    process: Option<Running>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A call that is being made.
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

    /// What it was last seen to offer.
    pub(super) fn seen(&self) -> Arc<Vec<Tool>> {
        Arc::clone(&lock(&self.seen).tools)
    }

    /// Why it could not be used when it was last looked at.
    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.seen).trouble.as_ref().map(|trouble| trouble.why.clone())
    }

    /// Whether nobody has looked yet.
    pub(super) fn is_unseen(&self) -> bool {
        lock(&self.seen).at.is_none()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// For how long nobody has used it.
    pub(super) fn idle(&self) -> Duration {
        lock(&self.used).elapsed()
    }

    /// Finds out what the server offers, unless that is known well enough.
    pub(super) async fn look(&self) {
        if !self.is_to_be_looked_at() {
            return;
        }
        let _turn = self.turn.lock().await;
        // Somebody may have looked meanwhile.
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
            // What it was seen to offer stays: whoever calls it is told.
            Err(trouble) => {
                info!(mcp.server = self.name(), "an mcp server cannot be used");
                seen.trouble = Some(trouble);
            }
        }
    }

    /// What the server offers now.
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

    /// Calls a tool of the server's.
    ///
    /// # Errors
    ///
    /// `Ok(Err(_))` once the call may have reached the server; `Err` if it surely has not.
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

    /// The connection, made if there is none. Call it with the turn held.
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

    /// Remembers that a connection is of no use any more.
    fn failed(&self, connection: &Arc<Connection>, error: &Error) -> Trouble {
        if error.is_lost() || connection.client.is_closed() {
            let mut there = lock(&self.connection);
            if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, connection)) {
                *there = None;
            }
        }
        Trouble::of(error)
    }

    /// Ends the connection, and the process that it stands on.
    pub(super) async fn end(&self) {
        let there = lock(&self.connection).take();
        // Whoever still calls holds it, and ends it.
        if let Some(Ok(connection)) = there.map(Arc::try_unwrap) {
            let Connection { client, process, .. } = connection;
            client.close().await;
            if let Some(process) = process {
                process.end().await;
            }
        }
    }
}
