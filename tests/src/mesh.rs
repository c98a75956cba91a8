//! A whole mesh: processes of the product, over real backends behind proxies, with fakes of what
//! is not ours.

mod certificates;
mod edges;
mod network;
pub(crate) mod specs;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use holdfast_directory::Directory;
use holdfast_grpc::{MemoryClient, Signer};
use holdfast_kit::config::Secrets;
use holdfast_kit::tls::Tls;
use holdfast_pg::Pools;
use holdfast_proto::gateway::v1::AcceptRequest;
use holdfast_proto::gateway::v1::ingest_client::IngestClient;
use holdfast_session::Sessions;
use holdfast_testkit::{
    Backends, Database, FakeModel, FakeReceiver, FakeTelegram, Pooler, Proxy, nats, redis,
};
use holdfast_types::QueueMode;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tonic::Status;
use tonic::transport::Channel;

pub use certificates::{Certificates, RELOAD_TIME};
pub use edges::Proxies;
pub use network::{Network, Peer};

use crate::history::History;
use crate::node::{Node, Role};
use crate::platforms::Platforms;
use crate::script::{self, RequestViolations};
use crate::tenant::Tenant;

const PEPPER: &str = "the pepper of tests";
/// Keys with which the services sign their calls, and the one that signs commands to nodes.
const GATEWAY_KEY: &str = "the key of the gateways of tests";
const RUNNER_KEY: &str = "the key of the runners of tests";
const BRIDGE_KEY: &str = "the key of the bridges of tests";
const NODE_KEY: &str = "the node key of the runners of tests";

/// How long a process may take to be ready; the machine may be busy with other tests.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// What a mesh is made of.
#[derive(Debug, Clone)]
pub struct MeshConfig {
    pub gateways: usize,
    pub runners: usize,
    /// Bridges; each calls the gateway of its number.
    pub bridges: usize,
    pub schedulers: usize,
    /// Memories; all call the first.
    pub memories: usize,
    /// How the agent of each tenant takes input while it is busy.
    pub tenants: Vec<QueueMode>,
    /// How long a claim lasts without being renewed.
    pub lease: Duration,
    /// How long a service waits for a connection to the database before a call fails.
    pub acquire_timeout: Duration,
    /// Turns that a runner runs at once.
    pub slots: u32,
    pub runner: PathBuf,
    pub failpoints: String,
    /// Whether the processes of each role are in a network namespace of their own.
    pub namespaces: bool,
    /// Connections of a PgBouncer through which all processes reach the database; `None`: they
    /// reach it without one.
    pub pooler: Option<u32>,
    /// Several servers that take the place of the single NATS and Redis of the backends.
    pub replicas: Option<Replicas>,
    /// Whether the services speak TLS, and show each other certificates.
    pub tls: bool,
    /// Whether tenants also have accounts on the platforms of [`Platforms`].
    pub platforms: bool,
}

impl MeshConfig {
    /// One process of each kind and one tenant. The runner is the binary at `runner`.
    #[must_use]
    pub fn small(runner: impl Into<PathBuf>) -> Self {
        Self {
            gateways: 1,
            runners: 1,
            bridges: 1,
            schedulers: 0,
            memories: 0,
            tenants: vec![QueueMode::Steer],
            lease: Duration::from_millis(1500),
            // The database may stand still with the machine, and most clients call once.
            acquire_timeout: Duration::from_secs(20),
            slots: 16,
            runner: runner.into(),
            failpoints: String::new(),
            namespaces: false,
            pooler: None,
            replicas: None,
            tls: false,
            platforms: false,
        }
    }

    /// As [`Self::small`], for tests in which the database fails: services wait for it as long as
    /// by default.
    #[must_use]
    pub fn with_failing_database(runner: impl Into<PathBuf>) -> Self {
        let acquire_timeout = holdfast_pg::Config::default().acquire_timeout;
        Self { acquire_timeout, ..Self::small(runner) }
    }
}

