//! Test world: a tenant, two gateways, runners, machines, and a scripted model.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use agent_runner::{RunnerConfig, ScratchConfig};
use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_bus::Bus;
use holdfast_directory::{Actor, Agent, Directory, NewNode, NewProvider, Node, ProviderKind};
use holdfast_grpc::NodeCommandSigner;
use holdfast_kit::config::{Mesh, Secrets};
use holdfast_pg::Pools;
use holdfast_sandbox::Sandbox;
use holdfast_session::{Acceptance, Approval, ApprovalFilter, NewMessage, Sessions};
use holdfast_testkit::{Database, FakeModel, Reply, nats, redis};
use holdfast_types::{
    ApprovalDecision, ApprovalState, Body, Entry, NodeId, NodeReply, NodeRequest,
    NodeRequestOutcome, QueueMode, SessionKey, Source, TenantId,
};
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::super::{
    IsolationMode,
    allow::CommandAllowList,
    command_key::CommandKeyFile,
    config,
    host::Host,
    link::{CONNECT_TIMEOUT, Link},
};
use crate::error::Error;

/// Longer than any operation here should take.
const LONG: Duration = Duration::from_secs(60);

pub struct World {
    pub directory: Directory,
    pub sessions: Sessions,
    pub bus: Bus,
    pub tenant: TenantId,
    pub agent: Agent,
    /// gRPC addresses of the gateways.
    pub grpc: Vec<SocketAddr>,
    model: FakeModel,
    scratch: TempDir,
    gateways: Vec<Running>,
    redis: redis::Namespace,
    nats: nats::Namespace,
    database: Database,
}

/// A running process of the mesh; it ends when dropped.
pub struct Running(JoinHandle<anyhow::Result<()>>);

impl Running {
    /// Ends the process without a clean shutdown, like a crash.
    pub fn end(self) {}
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl World {
    pub async fn start() -> anyhow::Result<Self> {
        holdfast_kit::tls::install_crypto();
        let database = Database::create_from(&holdfast_pg::fingerprint(), async |url: String| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        })
        .await?;
        let (nats, redis) = (nats::Namespace::create().await?, redis::Namespace::create().await?);
        let model = FakeModel::start().await?;
        let pools = Pools::lazy(&of_database(&database), "test")?;
        let directory = Directory::new(pools.clone(), &secrets())?;
        let (tenant, _) = directory.tenants().create(Actor::Operator, "acme").await?;
        let agent = directory.agents().default_agent(tenant.id).await?;
        let provider = NewProvider {
            name: "fake".to_owned(),
            kind: ProviderKind::OpenAi,
            base_url: model.url(),
            api_key: Some("key".into()),
            default_model: Some("fake:one".to_owned()),
            ..NewProvider::default()
        };
        directory.providers().put(tenant.id, Actor::Operator, provider).await?;
        let bus = Bus::connect(&of_nats(&nats), "test").await?;
        let mut world = Self {
            sessions: Sessions::new(pools),
            directory,
            bus,
            tenant: tenant.id,
            agent,
            grpc: Vec::new(),
            model,
            scratch: tempfile::tempdir()?,
            gateways: Vec::new(),
            redis,
            nats,
            database,
        };
        for _ in 0..2 {
            world.gateway().await?;
        }
        Ok(world)
    }

    async fn gateway(&mut self) -> anyhow::Result<()> {
        let mut config = gateway::Config {
            database: of_database(&self.database),
            nats: of_nats(&self.nats),
            redis: of_redis(&self.redis),
            secrets: secrets(),
            mesh: mesh_of_gateways()?,
            ..gateway::Config::default()
        };
        config.gateway.http = ([127, 0, 0, 1], 0).into();
        config.gateway.grpc = ([127, 0, 0, 1], 0).into();
        let app = gateway::App::connect(config).await?;
        self.grpc.push(app.grpc_address()?);
        self.gateways.push(Running(tokio::spawn(app.run(CancellationToken::new()))));
        Ok(())
    }

    pub async fn runner(&self) -> anyhow::Result<Running> {
        let config = agent_runner::Config {
            egress: holdfast_egress::Config {
                allow: vec!["127.0.0.1".to_owned()],
                ..holdfast_egress::Config::default()
            },
            database: of_database(&self.database),
            nats: of_nats(&self.nats),
            redis: of_redis(&self.redis),
            secrets: secrets(),
            mesh: mesh_of_runners(),
            runner: RunnerConfig {
                listen: ([127, 0, 0, 1], 0).into(),
                lease: Duration::from_secs(2),
                sweep: Duration::from_millis(100),
                sandbox: holdfast_sandbox::Config {
                    backend: holdfast_sandbox::BackendChoice::None,
                    ..holdfast_sandbox::Config::default()
                },
                scratch: ScratchConfig {
                    dir: self.scratch.path().to_owned(),
                    ..ScratchConfig::default()
                },
                ..RunnerConfig::default()
            },
            ..agent_runner::Config::default()
        };
        let app = Box::pin(agent_runner::App::connect(config)).await?;
        Ok(Running(tokio::spawn(app.run(CancellationToken::new()))))
    }

