//! Composition root of the gateway.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use axum::middleware::{from_fn, from_fn_with_state};
use holdfast_bus::{Bus, ProcessReport, RequestKeys};
use holdfast_directory::Directory;
use holdfast_doors::serve_behind_proxies;
use holdfast_grpc::{ClientCertificateLayer, SecretsClient, Signer};
use holdfast_kit::{Check, Readiness, Tasks, config::reload::Current, net, tls::Tls};
use holdfast_lock::Locks;
use holdfast_pg::{FailureLog, Pools};
use holdfast_proposals::Proposals;
use holdfast_rollback::StepRollback;
use holdfast_schedule::store::{Calendar, JobSigner, Jobs};
use holdfast_session::Sessions;
use holdfast_skills::{Finder, Registries, SkillLibrary};
use holdfast_work::Work;
use holdfast_workspace::Workspaces;
use secrecy::ExposeSecret as _;
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::{
    Config,
    auth::Authenticator,
    console::{self, Console},
    control::{
        self,
        operations::{
            mesh::{self, Mesh},
            security::{self, Security},
        },
        schedules::{self, Schedules},
    },
    cors,
    events::{self, EventSource},
    follow::Follower,
    grpc::{self, ChannelIngest, Messages},
    http,
    ingest::Ingest,
    mcp::{self, sign_in::SignIn},
    nodes,
    oidc::TokenVerifier,
    openai::{AudioProviders, OpenAi},
    ws,
};

/// Interval of the database check.
const DATABASE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Delay before jobs of the version before are signed, if that failed.
const SIGNING_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Time before the end of the grace period at which open streams are told to reconnect.
const STREAM_END_MARGIN: Duration = Duration::from_secs(1);

/// The gateway with its ports bound, not yet serving.
#[derive(Debug)]
pub struct App {
    settings: Current<Config>,
    http: TcpListener,
    grpc: TcpListener,
    websocket: Option<TcpListener>,
    pools: Pools,
    bus: Bus,
    locks: Locks,
    directory: Directory,
    /// Keys that sign jobs.
    job_signer: JobSigner,
    signer: Option<Signer>,
    tls: Tls,
}

impl App {
    /// Binds the ports and prepares the connections to the backends, none of which need be
    /// reachable yet.
    ///
    /// # Errors
    ///
    /// If a port is taken or a setting cannot be used.
    pub async fn connect(settings: impl Into<Current<Config>>) -> anyhow::Result<Self> {
        let settings = settings.into();
        let config = settings.get();
        config.check()?;
        ensure!(
            !config.secrets.pepper.expose_secret().is_empty(),
            "`secrets.pepper` is not set, with which API keys are hashed: make one with `openssl \
             rand -base64 32`, the same for all services"
        );
        let http = net::listen(config.gateway.http, "gateway.http").await?;
        let grpc = net::listen(config.gateway.grpc, "gateway.grpc").await?;
        let websocket = match config.gateway.websocket.listen {
            Some(address) => Some(net::listen(address, "gateway.websocket.listen").await?),
            None => None,
        };
        let pools = Pools::lazy(&config.database, "gateway")?;
        let bus = Bus::connect(&config.nats, "holdfast-gateway").await?;
        let locks = Locks::connect_lazy(&config.redis)?;
        let tls = Tls::load(&config.tls)?;
        let secrets = SecretsClient::configured(&config.secrets, &config.mesh, &tls, "gateway")
            .context("`mesh.secrets_url` cannot be used")?;
        let directory = Directory::with_secrets_service(pools.clone(), &config.secrets, secrets)?;
        let job_signer = JobSigner::default();
        let keys_of = (directory.clone(), job_signer.clone());
        RequestKeys::load(&bus, move || {
            let (directory, job_signer) = keys_of.clone();
            async move {
                job_signer.set_keys(directory.job_keys().await?);
                directory.request_keys().await
            }
        });
        let signer = signer(&config)?;
        Ok(Self {
            settings,
            http,
            grpc,
            websocket,
            pools,
            bus,
            locks,
            directory,
            job_signer,
            signer,
            tls,
        })
    }