/// Addresses of a NATS cluster and of Redis Sentinels.
#[derive(Debug, Clone)]
pub struct Replicas {
    pub nats_urls: Vec<String>,
    /// Gives the login of the servers that the Sentinels name.
    pub redis_url: String,
    pub sentinels: String,
    pub sentinel_group: String,
}

#[derive(Debug)]
pub struct Fakes {
    pub model: FakeModel,
    /// What was wrong with what it was asked.
    pub complaints: RequestViolations,
    /// What clients and fakes saw.
    pub history: History,
    pub telegram: FakeTelegram,
    /// Platforms with one account each, where the plan wants them.
    pub platforms: Option<Platforms>,
    /// The receiver of signed webhooks, which takes each key once.
    pub receiver: FakeReceiver,
    /// The world that the tool `act` acts on, which takes every post.
    pub world: FakeReceiver,
}

/// A mesh; its processes end with the value.
#[derive(Debug)]
pub struct Mesh {
    // In the order in which they are dropped: processes before what they stand on.
    pub gateways: Vec<Arc<Node>>,
    /// The addresses where clients reach their gRPC.
    pub grpc: Vec<SocketAddr>,
    pub runners: Vec<Arc<Node>>,
    pub bridges: Vec<Arc<Node>>,
    pub schedulers: Vec<Arc<Node>>,
    pub memories: Vec<Arc<Node>>,
    /// What stands between them and their backends.
    pub proxies: Proxies,
    /// Where they are.
    pub network: Network,
    pub fakes: Fakes,
    pub tenants: Vec<Tenant>,
    /// The session protocol over its database, past all proxies.
    pub sessions: Sessions,
    /// Certificates of its services; `None`: they speak plain text.
    pub certificates: Option<Certificates>,
    pub nats: nats::Namespace,
    pub redis: redis::Namespace,
    replicas: Option<Replicas>,
    pooler: Option<Pooler>,
    database: Database,
}

fn directory_on(url: String) -> anyhow::Result<Directory> {
    let config = holdfast_pg::Config { url: url.into(), ..holdfast_pg::Config::default() };
    let kek = STANDARD.encode([7; 32]).into();
    let secrets = Secrets { kek, pepper: PEPPER.into(), ..Secrets::default() };
    Ok(Directory::new(Pools::lazy(&config, "test")?, &secrets)?)
}

impl Mesh {
    /// Prepares a mesh over these backends; no process runs yet.
    pub async fn prepare(plan: &MeshConfig, backends: &Backends) -> anyhow::Result<Self> {
        let database = Database::create_on(backends).await?;
        holdfast_pg::migrate(&database.admin_url()).await?;
        let url = database.url();
        Self::over(database, plan, backends, async |fakes: &Fakes| {
            let directory = directory_on(url)?;
            let mut tenants = Vec::new();
            for (number, mode) in plan.tenants.iter().enumerate() {
                tenants.push(Tenant::create(&directory, number, *mode, fakes).await?);
            }
            Ok(tenants)
        })
        .await
    }

