//! The mesh that is measured: real backends that keep every promise, each service as an optimized
//! process of its own, and fake models beside them.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use holdfast_directory::{
    Actor, AgentSettings, BehaviorSettings, Directory, NewAgent, NewProvider, ProviderKind,
    TenantChanges,
};
use holdfast_pg::Pools;
use holdfast_session::{Sessions, ShareChanges};
use holdfast_testkit::{Database, OwnBackends, Process};
use holdfast_types::{AgentName, QueueMode, TenantId};
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::{
    client::Client,
    models::{Model, Models},
    readiness,
};

/// Longer than anything here should take; a mesh that is not ready by then is broken.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests a minute: more than can be made, so that no limit is measured.
const REQUESTS_PER_MINUTE: u32 = 10_000_000;

/// How the mesh is set up, where that changes what is measured.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Turns that the runner runs at once.
    pub slots: u32,
    /// Sessions of the measured tenant that may be ready or running at once.
    pub cap: u32,
    /// Behaviours that the hostile tenant leaves out.
    pub left_out: Vec<String>,
}

/// Limits of the services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceLimits {
    /// Raised, so that they are not what is measured.
    Raised,
    /// Default settings.
    Default,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Gateway,
    Runner,
    Bridge,
    Scheduler,
}

impl Service {
    pub const ALL: [Self; 4] = [Self::Gateway, Self::Runner, Self::Bridge, Self::Scheduler];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Runner => "agent-runner",
            Self::Bridge => "channel-bridge",
            Self::Scheduler => "scheduler",
        }
    }
}

/// A tenant that has an agent for each fake model.
#[derive(Debug, Clone)]
pub struct Tenant {
    pub id: TenantId,
    pub key: SecretString,
}

/// A running mesh; everything ends with the value.
#[derive(Debug)]
pub struct Mesh {
    running: Vec<(Service, Process)>,
    pub models: Models,
    /// The tenant that is measured, with the cap of the setup.
    pub tenant: Tenant,
    directory: Directory,
    doors: Doors,
    secrets: Secrets,
    setup: Setup,
    limits: ServiceLimits,
    program: PathBuf,
    database: Database,
    /// Folders of commands.
    scratch: TempDir,
    // The last to go, since everything else stands on it.
    backends: OwnBackends,
}

#[derive(Debug)]
struct Secrets {
    kek: String,
    pepper: String,
    mesh: String,
}

#[derive(Debug, Clone, Copy)]
struct Doors {
    http: SocketAddr,
    grpc: SocketAddr,
    runner: SocketAddr,
    bridge: SocketAddr,
    scheduler: SocketAddr,
}

impl Mesh {
    /// Starts everything and waits until it is ready.
    pub async fn start(setup: Setup) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("holdfast");
        ensure!(program.exists(), "there is no `{}`: `make bench` builds it", program.display());
        let backends = OwnBackends::start().await?;
        let database = Database::create_on(backends.urls()).await?;
        holdfast_pg::migrate(&database.admin_url()).await?;

        let secrets = Secrets::generate();
        let pools = pools(&database)?;
        let of_directory = holdfast_kit::config::Secrets {
            kek: secrets.kek.as_str().into(),
            pepper: secrets.pepper.as_str().into(),
            ..holdfast_kit::config::Secrets::default()
        };
        let directory = Directory::new(pools.clone(), &of_directory)?;
        let models = Models::start().await?;
        let rate = Some(REQUESTS_PER_MINUTE);
        let tenant = make_tenant(&directory, &models, "measured", rate).await?;
        let share = ShareChanges { cap: Some(setup.cap), ..ShareChanges::default() };
        Sessions::new(pools).queues().set_share(tenant.id, share).await?;