    pub fn http_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.http.local_addr()?)
    }

    pub fn grpc_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.grpc.local_addr()?)
    }

    /// Address of the WebSocket gateway, which may be that of HTTP.
    fn websocket_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.websocket.as_ref().unwrap_or(&self.http).local_addr()?)
    }

    /// Serves until `stop` is cancelled, then finishes the calls in flight.
    ///
    /// # Errors
    ///
    /// The first error of any of its tasks.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let websocket = self.websocket_address()?;
        info!(http = %self.http_address()?, grpc = %self.grpc_address()?, %websocket, "serving");
        let Self {
            settings,
            http,
            grpc,
            websocket,
            pools,
            bus,
            locks,
            directory,
            job_signer,
            signer,
            tls,
        } = self;
        // Of the start: what is read here needs a restart to change.
        let config = settings.get();
        let (gateway, grace) = (&config.gateway, config.gateway.shutdown_grace);
        let proxies = config.proxies.clone();
        let (http_tls, grpc_tls) = (tls.server()?, tls.mesh_server()?);
        let address = console::address(&config, http.local_addr()?, http_tls.is_some());

        let readiness = Readiness::new();
        let database = readiness.check("database");
        let cut = CancellationToken::new();
        let sessions = Sessions::new(pools.clone());
        let memory = memory(&config, signer.as_ref(), &tls)?;
        let embeddings = memory.clone();
        let workspaces = Workspaces::new(pools.clone());
        let registries = Registries::from_configs(&config.skills.registries)?;
        let state = control::State {
            directory: directory.clone(),
            sessions: sessions.clone(),
            bus: bus.clone(),
            jobs: Jobs::new(pools.clone(), Arc::new(Calendar::default())).with_signer(job_signer),
            work: Work::new(pools.clone()),
            rollback: StepRollback::new(
                pools.clone(),
                sessions.clone(),
                workspaces.clone(),
                memory.clone(),
            ),
            proposals: Proposals::new(pools.clone(), directory.clone(), workspaces.clone()),
            memory,
            library: SkillLibrary::new(workspaces.clone(), Arc::new(Finder::new(registries))),
            workspaces,
            egress: config.egress.guard()?,
            provider_egress: config.egress.provider_guard()?,
            node_command_key: holdfast_grpc::node_public_key(&config.mesh)?.into(),
        };
        let guard = state.provider_egress.clone();
        let jobs = state.jobs.clone();
        let audio =
            AudioProviders::new(directory.clone(), sessions.clone(), guard, config.audio.clone());
        let tokens = TokenVerifier::new(&config.oidc)?;
        let doorman = Authenticator::new(
            directory.clone(),
            locks.clone(),
            signer,
            tokens.clone(),
            settings.clone(),
        );
        let ingest = Ingest::new(directory, sessions.clone(), bus.clone(), gateway.text_limit)
            .with_files(state.workspaces.clone());
        let follower = Follower::new(sessions, bus.clone(), cut.clone());

        let messages = Messages::new(ingest.clone(), follower.clone());
        let services = grpc::routes(messages, gateway.body_limit);
        let services = control::add_services(services, &state, gateway.body_limit);
        let schedules = Schedules {
            state: state.clone(),
            jobs: state.jobs.clone().with_limits(config.schedules.limits()),
            rules: config.schedules.clone(),
        };
        let mesh = (ingest.clone(), follower.clone());
        let parts = (doorman.clone(), state.clone(), schedules.clone());
        let event_source = EventSource::new(state.sessions.clone(), cut.clone());
        let served = (settings.clone(), stop.clone());
        let sockets = ws::Service::new(mesh.clone(), parts, served, event_source.clone());
        let services = schedules::add_service(services, schedules, gateway.body_limit);
        let security = Security { state: state.clone(), settings: settings.clone() };
        let services = security::add_service(services, security, gateway.body_limit);
        let services =
            events::add_services(services, &state, event_source.clone(), gateway.body_limit);
        let services = nodes::add_service(services, &state, &stop, gateway.body_limit);
        let operated = Mesh { state: state.clone(), pools: pools.clone(), locks: locks.clone() };
        let services = mesh::add_service(services, operated, gateway.body_limit);
        let links = (settings.clone(), address);
        let services = console::add_service(services, &state, links, gateway.body_limit);
        let page = Console::new(
            (doorman.clone(), tokens),
            settings.clone(),
            Arc::clone(&sockets),
            http_tls.is_some(),
        );
        let docs = gateway.docs.enabled.then(|| console::docs_router(page.clone()));
        let page = gateway.console.enabled.then(|| console::router(page, services.clone()));
        let channels = ChannelIngest::new(ingest.clone(), doorman.clone());
        let services = grpc::add_ingest(services, channels, gateway.body_limit);
        let grpc_router =
            grpc::router(services, doorman.clone(), &readiness, gateway.has_reflection())?
                .layer(ClientCertificateLayer::new(tls.caller_certificates()));
        let (mesh, bounds) = mcp::service(mesh, (doorman.clone(), state), &settings, cut.clone());
        let sign_in = SignIn { settings: settings.clone(), has_tls: http_tls.is_some() };
        let api = OpenAi::new(ingest, follower, settings, embeddings, audio);
        let origins = cors::Origins::new(&gateway.cors_origins);
        let http_router = http::router(
            api,
            (mesh, bounds, sign_in),
            doorman,
            readiness.clone(),
            &config.telemetry,
            grpc.local_addr()?,
        )
        .layer(from_fn_with_state(origins, cors::allow));
        let sockets_router = ws::router(Arc::clone(&sockets));
        let http_router = match &websocket {
            Some(_) => http_router,
            None => http_router.merge(sockets_router.clone()),
        };
        let http_router = match page {
            Some(page) => http_router.merge(page).layer(from_fn(console::redirect_root)),
            None => http_router,
        };
        let http_router = http_router.merge(docs.unwrap_or_default());

        let mut tasks = Tasks::new(stop.clone());
        if let Some(listener) = websocket {
            let (edge, stop) = ((http_tls.clone(), proxies.clone()), stop.clone());
            tasks.spawn("websocket", serve_behind_proxies(listener, sockets_router, edge, stop));
        }
        tasks.spawn("access of connections", Arc::clone(&sockets).watch_access());
        tasks.spawn("websocket connections", sockets.run());
        let edge = (http_tls, proxies.clone());
        tasks.spawn("http", serve_behind_proxies(http, http_router, edge, stop.clone()));
        let edge = (grpc_tls, proxies);
        tasks.spawn("grpc", serve_behind_proxies(grpc, grpc_router, edge, stop.clone()));
        tasks.spawn("events", event_source.watch(bus.clone(), stop.clone()));
        tasks.spawn("process report", report_process(bus.clone(), stop.clone()));
        tasks.spawn("database", watch_database(pools.clone(), database, stop.clone()));
        tasks.spawn("signatures of jobs", sign_jobs(jobs, stop.clone()));
        tasks.spawn("drain", drain(readiness, stop));
        let outcome = tasks.run_and_cut(grace, (cut, STREAM_END_MARGIN)).await;
        bus.flush().await;
        pools.close().await;
        outcome
    }
}

