//! A whole mesh: processes of the product, over real backends behind proxies, with fakes of what
//! is not ours.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use holdfast_directory::{Directory, Seal};
use holdfast_pg::Pools;
use holdfast_session::Sessions;
use holdfast_testkit::{
    Backends, Database, FakeModel, FakeReceiver, FakeTelegram, Proxy, nats, redis,
};
use holdfast_types::QueueMode;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::node::{Node, Role, Spec};
use crate::script::{self, Complaints};
use crate::tenant::Tenant;

const PEPPER: &str = "the pepper of tests";
const MESH_SECRET: &str = "the secret of a mesh of tests";

/// How long a process may take to be ready; the machine may be busy with other tests.
const START: Duration = Duration::from_secs(30);

/// What a mesh is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Gateways.
    pub gateways: usize,
    /// Runners.
    pub runners: usize,
    /// Bridges; each calls the gateway of its number.
    pub bridges: usize,
    /// How the agent of each tenant takes input while it is busy.
    pub tenants: Vec<QueueMode>,
    /// How long a claim lasts without being renewed.
    pub lease: Duration,
    /// Turns that a runner runs at once.
    pub slots: u32,
    /// The runner's binary.
    pub runner: PathBuf,
    /// Its failpoints.
    pub failpoints: String,
}

impl Plan {
    /// One process of each kind and one tenant. The runner is the binary at `runner`.
    #[must_use]
    pub fn small(runner: impl Into<PathBuf>) -> Self {
        Self {
            gateways: 1,
            runners: 1,
            bridges: 1,
            tenants: vec![QueueMode::Steer],
            lease: Duration::from_millis(1500),
            slots: 16,
            runner: runner.into(),
            failpoints: String::new(),
        }
    }
}

/// What is not ours.
#[derive(Debug)]
pub struct Fakes {
    /// The model.
    pub model: FakeModel,
    /// What was wrong with what it was asked.
    pub complaints: Complaints,
    /// Telegram.
    pub telegram: FakeTelegram,
    /// The receiver of signed webhooks, which takes each key once.
    pub receiver: FakeReceiver,
    /// The world that the tool `act` acts on, which takes every post.
    pub world: FakeReceiver,
}

/// What stands between processes and backends.
#[derive(Debug)]
pub struct Proxies {
    /// Between gateways and Postgres.
    pub gateway_database: Proxy,
    /// Between runners and Postgres.
    pub runner_database: Proxy,
    /// Between bridges and Postgres.
    pub bridge_database: Proxy,
    /// Between everybody and NATS.
    pub nats: Proxy,
    /// Between everybody and Redis.
    pub redis: Proxy,
}

/// A mesh; its processes end with the value.
#[derive(Debug)]
pub struct Mesh {
    // In the order in which they are dropped: processes before what they stand on.
    /// The gateways.
    pub gateways: Vec<Arc<Node>>,
    /// The addresses where they speak gRPC.
    pub grpc: Vec<SocketAddr>,
    /// The runners.
    pub runners: Vec<Arc<Node>>,
    /// The bridges.
    pub bridges: Vec<Arc<Node>>,
    /// What stands between them and their backends.
    pub proxies: Proxies,
    /// What is not ours.
    pub fakes: Fakes,
    /// Who uses it.
    pub tenants: Vec<Tenant>,
    /// The session protocol over its database, past all proxies.
    pub sessions: Sessions,
    nats: nats::Namespace,
    redis: redis::Namespace,
    database: Database,
}