    /// In each further turn the model makes these calls to `nodes`, one after the other.
    pub fn calls(&self, inputs: &[&str]) {
        let inputs: Vec<String> = inputs.iter().map(|&input| input.to_owned()).collect();
        self.model.answer(move |request| {
            let messages = request.messages().iter().rev();
            let done = messages.take_while(|message| message["role"] != "user");
            let done = done.filter(|message| message["role"] == "tool").count();
            match inputs.get(done) {
                Some(input) => Reply::call(format!("c{done}"), "nodes", input.clone()),
                None => Reply::text("done"),
            }
        });
    }

    /// Sends a message of the agent's owner.
    pub async fn owner_says(&self, text: &str) -> anyhow::Result<Acceptance> {
        self.send(SessionKey::main(&self.agent.name), text).await
    }

    /// Sends a message of another user.
    pub async fn says(&self, who: &str, text: &str) -> anyhow::Result<Acceptance> {
        self.send(SessionKey::api(&self.agent.name, who)?, text).await
    }

    async fn send(&self, key: SessionKey, text: &str) -> anyhow::Result<Acceptance> {
        let message = NewMessage {
            key,
            agent: self.agent.id,
            label: None,
            source: Source::Internal("test".to_owned()),
            idem_key: uuid::Uuid::now_v7().to_string(),
            body: Body::text(text),
            target: None,
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: None,
        };
        let accepted = self.sessions.ingest(self.tenant, message).await?;
        self.bus.wake_run(0);
        Ok(accepted)
    }

    /// Results of all calls of the turn, once it has ended.
    pub async fn results(&self, sent: &Acceptance) -> anyhow::Result<Vec<String>> {
        let ended = async || {
            let answer = self.sessions.views().answer(self.tenant, sent.message).await;
            answer.is_ok_and(|answer| answer.outcome.is_some())
        };
        self.until("the turn has ended", ended).await?;
        let journal = self.sessions.views().history(self.tenant, sent.session, 500, None).await?;
        let entries: Vec<Entry> = journal.into_iter().map(|view| view.entry).collect();
        let heard = entries.iter().rposition(|entry| matches!(entry, Entry::Heard { .. }));
        let turn = entries.into_iter().skip(heard.unwrap_or_default());
        Ok(turn
            .filter_map(|entry| match entry {
                Entry::Returned { output, .. } => Some(output),
                _ => None,
            })
            .collect())
    }

    /// The pending approval.
    pub async fn asked(&self) -> anyhow::Result<Approval> {
        let all = ApprovalFilter {
            state: Some(ApprovalState::Pending),
            session: None,
            person: None,
            limit: 9,
            after: None,
        };
        let found = async || self.sessions.approvals().list(self.tenant, all).await;
        let is_there = async || found().await.is_ok_and(|found| found.len() == 1);
        self.until("a person is asked", is_there).await?;
        found().await?.pop().context("nobody is asked")
    }

    pub async fn asked_so_far(&self) -> anyhow::Result<usize> {
        let all = ApprovalFilter { limit: 50, ..ApprovalFilter::default() };
        Ok(self.sessions.approvals().list(self.tenant, all).await?.len())
    }

    pub async fn say_of(&self, asked: &Approval, verdict: ApprovalDecision) -> anyhow::Result<()> {
        let by = "key_test";
        self.sessions
            .approvals()
            .resolve(self.tenant, asked.id, holdfast_session::NewDecision::new(verdict, by))
            .await?;
        self.bus.wake_run(0);
        Ok(())
    }

