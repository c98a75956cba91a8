//! Composition root of the runner.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context as _;
use holdfast_bus::{Bus, RunnerAbout};
use holdfast_directory::{Directory, Seal};
use holdfast_doors as doors;
use holdfast_grpc::Signer;
use holdfast_jobs::{Calendar, Jobs};
use holdfast_kit::{Readiness, Tasks, net};
use holdfast_llm::{Model, Models};
use holdfast_lock::Locks;
use holdfast_pg::{Pools, wait_for};
use holdfast_session::Sessions;
use holdfast_skills::{Finder, Library, Registries, SkillTools as _};
use holdfast_tools::{
    Canvas, ChainRun, Cron, DIRECT, Gateway, Output, Registry, SchedulerAdd, SchedulerCancel,
    SchedulerList, SessionsMerge, SessionsSend, SessionsSpawn, SubagentsTool, Tool,
};
use holdfast_types::RunnerId;
use holdfast_workspace::Workspaces;
use secrecy::ExposeSecret as _;
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{info, warn};

use crate::{
    about,
    agents::Agents,
    config::Config,
    connections::Vault,
    extraction::{self, Hints},
    files::Store,
    heartbeat,
    held::Held,
    indexing,
    mcp::{self, Mcp},
    memory::Memory,
    mesh::Inside,
    nodes::Nodes,
    policies::{self, Policies},
    pool::{self, Pool},
    prompts::Prompts,
    schedules::Schedules,
    shell::{self, Shell},
    skills::{self, Home, Shelves},
    studio::Providers,
    subagents, summaries, turn_index, upkeep,
    worker::{Toolbox, Worker},
    zone::Zones,
};

#[derive(Debug)]
pub struct App {
    config: Config,
    id: RunnerId,
    listener: TcpListener,
    pools: Pools,
    sessions: Sessions,
    directory: Directory,
    bus: Bus,
    locks: Locks,
    models: Models,
    held: Arc<Held>,
    tools: Registry,
    workspaces: Workspaces,
    library: Library,
    shell: Option<Shell>,
    about: RunnerAbout,
    mcp: Mcp,
    studio: Arc<Providers>,
    memory: Option<Arc<Memory>>,
}

