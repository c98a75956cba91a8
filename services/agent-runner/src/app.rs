//! Composition root of the runner.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use holdfast_bus::{Bus, RequestKeys, RunnerReport};
use holdfast_directory::Directory;
use holdfast_documents::DocumentReader;
use holdfast_doors as doors;
use holdfast_grpc::{NodeCommandSigner, SecretsClient, Signer};
use holdfast_kit::{Readiness, Tasks, net, tls::Tls};
use holdfast_llm::{Model, Models, WorkloadIdentity};
use holdfast_lock::Locks;
use holdfast_pg::{Pools, wait_until_ready};
use holdfast_proposals::Proposals;
use holdfast_schedule::store::{Calendar, JobSigner, Jobs};
use holdfast_session::Sessions;
use holdfast_skills::{Finder, Registries, SkillLibrary, WithSkillTools as _};
use holdfast_tools::{
    Browser, Canvas, ChainRun, Cron, DEFAULT_DIRECT_TOOLS, Gateway, Output, Read, Registry,
    SchedulerAdd, SchedulerCancel, SchedulerList, SelfTool, SessionsMerge, SessionsSend,
    SessionsSpawn, SubagentsTool, TodoTool, Tool, WalletTool,
};
use holdfast_types::RunnerId;
use holdfast_work::{InternalCurrency, Work};
use holdfast_workspace::Workspaces;
use secrecy::ExposeSecret as _;
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{info, warn};

use crate::{
    agents::{
        preferences::PreferenceCache,
        prompts::PromptCache,
        selections::SelectionCache,
        skills::{self, SkillLoader},
        snapshots::Agents,
    },
    background::{
        announcements, event_log, extraction, indexing, lease_renewal, maintenance, mcp_servers,
        questions, runner_renewal, runner_report, self_improvement, summaries, tenant_deletion,
        tenant_events, tenant_limits, tool_list, turn_index, webhooks, work,
    },
    config::Config,
    held_state::HeldState,
    leases::Leases,
    pool::{self, Pool},
    queues::{self, ExtractionQueue},
    tools::{
        connections::SessionConnections,
        files::WorkspaceFiles,
        lost_state::Losses,
        mcp::Mcp,
        media_providers::MediaProviders,
        memory::Memory,
        mesh::SessionTools,
        nodes::SessionNodes,
        policies::Policies,
        schedules::ScheduleTools,
        search_accounts::TenantSearchAccounts,
        session_skills::SessionSkills,
        shell::{self, Shell},
        tool_set::ToolSet,
        work::{
            self_records::{SelfRecords, proposals::AgentProposals},
            todos::TodoLists,
            wallets::AgentWallets,
        },
    },
    upkeep::UpkeepDuty,
    worker::Worker,
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
    job_signer: JobSigner,
    models: Models,
    leases: Arc<Leases>,
    tools: Registry,
    workspaces: Workspaces,
    library: SkillLibrary,
    shell: Option<Shell>,
    held: HeldState,
    about: RunnerReport,
    mcp: Arc<Mcp>,
    media_providers: Arc<MediaProviders>,
    memory: Option<Arc<Memory>>,
    tls: Tls,
}