/// Answers operators who ask which processes there are, until `stop`.
async fn report_process(bus: Bus, stop: CancellationToken) -> anyhow::Result<()> {
    let id = Uuid::new_v4().simple();
    let report = ProcessReport::starting("gateway", id, env!("CARGO_PKG_VERSION"));
    ProcessReport::serve(&bus, || report.clone(), stop).await;
    Ok(())
}

/// Signs the jobs that are there from versions before signatures, and waits for `stop`.
async fn sign_jobs(jobs: Jobs, stop: CancellationToken) -> anyhow::Result<()> {
    let failures = FailureLog::new("jobs of the version before are not signed yet");
    loop {
        match stop.run_until_cancelled(jobs.sign_recorded_jobs()).await {
            None => return Ok(()),
            Some(Ok(0)) => break,
            Some(Ok(_)) => failures.on_success(),
            Some(Err(error)) => {
                failures.on_failure(&error);
                let _ = stop.run_until_cancelled(sleep(SIGNING_RETRY_DELAY)).await;
            }
        }
    }
    stop.cancelled().await;
    Ok(())
}

/// Signer that verifies calls from other services; `None` without a mesh secret.
fn signer(config: &Config) -> anyhow::Result<Option<Signer>> {
    if !config.mesh.has_keys() {
        warn!("`mesh.caller_keys` is not set, nor `mesh.secret`: no bridge is let in");
        return Ok(None);
    }
    Ok(Some(Signer::new(&config.mesh).context("`[mesh]` cannot be used")?))
}

/// Client of the memory service; `None` without a mesh secret to sign calls with.
fn memory(
    config: &Config,
    signer: Option<&Signer>,
    tls: &Tls,
) -> anyhow::Result<Option<holdfast_grpc::MemoryClient>> {
    let Some(signer) = signer else { return Ok(None) };
    let mesh = holdfast_grpc::Mesh::new(signer.clone(), "gateway").with_tls(tls.clone());
    let memory = holdfast_grpc::MemoryClient::new(&config.mesh.memory_url, mesh);
    memory.map(Some).context("`mesh.memory_url` cannot be used")
}

/// Keeps the database's readiness check up to date until `stop`.
async fn watch_database(pools: Pools, check: Check, stop: CancellationToken) -> anyhow::Result<()> {
    if holdfast_pg::wait_until_ready(&pools, stop.cancelled()).await.is_err() {
        return Ok(());
    }
    check.pass();
    if let Err(error) = holdfast_pg::log_durability(&pools).await {
        warn!(%error, "the database's settings cannot be read");
    }
    let mut timeline = holdfast_pg::detect_failover(&pools, None).await.ok();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = sleep(DATABASE_CHECK_INTERVAL) => {}
        }
        match pools.ping().await {
            Ok(()) => check.pass(),
            Err(_) => check.fail(),
        }
        timeline = holdfast_pg::detect_failover(&pools, timeline).await.ok().or(timeline);
    }
}

/// Fails readiness at `stop`.
async fn drain(readiness: Readiness, stop: CancellationToken) -> anyhow::Result<()> {
    stop.cancelled().await;
    readiness.drain();
    Ok(())
}
