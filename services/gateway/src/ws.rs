//! The WebSocket gateway: OpenClaw's protocol (versions 3 and 4) and LurkBot's (version 1) over the
//! same methods.
//!
//! | file | contents |
//! |---|---|
//! | `ws/handshake.rs`, `openclaw.rs`, `lurkbot.rs` | the first frame: protocol, credential, tenant |
//! | `ws/connection.rs`, `queue.rs`, `recorder.rs`, `frames.rs` | one connection: its task, its queue, its socket |
//! | `ws/request.rs`, `call.rs`, `error.rs` | requests: admission, permission, errors |
//! | `ws/methods.rs` | the table of methods; one file per family |
//! | `ws/hub.rs`, `runs.rs`, `events.rs` | events: who gets which |
//!
//! The tenant comes from the credential of the handshake. Each request is admitted again with it, so
//! a key that is revoked ends its connections. Methods call the gRPC handlers, and have the rules of
//! their methods.
//!
//! A connection has one task and small buffers. A tenant's turns are followed once per process.

mod call;
mod connection;
mod error;
mod events;
mod frames;
mod handshake;
mod hub;
mod keys;
mod lurkbot;
mod members;
mod methods;
mod openclaw;
mod queue;
mod recorder;
mod request;
mod runs;
mod snapshot;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures::{StreamExt as _, stream};
use holdfast_directory::Error as DirectoryError;
use holdfast_doors::{ClientNetwork, NetworkBudget, NetworkShare, counted_client};
use holdfast_kit::{Budget, BudgetSpent, config::reload::Current};
use holdfast_types::{Fault as _, Kind, TenantId};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{
        CONNECTION, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
        UPGRADE,
    },
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use secrecy::SecretString;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;
use uuid::Uuid;

use crate::{
    Config, Error,
    api_error::ApiError,
    auth::Authenticator,
    config,
    control::{self, schedules::Schedules},
    events::EventSource,
    follow::Follower,
    ingest::Ingest,
};

use self::{
    connection::{Connection, now_ms},
    events::Event,
    handshake::ConnectionPath,
    hub::Hubs,
    queue::CloseReason,
};

/// Part of the grace period in which requests may end before their connections are closed.
const REQUEST_GRACE: Duration = Duration::from_secs(5);

/// Connections of a tenant whose credentials are checked at once.
const PARALLEL_CHECKS: usize = 4;

/// The WebSocket gateway of a process.
#[derive(Debug)]
pub struct Service {
    pub doorman: Authenticator,
    pub state: control::State,
    pub schedules: Schedules,
    pub ingest: Ingest,
    pub follower: Follower,
    settings: Current<Config>,
    hubs: Hubs,
    /// Connections that have not shaken hands, by the network of their client.
    handshakes: NetworkBudget,
    of_tenants: Arc<Budget<TenantId>>,
    events: EventSource,
    /// Subscriptions to the logs of tenants.
    log_subscriptions: Arc<Budget<TenantId>>,
    /// Tasks of connections and of their tenants.
    tasks: TaskTracker,
    /// Tasks of requests.
    requests: TaskTracker,
    stop: CancellationToken,
    boot: Uuid,
    began: Instant,
}

impl Service {
    #[must_use]
    pub fn new(
        (ingest, follower): (Ingest, Follower),
        (doorman, state, schedules): (Authenticator, control::State, Schedules),
        (settings, stop): (Current<Config>, CancellationToken),
        events: EventSource,
    ) -> Arc<Self> {
        Arc::new(Self {
            doorman,
            state,
            schedules,
            ingest,
            follower,
            settings,
            hubs: Hubs::default(),
            handshakes: NetworkBudget::default(),
            of_tenants: Budget::new(0, 0),
            events,
            log_subscriptions: Budget::new(u64::MAX, methods::MAX_LOG_SUBSCRIPTIONS_PER_TENANT),
            tasks: TaskTracker::new(),
            requests: TaskTracker::new(),
            stop,
            boot: Uuid::now_v7(),
            began: Instant::now(),
        })
    }