impl Mesh {
    /// Prepares a mesh over these backends; no process runs yet.
    ///
    /// # Errors
    ///
    /// If a backend refuses, or the product cannot be built.
    pub async fn prepare(plan: &Plan, backends: &Backends) -> anyhow::Result<Self> {
        let holdfast = crate::program::holdfast().await?.to_owned();
        let database = Database::create_on(backends).await?;
        holdfast_pg::migrate(&database.admin_url()).await?;
        let nats = nats::Namespace::create_on(backends);
        let redis = redis::Namespace::create_on(backends);
        let proxies = Proxies {
            gateway_database: Proxy::in_front_of(&database.url()).await?,
            runner_database: Proxy::in_front_of(&database.url()).await?,
            bridge_database: Proxy::in_front_of(&database.url()).await?,
            nats: Proxy::in_front_of(nats.url()).await?,
            redis: Proxy::in_front_of(redis.url()).await?,
        };
        let model = FakeModel::start().await?;
        let complaints = script::teach(&model);
        let fakes = Fakes {
            complaints,
            model,
            telegram: FakeTelegram::start().await?,
            receiver: FakeReceiver::start().await?,
            world: FakeReceiver::start().await?,
        };

        let config =
            holdfast_pg::Config { url: database.url().into(), ..holdfast_pg::Config::default() };
        let pools = Pools::lazy(&config, "test")?;
        let seal = Seal::new(&STANDARD.encode([7; 32]).into())?;
        let directory = Directory::new(pools.clone(), seal, PEPPER.into());
        let sessions = Sessions::new(pools).with_lease(plan.lease);
        let mut tenants = Vec::new();
        for (number, mode) in plan.tenants.iter().enumerate() {
            tenants.push(Tenant::create(&directory, number, *mode, &fakes).await?);
        }

        let mut mesh = Self {
            gateways: Vec::new(),
            grpc: Vec::new(),
            runners: Vec::new(),
            bridges: Vec::new(),
            proxies,
            fakes,
            tenants,
            sessions,
            nats,
            redis,
            database,
        };
        for number in 0..plan.gateways {
            let (gateway, grpc) = mesh.gateway(number, holdfast.clone())?;
            mesh.gateways.push(Arc::new(gateway));
            mesh.grpc.push(grpc);
        }
        for number in 0..plan.runners {
            let runner = mesh.runner(number, plan)?;
            mesh.runners.push(Arc::new(runner));
        }
        for number in 0..plan.bridges {
            let bridge = mesh.bridge(number, holdfast.clone())?;
            mesh.bridges.push(Arc::new(bridge));
        }
        Ok(mesh)
    }

    /// Prepares a mesh and starts all of it.
    ///
    /// # Errors
    ///
    /// If a process does not become ready, with what it said last.
    pub async fn start(plan: &Plan, backends: &Backends) -> anyhow::Result<Self> {
        let mesh = Self::prepare(plan, backends).await?;
        let all = mesh.nodes();
        try_join_all(all.iter().map(|node| node.start())).await?;
        try_join_all(all.iter().map(|node| node.ready(START))).await?;
        Ok(mesh)
    }