        let mut mesh = Self {
            running: Vec::new(),
            models,
            tenant,
            directory,
            doors: Doors::free()?,
            secrets,
            setup,
            limits: ServiceLimits::Raised,
            program,
            database,
            scratch: tempfile::tempdir_in("/var/tmp")?,
            backends,
        };
        for service in Service::ALL {
            mesh.launch(service).await?;
        }
        Ok(mesh)
    }

    /// Another tenant like the measured one, with the cap that tenants have.
    pub async fn tenant(&self, name: &str) -> anyhow::Result<Tenant> {
        make_tenant(&self.directory, &self.models, name, Some(REQUESTS_PER_MINUTE)).await
    }

    /// As [`Self::tenant`], with the rate of requests that tenants have.
    pub async fn limited_tenant(&self, name: &str) -> anyhow::Result<Tenant> {
        make_tenant(&self.directory, &self.models, name, None).await
    }

    /// The way in for a tenant.
    pub fn client(&self, tenant: &Tenant) -> anyhow::Result<Client> {
        Client::new(self.doors.grpc, &tenant.key)
    }

    pub const fn http(&self) -> SocketAddr {
        self.doors.http
    }

    pub const fn grpc(&self) -> SocketAddr {
        self.doors.grpc
    }

    pub const fn bridge(&self) -> SocketAddr {
        self.doors.bridge
    }

    /// The tenants and what they have, past the gateway.
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The process id of a service.
    pub fn pid(&self, service: Service) -> anyhow::Result<u32> {
        Ok(self.process(service)?.pid())
    }

    pub const fn backends(&self) -> &OwnBackends {
        &self.backends
    }

    /// The binary of the services.
    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn process(&self, service: Service) -> anyhow::Result<&Process> {
        let found = self.running.iter().find(|(running, _)| *running == service);
        let found = found.with_context(|| format!("`{}` does not run", service.name()))?;
        Ok(&found.1)
    }

    /// Kills a service as a crash would.
    pub async fn kill(&mut self, service: Service) -> anyhow::Result<()> {
        for (_, process) in self.running.iter_mut().filter(|(running, _)| *running == service) {
            process.kill().await?;
        }
        self.running.retain(|(running, _)| *running != service);
        Ok(())
    }

    /// Starts a service that does not run, and waits until it is ready.
    pub async fn launch(&mut self, service: Service) -> anyhow::Result<()> {
        let (process, _) = self.spawn(service, self.doors).await?;
        self.running.push((service, process));
        Ok(())
    }

    /// Ends all services in good order and starts them anew.
    pub async fn relaunch(&mut self) -> anyhow::Result<()> {
        for (_, process) in &mut self.running {
            process.terminate()?;
            process.wait(READY_TIMEOUT).await?;
        }
        self.running.clear();
        for service in Service::ALL {
            self.launch(service).await?;
        }
        Ok(())
    }

    /// As [`Self::relaunch`], with these limits from now on.
    pub async fn relaunch_with(&mut self, limits: ServiceLimits) -> anyhow::Result<()> {
        self.limits = limits;
        self.relaunch().await
    }

    /// How long one more replica of a service takes from its start until it is ready.
    pub async fn time_start(&self, service: Service) -> anyhow::Result<Duration> {
        let (mut process, time) = self.spawn(service, Doors::free()?).await?;
        process.terminate()?;
        process.wait(READY_TIMEOUT).await?;
        Ok(time)
    }

    async fn spawn(&self, service: Service, doors: Doors) -> anyhow::Result<(Process, Duration)> {
        let urls = self.backends.urls();
        let settings = [
            ("HOLDFAST_DATABASE__URL", self.database.url()),
            ("HOLDFAST_NATS__URL", urls.nats_url.clone()),
            ("HOLDFAST_EGRESS__ALLOW", "[\"127.0.0.1\"]".to_owned()),
            ("HOLDFAST_REDIS__URL", urls.redis_url.clone()),
            ("HOLDFAST_SECRETS__KEK", self.secrets.kek.clone()),
            ("HOLDFAST_SECRETS__PEPPER", self.secrets.pepper.clone()),
            ("HOLDFAST_MESH__SECRET", self.secrets.mesh.clone()),
            ("HOLDFAST_MESH__GATEWAY_URL", format!("http://{}", self.doors.grpc)),
            ("HOLDFAST_GATEWAY__HTTP", doors.http.to_string()),
            ("HOLDFAST_GATEWAY__GRPC", doors.grpc.to_string()),
            ("HOLDFAST_RUNNER__LISTEN", doors.runner.to_string()),
            ("HOLDFAST_RUNNER__SCRATCH__DIR", self.scratch.path().display().to_string()),
            ("HOLDFAST_BRIDGE__LISTEN", doors.bridge.to_string()),
            ("HOLDFAST_SCHEDULER__LISTEN", doors.scheduler.to_string()),
        ];
        let raised = [
            ("HOLDFAST_GATEWAY__WEBSOCKET__CONNECTIONS_PER_TENANT", "12000".to_owned()),
            ("HOLDFAST_RUNNER__SLOTS", self.setup.slots.to_string()),
        ];
        let raised = raised.into_iter().filter(|_| self.limits == ServiceLimits::Raised);
        let mut builder = Process::builder(&self.program).arg(service.name());
        for (name, value) in settings.into_iter().chain(raised) {
            builder = builder.env(name, value);
        }
        let door = match service {
            Service::Gateway => doors.http,
            Service::Runner => doors.runner,
            Service::Bridge => doors.bridge,
            Service::Scheduler => doors.scheduler,
        };
        let begun = Instant::now();
        let process = builder.spawn()?;
        while !readiness::is_ready(door).await {
            ensure!(
                begun.elapsed() < READY_TIMEOUT,
                "`{}` is not ready after {READY_TIMEOUT:?}; it said:\n{}",
                service.name(),
                process.output()
            );
            sleep(Duration::from_millis(1)).await;
        }
        Ok((process, begun.elapsed()))
    }

    /// Another database on the same server, with the schema and nothing else.
    pub async fn empty_database(&self) -> anyhow::Result<(Database, Pools)> {
        let database = Database::create_on(self.backends.urls()).await?;
        holdfast_pg::migrate(&database.admin_url()).await?;
        let pools = pools(&database)?;
        Ok((database, pools))
    }

    /// The protocol over the mesh's database, as a process of its own would use it.
    pub fn sessions(&self) -> anyhow::Result<Sessions> {
        Ok(Sessions::new(pools(&self.database)?))
    }

    /// A connection to the mesh's database as its superuser, whom row-level security does not bind.
    pub async fn admin(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.database.admin_url()).await?)
    }
}

