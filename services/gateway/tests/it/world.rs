//! Test world: a gateway, two tenants that know nothing of each other, a runner.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use futures::StreamExt as _;
use gateway::{App, Config};
use holdfast_bus::{Bus, ProcessReport, RequestKeys, Subject};
use holdfast_directory::{Actor, AgentSettings, Directory, NewAgent, NewKey};
use holdfast_pg::Pools;
use holdfast_proposals::Proposals;
use holdfast_proto::gateway::v1::{
    self as pb, RunEvent, SendRequest, messages_client::MessagesClient, run_event::Event,
};
use holdfast_session::Sessions;
use holdfast_testkit::{Database, Proxy, nats, redis};
use holdfast_types::{AgentName, QueueMode, SessionState, TenantId};
use holdfast_workspace::Workspaces;
use reqwest::{Client, RequestBuilder, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::{sync::OnceCell, task::JoinHandle, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{Request, transport::Channel};

use crate::runner::Runner;

pub const KEK: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub const MESH: &str = "0123456789abcdef0123456789abcdef";
const PEPPER: &str = "pepper of the tests";

/// Test timeout, long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(40);

pub struct World {
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    pub client: Client,
    pub directory: Directory,
    pub sessions: Sessions,
    pub pools: Pools,
    pub runner: Runner,
    pub stop: CancellationToken,
    pub served: Option<JoinHandle<anyhow::Result<()>>>,
    pub anna: Tenant,
    pub ben: Tenant,
    /// A registry of skills, with one in it.
    _shelf: tempfile::TempDir,
    memory: Option<AbortOnDropHandle<anyhow::Result<()>>>,
    memory_url: String,
    bus: holdfast_bus::Config,
    shared_channel: OnceCell<Channel>,
    _redis: redis::Namespace,
    _nats: nats::Namespace,
    database: Database,
}

/// A tenant, and its first key.
pub struct Tenant {
    pub id: TenantId,
    pub key: String,
}

/// Signer of a mesh with this secret.
pub fn signer(secret: &str) -> anyhow::Result<holdfast_grpc::Signer> {
    let mesh = holdfast_kit::config::Mesh {
        secret: secret.into(),
        ..holdfast_kit::config::Mesh::default()
    };
    Ok(holdfast_grpc::Signer::new(&mesh)?)
}

impl World {
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(|_| {}).await
    }

    /// The same with a memory service.
    pub async fn start_with_memory() -> anyhow::Result<Self> {
        Self::start_with_memory_and(|_| {}).await
    }

    /// The same with a memory service and other settings.
    pub async fn start_with_memory_and(change: impl FnOnce(&mut Config)) -> anyhow::Result<Self> {
        let (database, stop) = (database().await?, CancellationToken::new());
        let mut of_memory = memory::Config::default();
        of_memory.database.url = database.service_url("memory-service").into();
        of_memory.database.acquire_timeout = PATIENCE;
        of_memory.memory.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        of_memory.memory.embedding.engine = memory::Engine::Hashed;
        of_memory.mesh.secret = MESH.into();
        let app = Box::pin(memory::App::connect(of_memory)).await?;
        let memory_url = format!("http://{}", app.address()?);
        let served = AbortOnDropHandle::new(tokio::spawn(app.run(stop.clone())));
        let url = memory_url.clone();
        let change = |config: &mut Config| {
            config.mesh.memory_url = url;
            change(config);
        };
        let mut world = Box::pin(Self::start_on(database, stop, change)).await?;
        world.memory = Some(served);
        world.memory_url = memory_url;
        Ok(world)
    }

    /// Whether there is a memory service.
    pub fn remembers(&self) -> bool {
        self.memory.is_some()
    }

    /// The memory service, as the services reach it.
    pub fn memory(&self) -> anyhow::Result<holdfast_grpc::MemoryClient> {
        let mesh = holdfast_grpc::Mesh::new(signer(MESH)?, "gateway");
        Ok(holdfast_grpc::MemoryClient::new(&self.memory_url, mesh)?)
    }

    /// The same, with a proxy in front of the database, which is given up soon.
    pub async fn start_behind_proxy() -> anyhow::Result<(Self, Proxy)> {
        let database = database().await?;
        let url = database.service_url("gateway");
        let proxy = Proxy::in_front_of(&url).await?;
        let url = proxy.through(&url);
        let change = |config: &mut Config| {
            config.database.url = url.into();
            config.database.acquire_timeout = Duration::from_secs(5);
        };
        let world = Self::start_on(database, CancellationToken::new(), change).await?;
        Ok((world, proxy))
    }

    pub async fn start_with(change: impl FnOnce(&mut Config)) -> anyhow::Result<Self> {
        Self::start_on(database().await?, CancellationToken::new(), change).await
    }

    async fn start_on(
        database: Database,
        stop: CancellationToken,
        change: impl FnOnce(&mut Config),
    ) -> anyhow::Result<Self> {
        let (nats, redis) = (nats::Namespace::create().await?, redis::Namespace::create().await?);

        let mut config = Config::default();
        config.gateway.http = SocketAddr::from(([127, 0, 0, 1], 0));
        config.gateway.grpc = SocketAddr::from(([127, 0, 0, 1], 0));
        config.gateway.shutdown_grace = PATIENCE / 2;
        config.gateway.websocket.handshake_timeout = PATIENCE;
        config.database.url = database.service_url("gateway").into();
        // Also the time in which the next statement of a transaction must come.
        config.database.acquire_timeout = PATIENCE;
        config.nats.url = nats.url().into();
        config.nats.prefix = nats.prefix().to_owned();
        config.redis.url = redis.url().into();
        config.redis.prefix = redis.prefix().to_owned();
        config.mesh.secret = MESH.into();
        config.secrets.kek = KEK.into();
        config.secrets.pepper = PEPPER.into();
        let shelf = tempfile::tempdir()?;
        std::fs::create_dir(shelf.path().join("water-plants"))?;
        let skill = "---\nname: water-plants\ndescription: Water the plants.\nversion: \"1.0\"\n\
                     ---\nPour 0.2 l.\n";
        std::fs::write(shelf.path().join("water-plants/SKILL.md"), skill)?;
        config.skills.registries.push(holdfast_skills::RegistryConfig::Directory {
            name: "shelf".to_owned(),
            path: shelf.path().to_owned(),
        });
        let of_runner = config.nats.clone();
        change(&mut config);
        let has_nats = config.nats.url.expose_secret() == of_runner.url.expose_secret();

        let pools = Pools::lazy(&config.database, "test")?;
        let directory = Directory::new(pools.clone(), &config.secrets)?;
        let sessions = Sessions::new(pools.clone());
        let anna = tenant(&directory, "anna").await?;
        let ben = tenant(&directory, "ben").await?;
        let runners_bus = Bus::connect(&of_runner, "test").await?;
        RequestKeys::new(directory.request_keys().await?).install(&runners_bus);
        let runner = Runner::start(sessions.clone(), runners_bus.clone());

        let app = App::connect(config).await?;
        let (http, grpc) = (app.http_address()?, app.grpc_address()?);
        let served = Some(tokio::spawn(app.run(stop.clone())));
        let world = Self {
            http,
            grpc,
            client: Client::builder().no_proxy().build()?,
            directory,
            sessions,
            pools,
            runner,
            stop,
            served,
            anna,
            ben,
            _shelf: shelf,
            memory: None,
            memory_url: String::new(),
            bus: of_runner,
            shared_channel: OnceCell::new(),
            _redis: redis,
            _nats: nats,
            database,
        };
        world.ready().await?;
        if has_nats {
            until_connected(&runners_bus).await;
        }
        Ok(world)
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let url = self.url("/readyz");
        let ready = async {
            while !self.client.get(&url).send().await.is_ok_and(|ready| ready.status() == 200) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, ready).await.context("the gateway is not ready")
    }

    /// Waits until a runner has claimed the session.
    pub async fn until_runs(&self, of: &Tenant, session: &str) -> anyhow::Result<()> {
        let session = session.parse()?;
        let runs = async {
            while self.sessions.views().session(of.id, session).await?.state
                != SessionState::Running
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, runs).await.context("nobody works at it")?
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// Texts that a query returns.
    pub async fn texts(&self, sql: &str) -> anyhow::Result<Vec<String>> {
        let mut admin = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut admin).await?)
    }

    /// Erases a deleted tenant, as the runners do.
    pub async fn erase(&self, tenant: TenantId) -> anyhow::Result<()> {
        let mut config = Config::default();
        config.database.url = self.database.service_url("agent-runner").into();
        config.secrets.kek = KEK.into();
        config.secrets.pepper = PEPPER.into();
        let pools = Pools::lazy(&config.database, "test")?;
        Sessions::new(pools.clone()).delete_all(tenant).await?;
        let directory = Directory::new(pools, &config.secrets)?;
        while directory.tenants().erase(tenant).await? > 0 {}
        Ok(())
    }

    /// Creates an agent with this queue mode.
    pub async fn agent(&self, of: &Tenant, name: &str, mode: QueueMode) -> anyhow::Result<()> {
        let settings = AgentSettings { queue_mode: mode, ..AgentSettings::default() };
        let new = NewAgent { name: AgentName::new(name), settings, ..NewAgent::default() };
        self.directory.agents().create(of.id, Actor::Operator, new).await?;
        // The gateway caches a tenant's agents for a second.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        Ok(())
    }

    pub fn proposals(&self) -> Proposals {
        let workspaces = Workspaces::new(self.pools.clone());
        Proposals::new(self.pools.clone(), self.directory.clone(), workspaces)
    }

    /// Another key of a tenant.
    pub async fn key(
        &self,
        of: &Tenant,
        scopes: &[&str],
        lifetime: Option<Duration>,
    ) -> anyhow::Result<String> {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        let new = NewKey {
            name: "test".to_owned(),
            scopes,
            lifetime,
            person: None,
            agent: None,
            origins: Vec::new(),
        };
        let (_, secret) = self.directory.keys().create(of.id, Actor::Operator, new).await?;
        Ok(secret.expose_secret().to_owned())
    }

    /// Channel to the gRPC server.
    pub async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Channel::from_shared(format!("http://{}", self.grpc))?.connect().await?)
    }

    /// The same for many calls, which need no connections of their own.
    pub async fn shared_channel(&self) -> anyhow::Result<Channel> {
        self.shared_channel.get_or_try_init(|| self.channel()).await.cloned()
    }

    pub async fn messages(&self) -> anyhow::Result<MessagesClient<Channel>> {
        Ok(MessagesClient::new(self.channel().await?))
    }

    /// Sends a message and returns the response.
    pub async fn send(
        &self,
        of: &Tenant,
        request: SendRequest,
    ) -> Result<pb::SendResponse, tonic::Status> {
        let mut client = self.messages().await.expect("the gateway is there");
        Ok(client.send(of.request(request)).await?.into_inner())
    }

    /// Follows a message to its end.
    pub async fn follow(
        &self,
        of: &Tenant,
        message_id: &str,
    ) -> Result<Vec<RunEvent>, tonic::Status> {
        let mut client = self.messages().await.expect("the gateway is there");
        let request = pb::FollowRequest { message_id: message_id.to_owned() };
        collect(client.follow(of.request(request)).await?.into_inner()).await
    }

    /// Sends a message and follows it to its end.
    pub async fn stream(
        &self,
        of: &Tenant,
        request: SendRequest,
    ) -> Result<Vec<RunEvent>, tonic::Status> {
        let mut client = self.messages().await.expect("the gateway is there");
        collect(client.stream(of.request(request)).await?.into_inner()).await
    }

    /// A connection to NATS, as other services have.
    pub async fn bus(&self) -> anyhow::Result<Bus> {
        let bus = Bus::connect(&self.bus, "test").await?;
        let connected = async {
            while !bus.is_connected() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, connected).await.context("NATS is not there")?;
        Ok(bus)
    }

    /// Address of the database for its owner.
    pub fn admin_url(&self) -> String {
        self.database.admin_url()
    }

    /// A number of the database, whatever tenant it is about.
    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut admin = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut admin).await?)
    }

    pub fn post(&self, of: &Tenant, path: &str) -> RequestBuilder {
        self.client.post(self.url(path)).bearer_auth(&of.key)
    }

    pub fn get(&self, of: &Tenant, path: &str) -> RequestBuilder {
        self.client.get(self.url(path)).bearer_auth(&of.key)
    }

    /// A chat completion of one message.
    pub async fn say(&self, of: &Tenant, user: &str, text: &str) -> anyhow::Result<Value> {
        let body = json!({
            "model": "holdfast",
            "user": user,
            "messages": [{"role": "user", "content": text}],
        });
        let response = self.post(of, "/v1/chat/completions").json(&body).send().await?;
        let (status, body) = (response.status(), response.json::<Value>().await?);
        anyhow::ensure!(status == 200, "{status}: {body}");
        Ok(body)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Tenant {
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let key = format!("Bearer {}", self.key).parse().expect("a key is plain text");
        request.metadata_mut().insert("authorization", key);
        request
    }

    /// The same tenant by another key.
    pub fn by(&self, key: &str) -> Self {
        Self { id: self.id, key: key.to_owned() }
    }
}