    fn settings(&self) -> config::WebSocket {
        self.settings.get().gateway.websocket.clone()
    }

    const fn hubs(&self) -> &Hubs {
        &self.hubs
    }

    const fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    const fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    const fn requests(&self) -> &TaskTracker {
        &self.requests
    }

    const fn tenant_connections(&self) -> &Arc<Budget<TenantId>> {
        &self.of_tenants
    }

    const fn events(&self) -> &EventSource {
        &self.events
    }

    const fn log_subscriptions(&self) -> &Arc<Budget<TenantId>> {
        &self.log_subscriptions
    }

    const fn boot_id(&self) -> Uuid {
        self.boot
    }

    /// Counts a connection that has not shaken hands. Behind a proxy that names no clients, one may
    /// have all of them.
    fn begin_handshake(&self, client: Option<ClientNetwork>) -> Result<NetworkShare, BudgetSpent> {
        let config = self.settings();
        let (total, per_client) = (config.handshakes.into(), config.handshakes_per_address.into());
        self.handshakes.admit(client, total, per_client)
    }

    /// Longest wait for an answer, unless the client asks for another.
    fn answer_timeout(&self) -> Duration {
        self.settings.get().gateway.answer_timeout
    }

    fn uptime_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sends ticks until `stop`; then says so to all connections, waits for the requests that are
    /// worked on, and ends the connections.
    ///
    /// # Errors
    ///
    /// None; the form is that of a service's task.
    pub async fn run(self: Arc<Self>) -> anyhow::Result<()> {
        let tick = self.settings().tick_interval;
        let mut ticks = interval(tick);
        ticks.tick().await;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                _ = ticks.tick() => self.tick(tick).await,
            }
        }
        let shutdown = Event::shutdown();
        for connection in self.hubs.connections() {
            connection.tell(&shutdown);
        }
        self.requests.close();
        drop(timeout(REQUEST_GRACE, self.requests.wait()).await);
        for connection in self.hubs.connections() {
            connection.queue.close(CloseReason::STOPPING);
        }
        self.tasks.close();
        self.tasks.wait().await;
        Ok(())
    }

    async fn tick(&self, interval: Duration) {
        let now = now_ms();
        let event = Event::tick(now);
        for connection in self.hubs.connections() {
            connection.check_silence(now, interval);
            connection.tell(&event);
            self.check_credential(&connection).await;
        }
    }

    /// Until `stop`, checks the connections of tenants that have taken rights away. Lost wake-ups are
    /// made up for by the next tick.
    ///
    /// # Errors
    ///
    /// None; the form is that of a service's task.
    pub async fn watch_access(self: Arc<Self>) -> anyhow::Result<()> {
        match self.state.bus.access_wakes().await {
            Ok(mut wakes) => loop {
                let woken = self.stop.run_until_cancelled(wakes.next()).await;
                let Some(Some(tenants)) = woken else { break };
                for tenant in tenants {
                    self.check_tenant(tenant).await;
                }
            },
            Err(error) => debug!(%error, "only ticks check open connections"),
        }
        self.stop.cancelled().await;
        Ok(())
    }

    async fn check_tenant(&self, tenant: TenantId) {
        let connections = self.hubs.connections_of(tenant);
        if connections.is_empty() {
            return;
        }
        self.doorman.directory().forget_callers(tenant);
        let check = |connection: Arc<Connection>| async move {
            self.check_credential(&connection).await;
        };
        stream::iter(connections).for_each_concurrent(PARALLEL_CHECKS, check).await;
    }

    /// Ends a connection whose credential permits less than at its handshake. One that only listens
    /// makes no request that would be refused.
    async fn check_credential(&self, connection: &Connection) {
        let is_revoked = match self.doorman.check_connection(connection.credential()).await {
            Ok(identity) => !connection.is_of(&identity),
            Err(Error::Directory(DirectoryError::PersonDisabled)) => true,
            Err(error) => error.kind() == Kind::Unauthenticated,
        };
        if is_revoked {
            connection.refuse_credential();
        }
    }
}