fn pools(database: &Database) -> anyhow::Result<Pools> {
    let config = holdfast_pg::Config { url: database.url().into(), ..Default::default() };
    Pools::lazy(&config, "bench")
}

/// `rate` is the number of requests a minute; `None` is that of new tenants.
async fn make_tenant(
    directory: &Directory,
    models: &Models,
    name: &str,
    rate: Option<u32>,
) -> anyhow::Result<Tenant> {
    let by = Actor::Operator;
    let (tenant, key) = directory.tenants().create(by, name).await?;
    if rate.is_some() {
        let changes = TenantChanges { rate, ..TenantChanges::default() };
        directory.tenants().update(tenant.id, by, changes).await?;
    }
    for (model, base_url) in models.all() {
        let provider = NewProvider {
            name: model.name().to_owned(),
            kind: ProviderKind::OpenAi,
            base_url,
            api_key: Some(Uuid::now_v7().to_string().into()),
            default_model: None,
            ..NewProvider::default()
        };
        directory.providers().put(tenant.id, by, provider).await?;
        let plans = || BehaviorSettings { default: "plan".to_owned(), ..Default::default() };
        let settings = AgentSettings {
            // One run for each message, so that messages and turns are the same number.
            queue_mode: QueueMode::Followup,
            behaviors: (model == Model::Behaviors).then(plans),
            ..AgentSettings::default()
        };
        let agent = NewAgent {
            name: AgentName::new(model.name()),
            model: Some(format!("{}:fake-model", model.name())),
            settings,
            ..NewAgent::default()
        };
        directory.agents().create(tenant.id, by, agent).await?;
    }
    Ok(Tenant { id: tenant.id, key: key.expose_secret().into() })
}

impl Secrets {
    fn generate() -> Self {
        let kek = [Uuid::now_v7().into_bytes(), Uuid::now_v7().into_bytes()].concat();
        Self {
            kek: BASE64_STANDARD.encode(kek),
            pepper: Uuid::now_v7().to_string(),
            mesh: Uuid::now_v7().to_string(),
        }
    }
}

impl Doors {
    /// Ports that nobody listens on. All are held while they are chosen, so that they differ.
    fn free() -> anyhow::Result<Self> {
        let held: Vec<TcpListener> = (0..5)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<std::io::Result<_>>()?;
        let at = |n: usize| held[n].local_addr();
        Ok(Self { http: at(0)?, grpc: at(1)?, runner: at(2)?, bridge: at(3)?, scheduler: at(4)? })
    }
}