    /// All of its processes.
    #[must_use]
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.gateways.iter().chain(&self.runners).chain(&self.bridges).cloned().collect()
    }

    /// The database as its owner, whom row-level security does not bind.
    #[must_use]
    pub fn admin_url(&self) -> String {
        self.database.admin_url()
    }

    /// Runs a statement as the owner.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub async fn admin(&self, sql: &str) -> anyhow::Result<u64> {
        let mut connection = PgConnection::connect(&self.admin_url()).await?;
        let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?;
        Ok(done.rows_affected())
    }

    /// Reads one number as the owner.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&self.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
    }

    /// Reads one text as the owner; empty if there is none.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub async fn text(&self, sql: &str) -> anyhow::Result<String> {
        let mut connection = PgConnection::connect(&self.admin_url()).await?;
        let found: Option<Option<String>> =
            sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(&mut connection).await?;
        Ok(found.flatten().unwrap_or_default())
    }

    /// What a send that was cut off leaves behind is looked at after a minute; no test has one.
    /// No send of these platforms takes as long as `older`, so what is older has lost its bridge.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub async fn lapse_sends(&self, older: Duration) -> anyhow::Result<u64> {
        let left = holdfast_session::SENDING.saturating_sub(older).as_secs_f64();
        self.admin(&format!(
            "update session.deliveries set lease_until = clock_timestamp() - interval '1 second'
             where state in ('pending', 'sending') and lease_until < clock_timestamp() + {left} * interval '1 second'
               and lease_until > clock_timestamp()"
        ))
        .await
    }

    fn shared(&self, database: &Proxy) -> Vec<(String, String)> {
        let set = |name: &str, value: String| (format!("HOLDFAST_{name}"), value);
        vec![
            set("FAILPOINTS", String::new()),
            set("DATABASE__URL", database.through(&self.database.url())),
            set("NATS__URL", self.proxies.nats.through(self.nats.url())),
            set("NATS__PREFIX", self.nats.prefix().to_owned()),
            set("REDIS__URL", self.proxies.redis.through(self.redis.url())),
            set("REDIS__PREFIX", self.redis.prefix().to_owned()),
            set("MESH__SECRET", MESH_SECRET.to_owned()),
            set("SECRETS__KEK", STANDARD.encode([7; 32])),
            set("SECRETS__PEPPER", PEPPER.to_owned()),
            set("TELEMETRY__LOG", log_level()),
        ]
    }

    fn gateway(&self, number: usize, program: PathBuf) -> anyhow::Result<(Node, SocketAddr)> {
        let (http, grpc) = (port()?, port()?);
        let mut env = self.shared(&self.proxies.gateway_database);
        env.push(("HOLDFAST_GATEWAY__HTTP".to_owned(), http.to_string()));
        env.push(("HOLDFAST_GATEWAY__GRPC".to_owned(), grpc.to_string()));
        env.push(("HOLDFAST_GATEWAY__SHUTDOWN_GRACE".to_owned(), "5s".to_owned()));
        let name = format!("gateway-{number}");
        let args = vec!["gateway".to_owned()];
        Ok((Node::new(Spec { name, role: Role::Gateway, program, args, env, http })?, grpc))
    }

    fn runner(&self, number: usize, plan: &Plan) -> anyhow::Result<Node> {
        let http = port()?;
        let mut env = self.shared(&self.proxies.runner_database);
        let sweep = (plan.lease / 3).min(Duration::from_secs(1)).as_millis();
        env.extend([
            ("HOLDFAST_RUNNER__LISTEN".to_owned(), http.to_string()),
            ("HOLDFAST_RUNNER__LEASE".to_owned(), format!("{}ms", plan.lease.as_millis())),
            ("HOLDFAST_RUNNER__SWEEP".to_owned(), format!("{sweep}ms")),
            ("HOLDFAST_RUNNER__SLOTS".to_owned(), plan.slots.to_string()),
            ("HOLDFAST_RUNNER__SHUTDOWN_GRACE".to_owned(), "10s".to_owned()),
            ("HOLDFAST_FAILPOINTS".to_owned(), plan.failpoints.clone()),
            ("CHAOS_WORLD_URL".to_owned(), self.fakes.world.url()),
        ]);
        let name = format!("runner-{number}");
        let program = plan.runner.clone();
        Node::new(Spec { name, role: Role::Runner, program, args: Vec::new(), env, http })
    }

    fn bridge(&self, number: usize, program: PathBuf) -> anyhow::Result<Node> {
        let http = port()?;
        let gateway = self.grpc.get(number % self.grpc.len().max(1)).context("no gateway")?;
        let mut env = self.shared(&self.proxies.bridge_database);
        env.extend([
            ("HOLDFAST_BRIDGE__LISTEN".to_owned(), http.to_string()),
            ("HOLDFAST_BRIDGE__TELEGRAM__API_BASE".to_owned(), self.fakes.telegram.url()),
            ("HOLDFAST_BRIDGE__TELEGRAM__POLL_TIMEOUT".to_owned(), "2s".to_owned()),
            ("HOLDFAST_BRIDGE__WEBHOOK__ALLOW_PRIVATE".to_owned(), "true".to_owned()),
            ("HOLDFAST_BRIDGE__REFRESH".to_owned(), "1s".to_owned()),
            ("HOLDFAST_MESH__GATEWAY_URL".to_owned(), format!("http://{gateway}")),
        ]);
        let name = format!("bridge-{number}");
        let args = vec!["channel-bridge".to_owned()];
        Node::new(Spec { name, role: Role::Bridge, program, args, env, http })
    }
}

/// What the processes log; their output is shown where a test fails.
fn log_level() -> String {
    std::env::var("HOLDFAST_CHAOS_LOG").unwrap_or_else(|_| "warn".to_owned())
}

/// A free port below the ones that connections are made from: those could take it while its
/// process is down.
fn port() -> anyhow::Result<SocketAddr> {
    for _ in 0..200 {
        let addr = SocketAddr::from(([127, 0, 0, 1], rand::random_range(20_000..32_000)));
        if TcpListener::bind(addr).is_ok() {
            return Ok(addr);
        }
    }
    bail!("no port is free between 20000 and 32000")
}