    /// Prepares a mesh over a migrated database, with the tenants that `tenants` creates or finds
    /// there; no process runs yet.
    pub async fn over(
        database: Database,
        plan: &MeshConfig,
        backends: &Backends,
        tenants: impl AsyncFnOnce(&Fakes) -> anyhow::Result<Vec<Tenant>>,
    ) -> anyhow::Result<Self> {
        let nats = nats::Namespace::create_on(backends);
        let redis = redis::Namespace::create_on(backends);
        let pooler = match plan.pooler {
            Some(connections) => Some(Pooler::start(&database.url(), connections, "").await?),
            None => None,
        };
        let url = database.url();
        let url = pooler.as_ref().map_or(url.as_str(), Pooler::url);
        let network = match plan.namespaces {
            true => Network::with_namespaces()?,
            false => Network::loopback(),
        };
        let mut proxies = Proxies::start(&network, url, nats.url(), redis.url()).await?;
        for url in plan.replicas.iter().flat_map(|replicas| &replicas.nats_urls) {
            proxies.nats_cluster.push(Proxy::in_front_of(url).await?);
        }
        let of_runners = network.of_peer(Role::Runner, Peer::World);
        let of_bridges = network.of_peer(Role::Bridge, Peer::World);
        let model = FakeModel::start_on(of_runners).await?;
        let history = History::default();
        let complaints = script::teach(&model, &history);
        let fakes = Fakes {
            complaints,
            history,
            model,
            telegram: FakeTelegram::start_on(of_bridges).await?,
            platforms: match plan.platforms {
                true => Some(Platforms::start_on(of_bridges).await?),
                false => None,
            },
            receiver: FakeReceiver::start_on(of_bridges).await?,
            world: FakeReceiver::start_on(of_runners).await?,
        };

        let config =
            holdfast_pg::Config { url: database.url().into(), ..holdfast_pg::Config::default() };
        let sessions = Sessions::new(Pools::lazy(&config, "test")?).with_lease(plan.lease);
        let tenants = tenants(&fakes).await?;
        let mut mesh = Self {
            gateways: Vec::new(),
            grpc: Vec::new(),
            runners: Vec::new(),
            bridges: Vec::new(),
            schedulers: Vec::new(),
            memories: Vec::new(),
            proxies,
            network,
            fakes,
            tenants,
            sessions,
            certificates: plan.tls.then(Certificates::new).transpose()?,
            nats,
            redis,
            replicas: plan.replicas.clone(),
            pooler,
            database,
        };
        mesh.add_nodes(plan).await?;
        Ok(mesh)
    }

    async fn add_nodes(&mut self, plan: &MeshConfig) -> anyhow::Result<()> {
        let holdfast = crate::program::holdfast().await?;
        for number in 0..plan.memories {
            let memory = self.memory(number, holdfast.into(), plan)?;
            // The others are told where the first one is.
            if number == 0 {
                self.proxies.add_memory(&self.network, memory.spec().http).await?;
            }
            self.memories.push(Arc::new(memory));
        }
        for number in 0..plan.gateways {
            let (gateway, grpc) = self.gateway(number, holdfast.into(), plan)?;
            self.gateways.push(Arc::new(gateway));
            self.grpc.push(self.proxies.add_gateway(&self.network, grpc).await?);
        }
        for number in 0..plan.runners {
            let runner = self.runner(number, plan)?;
            self.runners.push(Arc::new(runner));
        }
        for number in 0..plan.bridges {
            let bridge = self.bridge(number, holdfast.into(), plan)?;
            self.bridges.push(Arc::new(bridge));
        }
        for number in 0..plan.schedulers {
            let scheduler = self.scheduler(number, holdfast.into(), plan)?;
            self.schedulers.push(Arc::new(scheduler));
        }
        Ok(())
    }

    /// Prepares a mesh and starts all of it.
    pub async fn start(plan: &MeshConfig, backends: &Backends) -> anyhow::Result<Self> {
        let mesh = Self::prepare(plan, backends).await?;
        let all = mesh.nodes();
        try_join_all(all.iter().map(|node| node.start())).await?;
        try_join_all(all.iter().map(|node| node.ready(START_TIMEOUT))).await?;
        Ok(mesh)
    }