impl App {
    /// Binds the port and prepares the backends' clients; the backends need not be reachable yet.
    ///
    /// # Errors
    ///
    /// If the port is taken or the configuration is invalid.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        config.runner.check()?;
        config.tls.check_listener("runner.listen", config.runner.listen)?;
        let tls = Tls::load(&config.tls)?;
        let listener = net::listen(config.runner.listen, "runner.listen").await?;
        let pools = Pools::lazy(&config.database, "runner")?;
        config.runner.check_login(pools.login_scope())?;
        let secrets =
            SecretsClient::configured(&config.secrets, &config.mesh, &tls, "agent-runner")
                .context("`mesh.secrets_url` cannot be used")?;
        let mut directory =
            Directory::with_secrets_service(pools.clone(), &config.secrets, secrets)?;
        if !config.runner.has_demo_model() {
            directory = directory.without_demo_model();
        }
        let bus = Bus::connect(&config.nats, "holdfast-runner").await?;
        let job_signer = JobSigner::default();
        let keys_of = (directory.clone(), job_signer.clone());
        RequestKeys::load(&bus, move || {
            let (directory, job_signer) = keys_of.clone();
            async move {
                job_signer.set_keys(directory.job_keys().await?);
                directory.request_keys().await
            }
        });
        let locks = Locks::connect_lazy(&config.redis)?;
        let sessions = Sessions::new(pools.clone())
            .with_lease(config.runner.lease)
            .with_holder_wait(config.runner.holder_wait)
            .in_pool(config.runner.pool()?);
        let leases = Arc::new(Leases::default());
        let workspaces = Workspaces::new(pools.clone());
        let registries = Registries::from_configs(&config.skills.registries)?;
        let library = SkillLibrary::new(workspaces.clone(), Arc::new(Finder::new(registries)));
        let files = Arc::new(WorkspaceFiles::new(library.clone()));
        let documents =
            DocumentReader::of_current_exe().context("this program's own file cannot be found")?;
        let mesh = SessionTools::new(sessions.clone(), directory.clone(), bus.clone())
            .with_files(Arc::clone(&files));
        let mesh = Arc::new(mesh);
        let parts = shell::ShellBackends {
            workspaces: workspaces.clone(),
            sessions: sessions.clone(),
            bus: bus.clone(),
        };
        let (shell, about) = match Shell::open(&config.runner, parts).await? {
            Ok(shell) => {
                let about =
                    RunnerReport { sandbox: shell.sandbox_report(), ..RunnerReport::default() };
                (Some(shell), about)
            }
            Err(no_commands) => (None, RunnerReport { no_commands, ..RunnerReport::default() }),
        };
        let media = (config.runner.media.clone(), config.audio.clone());
        let guard = config.egress.guard()?;
        let studio = Arc::new(MediaProviders::new(
            directory.clone(),
            media,
            config.egress.provider_guard()?,
        ));
        let jobs = Jobs::new(pools.clone(), Arc::new(Calendar::default()))
            .with_limits(config.schedules.limits())
            .with_signer(job_signer.clone());
        let schedules =
            Arc::new(ScheduleTools::new(Arc::clone(&mesh), jobs, config.schedules.clone()));
        let memory = memory_client(&config, &tls)?;
        let search = Arc::new(TenantSearchAccounts::new(directory.clone()));
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
            .with(TodoTool(Arc::new(TodoLists {
                work: Work::new(pools.clone()),
                sessions: sessions.clone(),
            })))
            .with(SelfTool {
                files: Arc::clone(&files),
                log: Arc::new(SelfRecords {
                    work: Work::new(pools.clone()),
                    sessions: sessions.clone(),
                }),
                proposals: Arc::new(AgentProposals {
                    proposals: Proposals::new(pools.clone(), directory.clone(), workspaces.clone()),
                    sessions: sessions.clone(),
                }),
            })
            .with(WalletTool(Arc::new(AgentWallets {
                work: Work::new(pools.clone()),
                sessions: sessions.clone(),
                provider: Arc::new(InternalCurrency),
            })))
            .with_files(Arc::clone(&files), documents)
            .with_images(Arc::clone(&files), Arc::clone(&studio))
            .with_speech(Arc::clone(&studio))
            .with_web(&config.runner.web, search, guard)?
            .with_connections(
                Arc::new(SessionConnections::new(directory.clone())),
                &config.runner.web,
            )?
            .with_nodes(session_nodes(&config, &directory, &bus)?)
            .with_skills(
                Arc::new(SessionSkills::new(library.clone())),
                Arc::clone(library.finder()),
                *library.limits(),
            )
            .with_direct_tools(DEFAULT_DIRECT_TOOLS.iter().copied());
        let browser = Browser::configured(
            &config.runner.browser,
            &config.runner.web,
            Arc::new(Losses(sessions.clone())),
        )?;
        let windows = browser.as_ref().map(Browser::windows);
        if let Some(browser) = browser {
            tools = tools.with(browser);
        }
        if let Some(shell) = &shell {
            tools = tools.with_commands(Arc::new(shell.clone()));
        }
        if let Some(memory) = &memory {
            tools = tools.with_memory(Arc::clone(memory), files);
        }
        let mcp = Arc::new(Mcp::new(directory.clone(), workspaces.clone(), &config.runner)?);
        let models = Models::demo();
        let id = RunnerId::generate();
        let held = HeldState::new((sessions.clone(), id), Arc::clone(&mcp), shell.clone(), windows);
        Ok(Self {
            config,
            id,
            listener,
            pools,
            sessions,
            directory,
            bus,
            locks,
            job_signer,
            models,
            leases,
            tools,
            workspaces,
            library,
            held,
            shell,
            about,
            mcp,
            media_providers: studio,
            memory,
            tls,
        })
    }

    /// Tools that every agent has.
    #[cfg(test)]
    pub(crate) const fn tools(&self) -> &Registry {
        &self.tools
    }

    /// Adds a tool that every agent has. Replaces a built-in tool of the same name.
    #[must_use]
    pub fn with_tool<A: Into<Output> + Send + 'static>(mut self, tool: impl Tool<A>) -> Self {
        self.tools = self.tools.with(tool);
        self
    }

    /// Sets the program that reads documents; it must call
    /// [`run_document_reader`](holdfast_documents::run_document_reader) first in its `main`.
    #[must_use]
    pub fn with_document_reader(self, program: PathBuf) -> Self {
        let files = Arc::new(WorkspaceFiles::new(self.library.clone()));
        self.with_tool(Read { files, documents: DocumentReader::new(program) })
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
            job_signer,
            models,
            leases: held,
            tools,
            workspaces,
            library,
            shell,
            held: held_state,
            about,
            mcp,
            media_providers: studio,
            memory,
            tls,
        } = self;
        let readiness = Readiness::new();
        let database = readiness.check("database");
        let grace = config.runner.shutdown_grace + Duration::from_secs(4);
        let approval_timeout = config.runner.approval_timeout;
        let guard = config.egress.guard()?;
        let identity = WorkloadIdentity::new(&config.runner.workload_identity)
            .context("`runner.workload_identity`")?;
        let bins = match shell {
            Some(_) => tokio::task::spawn_blocking(skills::sandbox_commands).await?,
            None => BTreeSet::new(),
        };
        let shelves = SkillLoader::new(library, directory.clone(), bins);
        let upkeep = UpkeepDuty::new(sessions.clone(), id, config.runner.sweep);
        let jobs =
            Jobs::new(pools.clone(), Arc::new(Calendar::default())).with_signer(job_signer.clone());
        let worker = Arc::new(Worker {
            id,
            config: config.runner,
            sessions,
            preferences: PreferenceCache::default(),
            agents: Agents::new(
                directory.clone(),
                workspaces.clone(),
                shelves,
                models,
                locks.clone(),
                config.egress.provider_guard()?,
            )?
            .with_approval_timeout(approval_timeout)
            .with_identity(identity),
            workspaces,
            policies: Policies::new(directory.clone()),
            media_providers: studio,
            directory,
            jobs,
            job_signer,
            work: Work::new(pools.clone()),
            bus: bus.clone(),
            locks: locks.sessions(id),
            redis_locks: locks,
            summaries: queues::SummaryQueue::default(),
            prompts: PromptCache::default(),
            selections: SelectionCache::default(),
            sandbox: shell.as_ref().and_then(Shell::sandbox_description),
            memory,
            extractions: ExtractionQueue::default(),
            tools: Arc::new(ToolSet::new(tools)?),
            mcp,
            held: held_state,
            leases: held,
            upkeep,
            wake: Notify::new(),
            events: Notify::new(),
            ended: Notify::new(),
            draining: CancellationToken::new(),
            giving_up: CancellationToken::new(),
        });
        info!(runner.id = %id, listen = %worker.config.listen, slots = worker.config.slots, pool = worker.config.pool, "serving");

        // Health is served and leases are renewed until the last turn has ended.
        let ended = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        let health = doors::health(readiness.clone(), &config.telemetry);
        tasks.spawn("http", doors::serve(listener, health, tls.server()?, ended.clone()));
        let answering =
            runner_report::serve_runner_report(bus.clone(), about.clone(), stop.clone());
        let reporting =
            runner_report::serve_process_report(Arc::clone(&worker), about, ended.clone());
        tasks.spawn("runner", {
            let (stop, ended) = (stop.clone(), ended.clone());
            async move {
                let answering = AbortOnDropHandle::new(tokio::spawn(answering));
                let reporting = AbortOnDropHandle::new(tokio::spawn(reporting));
                let posts = AbortOnDropHandle::new(tokio::spawn(webhooks::run(
                    Arc::clone(&worker),
                    guard,
                    stop.clone(),
                )));
                let outcome = run(&worker, &pools, shell, readiness, database, &stop).await;
                drop(posts);
                drop(answering);
                drop(reporting);
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

/// Access to nodes, with a signer of commands if there is a secret for it.
fn session_nodes(
    config: &Config,
    directory: &Directory,
    bus: &Bus,
) -> anyhow::Result<Arc<SessionNodes>> {
    let signer = NodeCommandSigner::new(&config.mesh).context("`[mesh]` cannot be used")?;
    if !config.mesh.node_key.expose_secret().is_empty() {
        let key =
            holdfast_grpc::node_public_key(&config.mesh).context("`[mesh]` cannot be used")?;
        let key = BASE64_STANDARD.encode(key);
        info!(key, "gateways need this as `mesh.node_public_key`");
    }
    Ok(Arc::new(SessionNodes::new(directory.clone(), bus.clone(), signer)))
}

/// Client of the memory service; `None` if no mesh secret is set.
fn memory_client(config: &Config, tls: &Tls) -> anyhow::Result<Option<Arc<Memory>>> {
    if !config.mesh.has_keys() {
        warn!("`mesh.key` is not set, nor `mesh.secret`: agents remember nothing");
        return Ok(None);
    }
    let signer = Signer::new(&config.mesh).context("`[mesh]` cannot be used")?;
    let mesh = holdfast_grpc::Mesh::new(signer, "agent-runner").with_tls(tls.clone());
    let client = holdfast_grpc::MemoryClient::new(&config.mesh.memory_url, mesh)
        .context("`mesh.memory_url` cannot be used")?;
    Ok(Some(Arc::new(Memory::new(client))))
}

async fn run(
    worker: &Arc<Worker>,
    pools: &Pools,
    shell: Option<Shell>,
    readiness: Readiness,
    database: holdfast_kit::Check,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    if let Err(error) = wait_until_ready(pools, stop.cancelled()).await {
        return if stop.is_cancelled() { Ok(()) } else { Err(error) };
    }
    database.pass();
    let leases = CancellationToken::new();
    let mut loops = tokio::task::JoinSet::new();
    loops.spawn(lease_renewal::renew_leases(Arc::clone(worker), leases.clone()));
    loops.spawn(runner_renewal::renew_runner(Arc::clone(worker), stop.clone()));
    loops.spawn(lease_renewal::receive_controls(Arc::clone(worker), leases.clone()));
    loops.spawn(pool::receive_wakeups(Arc::clone(worker), stop.clone()));
    loops.spawn(maintenance::sweep(Arc::clone(worker), stop.clone()));
    loops.spawn(announcements::run_announcements(Arc::clone(worker), stop.clone()));
    loops.spawn(summaries::run_summaries(Arc::clone(worker), stop.clone()));
    loops.spawn(extraction::run(Arc::clone(worker), stop.clone()));
    loops.spawn(indexing::run(Arc::clone(worker), stop.clone()));
    loops.spawn(turn_index::run(Arc::clone(worker), stop.clone()));
    loops.spawn(event_log::run(Arc::clone(worker), leases.clone()));
    loops.spawn(work::run(Arc::clone(worker), stop.clone()));
    loops.spawn(self_improvement::run(Arc::clone(worker), stop.clone()));
    loops.spawn(maintenance::measure(Arc::clone(worker), stop.clone()));
    loops.spawn(tool_list::announce_tools(Arc::clone(worker), stop.clone()));
    loops.spawn(maintenance::prune(Arc::clone(worker), stop.clone()));
    loops.spawn(tenant_deletion::run(Arc::clone(worker), stop.clone()));
    loops.spawn(tenant_events::run(Arc::clone(worker), stop.clone()));
    loops.spawn(tenant_limits::run(Arc::clone(worker), stop.clone()));
    if let Some(shell) = shell.clone() {
        loops.spawn(shell.clone().run_cleanup(stop.clone()));
        if let Some(pods) = shell.pods() {
            loops.spawn(pods.clone().run_upkeep(leases.clone()));
            loops.spawn(maintenance::sweep_pods(Arc::clone(worker), pods, stop.clone()));
        }
        let stop = stop.clone();
        loops.spawn(async move {
            stop.cancelled().await;
            shell.stop_all().await;
        });
    }
    loops.spawn(questions::answer_gateways(Arc::clone(worker), stop.clone()));
    loops.spawn(mcp_servers::close_idle_loop(Arc::clone(worker), leases.clone()));
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
        shell.stop_all().await;
        if let Some(pods) = shell.pods() {
            pods.close().await;
        }
    }
    worker.mcp.close_all().await;
    leases.cancel();
    while loops.join_next().await.is_some() {}
    Ok(())
}