/// Asks again until there is something.
pub async fn until<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("it comes")
}

/// Waits until the gateway and the runner reach each other over NATS. Both have sent their
/// subscriptions before: the gateway that to these questions last.
async fn until_connected(runners_bus: &Bus) {
    let all = Subject::process_reports();
    until(async || {
        let asked = runners_bus.ask::<ProcessReport>(&all, &(), PATIENCE / 8, 1).await;
        asked.ok().filter(|reports| !reports.is_empty())
    })
    .await;
}

pub async fn database() -> anyhow::Result<Database> {
    holdfast_kit::tls::install_crypto();
    holdfast_kit::metrics::install()?;
    let schema = holdfast_pg::fingerprint();
    let database = Database::create_from(&schema, async |url: String| {
        holdfast_pg::migrate(&url).await?;
        Ok(())
    });
    database.await
}

async fn tenant(directory: &Directory, name: &str) -> anyhow::Result<Tenant> {
    let (tenant, secret): (_, SecretString) =
        directory.tenants().create(Actor::Operator, name).await?;
    Ok(Tenant { id: tenant.id, key: secret.expose_secret().to_owned() })
}

async fn collect(mut events: tonic::Streaming<RunEvent>) -> Result<Vec<RunEvent>, tonic::Status> {
    let all = async {
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event?);
        }
        Ok(all)
    };
    timeout(PATIENCE, all).await.expect("a stream ends")
}