    #[must_use]
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        let talking = self.gateways.iter().chain(&self.runners).chain(&self.bridges);
        talking.chain(&self.schedulers).chain(&self.memories).cloned().collect()
    }

    /// A client of the first memory service, as services have one.
    pub fn memory_client(&self) -> anyhow::Result<MemoryClient> {
        let tls = match &self.certificates {
            Some(certificates) => certificates.service(&certificates.files)?,
            None => Tls::default(),
        };
        self.memory_client_with(tls)
    }

    /// As [`Self::memory_client`], with this TLS.
    pub fn memory_client_with(&self, tls: Tls) -> anyhow::Result<MemoryClient> {
        let memory = self.memories.first().context("the mesh has no memory service")?;
        let mesh = holdfast_kit::config::Mesh {
            key: GATEWAY_KEY.into(),
            ..holdfast_kit::config::Mesh::default()
        };
        let url = format!("{}://{}", self.scheme(), memory.spec().http);
        let mesh = holdfast_grpc::Mesh::new(Signer::new(&mesh)?, "gateway");
        Ok(MemoryClient::new(&url, mesh.with_tls(tls))?)
    }

    /// Offers the first gateway a message without content, with the key of bridges; returns the
    /// refusal.
    pub async fn accept_as_bridge(&self, tls: Tls) -> anyhow::Result<Status> {
        let keys = holdfast_kit::config::Mesh {
            key: BRIDGE_KEY.into(),
            ..holdfast_kit::config::Mesh::default()
        };
        let mesh = holdfast_grpc::Mesh::new(Signer::new(&keys)?, "channel-bridge").with_tls(tls);
        let url = format!("{}://{}", self.scheme(), self.grpc[0]);
        let channel = mesh.connect(&url, "gateway", START_TIMEOUT)?;
        let request = mesh.request(self.tenants[0].id, AcceptRequest::default(), START_TIMEOUT);
        let answer = IngestClient::new(channel).accept(request).await;
        answer.err().context("a message without content is accepted")
    }

    /// Scheme of the services' addresses.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        if self.certificates.is_some() { "https" } else { "http" }
    }

    /// A channel to the first gateway, of a caller without a certificate.
    pub fn channel(&self, timeout: Duration) -> anyhow::Result<Channel> {
        holdfast_kit::tls::install_crypto();
        let tls = match &self.certificates {
            Some(certificates) => certificates.client()?,
            None => Tls::default(),
        };
        let url = format!("{}://{}", self.scheme(), self.grpc[0]);
        Ok(holdfast_grpc::channel_by(tls.connector(), &url, timeout)?)
    }

    /// The directory of its tenants, with the secrets of its services.
    pub fn directory(&self) -> anyhow::Result<Directory> {
        directory_on(self.url())
    }

    /// The database, as the services log in.
    #[must_use]
    pub fn url(&self) -> String {
        self.database.url()
    }

    /// The database through its pooler, if there is one.
    #[must_use]
    pub fn pooled_url(&self) -> Option<&str> {
        self.pooler.as_ref().map(Pooler::url)
    }

    /// The database as its owner, whom row-level security does not bind.
    #[must_use]
    pub fn admin_url(&self) -> String {
        self.database.admin_url()
    }

    /// Runs a statement as the owner.
    pub async fn admin(&self, sql: &str) -> anyhow::Result<u64> {
        let mut connection = PgConnection::connect(&self.admin_url()).await?;
        let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?;
        Ok(done.rows_affected())
    }

    /// Reads one number as the owner.
    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&self.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
    }

    /// Reads one text as the owner; empty if there is none.
    pub async fn text(&self, sql: &str) -> anyhow::Result<String> {
        let mut connection = PgConnection::connect(&self.admin_url()).await?;
        let found: Option<Option<String>> =
            sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(&mut connection).await?;
        Ok(found.flatten().unwrap_or_default())
    }

    /// Lets interrupted sends expire now instead of after a minute. No send to these fakes takes as
    /// long as `older`, so a send that is older has lost its bridge. On channels that are only asked
    /// what arrived, a bridge that was stopped meanwhile may send yet: there it is twice as long.
    pub async fn expire_sends(&self, older: Duration) -> anyhow::Result<u64> {
        let left = holdfast_session::SEND_LEASE.saturating_sub(older).as_secs_f64();
        let left_of_asked = holdfast_session::SEND_LEASE.saturating_sub(older * 2).as_secs_f64();
        // What is only claimed lapses by itself.
        let handover = holdfast_session::HANDOVER_TIMEOUT.as_secs_f64();
        self.admin(&format!(
            "update session.deliveries set lease_until = clock_timestamp() - interval '1 second'
             where state = 'sending' and lease_until < clock_timestamp() + interval '1 second'
                   * case when channel in ('slack', 'email') then {left_of_asked} else {left} end
               and lease_until > clock_timestamp() + {handover} * interval '1 second'"
        ))
        .await
    }
}