impl App {
    /// Binds the port and prepares the backends' clients; the backends need not be reachable yet.
    ///
    /// # Errors
    ///
    /// If the port is taken or the configuration is invalid.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        config.runner.check()?;
        let listener = net::listen(config.runner.listen, "runner.listen").await?;
        let pools = Pools::lazy(&config.database, "runner")?;
        let seal = Seal::new(&config.secrets.kek)?;
        let directory = Directory::new(pools.clone(), seal, config.secrets.pepper.clone());
        let bus = Bus::connect(&config.nats, "holdfast-runner").await?;
        let locks = Locks::connect_lazy(&config.redis)?;
        let sessions = Sessions::new(pools.clone()).with_lease(config.runner.lease);
        let held = Arc::new(Held::default());
        let workspaces = Workspaces::new(pools.clone());
        let held_here = Arc::clone(&held);
        let registries = Registries::of(&config.skills.registries)?;
        let library = Library::new(workspaces.clone(), Arc::new(Finder::new(registries)));
        let files = Arc::new(Store::new(library.clone(), Arc::clone(&held)));
        let mesh = Inside::new(sessions.clone(), directory.clone(), bus.clone(), held_here)
            .with_files(Arc::clone(&files));
        let mesh = Arc::new(mesh);
        let parts = shell::Parts {
            workspaces: workspaces.clone(),
            held: Arc::clone(&held),
            sessions: sessions.clone(),
            bus: bus.clone(),
        };
        let (shell, about) = match Shell::open(&config.runner, parts).await? {
            Ok(shell) => {
                let about = RunnerAbout { sandbox: shell.backend(), ..RunnerAbout::default() };
                (Some(shell), about)
            }
            Err(no_commands) => (None, RunnerAbout { no_commands, ..RunnerAbout::default() }),
        };
        let media = config.runner.media.clone();
        let studio = Arc::new(Providers::new(directory.clone(), Arc::clone(&held), media)?);
        let jobs = Jobs::new(pools.clone(), Arc::new(Calendar::default()))
            .with_limits(config.schedules.limits());
        let schedules = Arc::new(Schedules::new(Arc::clone(&mesh), jobs, config.schedules.clone()));
        let memory = memory(&config, &held)?;
        let mut tools = Registry::of_mesh(Arc::clone(&mesh))
            .with(SessionsSpawn(Arc::clone(&mesh)))
            .with(Gateway(Arc::clone(&mesh)))
            .with(SubagentsTool(Arc::clone(&mesh)))
            .with(ChainRun(Arc::clone(&mesh)))
            .with(SessionsMerge(Arc::clone(&mesh)))
            .with(Canvas(Arc::clone(&mesh)))
            .with(SessionsSend(Arc::clone(&mesh)))
            .with(SchedulerAdd(Arc::clone(&schedules)))
            .with(SchedulerList(Arc::clone(&schedules)))
            .with(SchedulerCancel(Arc::clone(&schedules)))
            .with(Cron(schedules))
            .with_files(Arc::clone(&files))
            .with_images(Arc::clone(&files), Arc::clone(&studio))
            .with_speech(Arc::clone(&studio))
            .with_web(&config.runner.web)?
            .with_browser(&config.runner.browser, &config.runner.web)?
            .with_connections(
                Arc::new(Vault::new(directory.clone(), Arc::clone(&held))),
                &config.runner.web,
            )?
            .with_nodes(Arc::new(Nodes::new(directory.clone(), bus.clone(), Arc::clone(&held))))
            .with_skills(
                Arc::new(Home::new(library.clone(), Arc::clone(&held))),
                Arc::clone(library.finder()),
                *library.limits(),
            )
            .disclosing(DIRECT.iter().copied());
        if let Some(shell) = &shell {
            tools = tools.with_commands(Arc::new(shell.clone()));
        }
        if let Some(memory) = &memory {
            tools = tools.with_memory(Arc::clone(memory), files);
        }
        let walls = config.runner.sandbox.clone();
        let mcp = Mcp::new(directory.clone(), &config.runner.mcp, walls)?;
        let models = Models::new([])?;
        let id = RunnerId::generate();
        Ok(Self {
            config,
            id,
            listener,
            pools,
            sessions,
            directory,
            bus,
            locks,
            models,
            held,
            tools,
            workspaces,
            library,
            shell,
            about,
            mcp,
            studio,
            memory,
        })
    }

    /// Adds a tool that every agent has. Replaces a built-in tool of the same name.
    #[must_use]
    pub fn with_tool<A: Into<Output> + Send + 'static>(mut self, tool: impl Tool<A>) -> Self {
        self.tools = self.tools.with(tool);
        self
    }

    /// Uses this model for agents whose provider is the built-in `demo`.
    #[must_use]
    pub fn with_demo(mut self, model: Arc<dyn Model>) -> Self {
        self.models = self.models.with_shared("demo", model);
        self
    }

    #[must_use]
    pub const fn id(&self) -> RunnerId {
        self.id
    }

    /// Address of health and metrics.
    pub fn address(&self) -> std::io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Runs sessions until `stop`, then lets turns reach the end of a step and releases the
    /// sessions.
    ///
    /// # Errors
    ///
    /// The first failure of any of its tasks.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self {
            config,
            id,
            listener,
            pools,
            sessions,
            directory,
            bus,
            locks,
            models,
            held,
            tools,
            workspaces,
            library,
            shell,
            about,
            mcp,
            studio,
            memory,
        } = self;
        let readiness = Readiness::new();
        let database = readiness.check("database");
        let grace = config.runner.shutdown_grace + Duration::from_secs(4);
        let approval_timeout = config.runner.approval_timeout;
        let bins = match shell {
            Some(_) => tokio::task::spawn_blocking(skills::commands).await?,
            None => BTreeSet::new(),
        };
        let shelves = Shelves::new(library, directory.clone(), bins);
        let worker = Arc::new(Worker {
            id,
            config: config.runner,
            sessions,
            zones: Zones::default(),
            agents: Agents::new(
                directory.clone(),
                workspaces.clone(),
                shelves,
                models,
                locks.clone(),
            )?
            .with_approval_timeout(approval_timeout),
            workspaces,
            policies: Policies::new(directory.clone()),
            studio,
            directory,
            bus: bus.clone(),
            locks: locks.sessions(id),
            leases: locks,
            summaries: summaries::Queue::default(),
            prompts: Prompts::default(),
            memory,
            extract: Hints::default(),
            tools: Arc::new(Toolbox::new(tools)?),
            mcp,
            held,
            wake: Notify::new(),
            events: Notify::new(),
            ended: Notify::new(),
            draining: CancellationToken::new(),
            giving_up: CancellationToken::new(),
        });
        info!(runner.id = %id, listen = %worker.config.listen, slots = worker.config.slots, "serving");

        // Health is served and leases are renewed until the last turn has ended.
        let ended = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        tasks
            .spawn("http", doors::serve(listener, doors::health(readiness.clone()), ended.clone()));
        let answering = about::answer(bus.clone(), about, stop.clone());
        tasks.spawn("runner", {
            let (stop, ended) = (stop.clone(), ended.clone());
            async move {
                let answering = AbortOnDropHandle::new(tokio::spawn(answering));
                let outcome = run(&worker, &pools, shell, readiness, database, &stop).await;
                drop(answering);
                bus.flush().await;
                ended.cancel();
                outcome
            }
        });
        let outcome = tasks.run(grace).await;
        ended.cancel();
        outcome
    }
}