    pub async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !is_so().await {
            anyhow::ensure!(begun.elapsed() < LONG, "not within {LONG:?}: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// A person's machine: a folder, and the node program.
pub struct Machine {
    pub id: NodeId,
    pub folder: Arc<TempDir>,
    name: String,
    token: String,
    patterns: Vec<String>,
    host: Arc<Host>,
    bus: Bus,
    tenant: TenantId,
}

/// A machine's connection; it ends when dropped.
pub struct Connection(JoinHandle<Result<(), Error>>);

impl Connection {
    /// Breaks the connection.
    pub fn end(self) {}

    /// Reason why the connection ended for good.
    pub async fn ended(mut self) -> anyhow::Result<String> {
        let ended = tokio::time::timeout(LONG, &mut self.0).await.context("it goes on")??;
        Ok(ended.err().context("it ended well")?.to_string())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Machine {
    /// A machine that allows these commands; `--all` allows all.
    pub async fn new(
        world: &World,
        name: &str,
        used_by: &str,
        patterns: &[&str],
    ) -> anyhow::Result<Self> {
        let new = NewNode { name: name.to_owned(), used_by: used_by.parse()? };
        let made = world.directory.nodes().create(world.tenant, Actor::Operator, new).await?;
        let (node, token): (Node, SecretString) = made;
        let folder = Arc::new(tempfile::tempdir()?);
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let host = host(&folder, &patterns).await?;
        Ok(Self {
            id: node.id,
            folder,
            name: name.to_owned(),
            token: token.expose_secret().to_owned(),
            patterns,
            host,
            bus: world.bus.clone(),
            tenant: world.tenant,
        })
    }

    /// The same machine with its program restarted.
    pub async fn reborn(&self) -> anyhow::Result<Self> {
        Ok(Self {
            id: self.id,
            folder: Arc::clone(&self.folder),
            name: self.name.clone(),
            token: self.token.clone(),
            patterns: self.patterns.clone(),
            host: host(&self.folder, &self.patterns).await?,
            bus: self.bus.clone(),
            tenant: self.tenant,
        })
    }

    /// Connects, and waits until connected.
    pub async fn connect(&self, to: SocketAddr) -> anyhow::Result<Connection> {
        let before = self.since().await;
        if before.is_some() {
            // Times have a resolution of one second.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
        }
        let connection = self.try_connect(to)?;
        let begun = Instant::now();
        loop {
            let since = self.since().await;
            if since.is_some() && since != before {
                return Ok(connection);
            }
            anyhow::ensure!(begun.elapsed() < LONG, "{} does not connect", self.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn try_connect(&self, to: SocketAddr) -> anyhow::Result<Connection> {
        let url = format!("http://{to}");
        let channel = holdfast_grpc::channel(&url, CONNECT_TIMEOUT)?;
        let link = Link::new(channel, &url, &self.token, Arc::clone(&self.host))?;
        let keep = async move { link.stay_connected(&CancellationToken::new()).await };
        Ok(Connection(tokio::spawn(keep)))
    }

    /// The current connection, if there is one.
    async fn since(&self) -> Option<String> {
        let second = Duration::from_secs(1);
        match self.bus.ask_node(self.tenant, self.id, &NodeRequest::Here, second).await {
            NodeRequestOutcome::Answered(NodeReply::Here { since }) => Some(since),
            _ => None,
        }
    }

    pub async fn is_connected(&self) -> bool {
        self.since().await.is_some()
    }

    /// Number of times that the counting command was run.
    pub fn ran(&self) -> anyhow::Result<usize> {
        match std::fs::read_to_string(self.folder.path().join("ran")) {
            Ok(text) => Ok(text.lines().count()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

async fn host(folder: &TempDir, patterns: &[String]) -> anyhow::Result<Arc<Host>> {
    let all = patterns == ["--all"];
    let allow = CommandAllowList::new(if all { &[] } else { patterns }, all)?;
    let sandbox: Arc<dyn Sandbox> = holdfast_sandbox::open(&config(IsolationMode::None)).await?;
    let key_file = CommandKeyFile::new(folder.path().join("key"));
    Ok(Arc::new(Host::new(sandbox, folder.path().canonicalize()?, allow, key_file)))
}

fn of_database(database: &Database) -> holdfast_pg::Config {
    holdfast_pg::Config { url: database.url().into(), ..holdfast_pg::Config::default() }
}

fn of_nats(nats: &nats::Namespace) -> holdfast_bus::Config {
    holdfast_bus::Config {
        url: nats.url().into(),
        prefix: nats.prefix().to_owned(),
        ..holdfast_bus::Config::default()
    }
}

fn of_redis(redis: &redis::Namespace) -> holdfast_lock::Config {
    holdfast_lock::Config {
        url: redis.url().into(),
        prefix: redis.prefix().to_owned(),
        ..holdfast_lock::Config::default()
    }
}

/// Settings of the runners, which alone can sign commands.
pub fn mesh_of_runners() -> Mesh {
    Mesh { node_key: "the secret of the runners alone".into(), ..Mesh::default() }
}

fn mesh_of_gateways() -> anyhow::Result<Mesh> {
    let signer = NodeCommandSigner::new(&mesh_of_runners())?.context("no secret")?;
    Ok(Mesh { node_public_key: STANDARD.encode(signer.public_key()), ..Mesh::default() })
}

fn secrets() -> Secrets {
    Secrets { kek: kek(), pepper: "pepper of the tests".into(), ..Secrets::default() }
}

fn kek() -> SecretString {
    STANDARD.encode([7_u8; 32]).into()
}