pub fn message(text: &str) -> SendRequest {
    SendRequest { text: text.to_owned(), ..SendRequest::default() }
}

/// Answer at the end of a stream; checks that it is the only one, and last.
pub fn done(events: &[RunEvent]) -> pb::Done {
    let is_done = |event: &&RunEvent| matches!(event.event, Some(Event::Done(_)));
    assert_eq!(events.iter().filter(is_done).count(), 1, "{events:?}");
    match events.last().and_then(|event| event.event.clone()) {
        Some(Event::Done(done)) => done,
        other => panic!("the last event is no end: {other:?}"),
    }
}

/// The text of a stream's deltas.
pub fn text(events: &[RunEvent]) -> String {
    let texts = events.iter().filter_map(|event| match &event.event {
        Some(Event::Text(delta)) => Some(delta.text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Data of a stream's events, in order, without comments.
pub async fn events(response: Response) -> anyhow::Result<Vec<String>> {
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let text = timeout(PATIENCE, response.text()).await.context("the stream hangs")??;
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    Ok(data.map(str::to_owned).collect())
}

/// As [`events`], parsed as JSON, without the final `[DONE]`, which it requires.
pub async fn chunks(response: Response) -> anyhow::Result<Vec<Value>> {
    let mut data = events(response).await?;
    assert_eq!(data.pop().as_deref(), Some("[DONE]"));
    data.iter().map(|data| Ok(serde_json::from_str(data)?)).collect()
}