/// Client of the memory service; `None` if no mesh secret is set.
fn memory(config: &Config, held: &Arc<Held>) -> anyhow::Result<Option<Arc<Memory>>> {
    if config.mesh.secret.expose_secret().is_empty() {
        warn!("`mesh.secret` is not set: agents remember nothing");
        return Ok(None);
    }
    let signer = Signer::new(&config.mesh.secret).context("`mesh.secret` cannot be used")?;
    let mesh = holdfast_grpc::Mesh::new(signer, "agent-runner");
    let client = holdfast_grpc::Memory::new(&config.mesh.memory_url, mesh)
        .context("`mesh.memory_url` cannot be used")?;
    Ok(Some(Arc::new(Memory::new(client, Arc::clone(held)))))
}

async fn run(
    worker: &Arc<Worker>,
    pools: &Pools,
    shell: Option<Shell>,
    readiness: Readiness,
    database: holdfast_kit::Check,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    if let Err(error) = wait_for(pools, stop.cancelled()).await {
        return if stop.is_cancelled() { Ok(()) } else { Err(error) };
    }
    database.pass();
    let leases = CancellationToken::new();
    let mut loops = tokio::task::JoinSet::new();
    loops.spawn(heartbeat::beat(Arc::clone(worker), leases.clone()));
    loops.spawn(heartbeat::listen(Arc::clone(worker), leases.clone()));
    loops.spawn(pool::listen(Arc::clone(worker), stop.clone()));
    loops.spawn(upkeep::sweep(Arc::clone(worker), stop.clone()));
    loops.spawn(subagents::announce(Arc::clone(worker), stop.clone()));
    loops.spawn(summaries::write(Arc::clone(worker), stop.clone()));
    loops.spawn(extraction::run(Arc::clone(worker), stop.clone()));
    loops.spawn(indexing::run(Arc::clone(worker), stop.clone()));
    loops.spawn(turn_index::run(Arc::clone(worker), stop.clone()));
    loops.spawn(upkeep::relay(Arc::clone(worker), leases.clone()));
    loops.spawn(upkeep::measure(Arc::clone(worker), stop.clone()));
    loops.spawn(policies::announce(Arc::clone(worker), stop.clone()));
    loops.spawn(upkeep::prune(Arc::clone(worker), stop.clone()));
    if let Some(shell) = shell.clone() {
        loops.spawn(shell.clone().tidy(stop.clone()));
        let stop = stop.clone();
        loops.spawn(async move {
            stop.cancelled().await;
            shell.drain().await;
        });
    }
    loops.spawn(mcp::answer(Arc::clone(worker), stop.clone()));
    loops.spawn(mcp::tidy(Arc::clone(worker), leases.clone()));
    let drained = {
        let (readiness, stop) = (readiness, stop.clone());
        async move {
            stop.cancelled().await;
            readiness.drain();
        }
    };
    loops.spawn(drained);

    let pool = Pool::new(Arc::clone(worker), database).run(stop);
    tokio::pin!(pool);
    loop {
        tokio::select! {
            () = &mut pool => break,
            Some(ended) = loops.join_next() => {
                if let Err(panic) = ended {
                    return Err(panic).context("a loop of the runner panicked");
                }
            }
        }
    }
    if let Some(shell) = shell {
        // Commands that the last steps started.
        shell.drain().await;
    }
    worker.mcp.end().await;
    leases.cancel();
    while loops.join_next().await.is_some() {}
    Ok(())
}