/// Routes of the WebSocket gateway.
pub fn router(service: Arc<Service>) -> Router {
    Router::new().route("/", get(upgrade)).route("/ws", get(upgrade)).with_state(service)
}

async fn upgrade(State(service): State<Arc<Service>>, request: Request) -> Response {
    let path = match request.uri().path() {
        "/ws" => ConnectionPath::LurkBot,
        _ => ConnectionPath::OpenClaw,
    };
    open(service, request, path)
}

/// Turns a request of the web console into a connection with the token of its session.
pub fn open_for_session(service: Arc<Service>, request: Request, token: SecretString) -> Response {
    open(service, request, ConnectionPath::Console(token))
}

/// Turns a request into a WebSocket connection.
fn open(service: Arc<Service>, mut request: Request, path: ConnectionPath) -> Response {
    let Some(accept) = accept_key(request.headers()) else {
        return ApiError::no_route(request.method().as_str(), request.uri().path()).into_response();
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return (StatusCode::UPGRADE_REQUIRED, "WebSocket needs HTTP/1.1\n").into_response();
    };
    if service.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the gateway is stopping\n").into_response();
    }
    let client = counted_client(request.extensions(), request.headers());
    let handshake = match service.begin_handshake(client) {
        Ok(handshake) => handshake,
        Err(spent) => return refuse_handshake(spent),
    };
    let tasks = service.tasks.clone();
    tasks.spawn(async move {
        metrics::gauge!("holdfast_gateway_websocket_connections").increment(1.0);
        match upgrade.await {
            Ok(upgraded) => serve(service, (upgraded, handshake), path).await,
            Err(error) => debug!(%error, "a connection was not upgraded"),
        }
        metrics::gauge!("holdfast_gateway_websocket_connections").decrement(1.0);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    response
}

fn refuse_handshake(spent: BudgetSpent) -> Response {
    let (status, outcome, why) = match spent {
        BudgetSpent::Total => (
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "too many connections have not shaken hands: try again later\n",
        ),
        BudgetSpent::Owner => (
            StatusCode::TOO_MANY_REQUESTS,
            "exhausted",
            "too many connections of this address have not shaken hands: try again later\n",
        ),
    };
    metrics::counter!(
        "holdfast_gateway_requests_total", "door" => "websocket", "outcome" => outcome
    )
    .increment(1);
    (status, [(RETRY_AFTER, "1")], why).into_response()
}

/// Key that confirms an upgrade; `None` if the request asks for none.
fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name, wanted: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(',').any(|part| part.trim().eq_ignore_ascii_case(wanted))
    };
    if !has(CONNECTION, "upgrade")
        || !has(UPGRADE, "websocket")
        || !has(SEC_WEBSOCKET_VERSION, "13")
    {
        return None;
    }
    let key = headers.get(SEC_WEBSOCKET_KEY)?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

/// Serves one connection from its handshake to its end.
async fn serve(
    service: Arc<Service>,
    (upgraded, handshake): (Upgraded, NetworkShare),
    path: ConnectionPath,
) {
    // Apart, so that the memory of the handshake is free afterwards.
    let shaken = Box::pin(handshake::establish(&service, upgraded, &path));
    let Some(Some(established)) = service.stop.run_until_cancelled(shaken).await else { return };
    // From here on it counts for its tenant.
    drop(handshake);
    let handshake::OpenConnection { socket, connection, greeting } = established;
    connection.queue.push(greeting);
    let hub = service.hubs.join(&service, &connection);
    if service.stop.is_cancelled() {
        connection.queue.close(CloseReason::STOPPING);
    }
    connection::serve(socket, Arc::clone(&service), hub, Arc::clone(&connection)).await;
    service.hubs.leave(&service, &connection);
}
