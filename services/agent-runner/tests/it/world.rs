//! Test world: a tenant with an agent, a scripted model, and runners.

use std::time::Duration;

use agent_runner::{App, Config, RunnerConfig, ScratchConfig};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_bus::{Bus, Control, ControlKind, RequestKeys};
use holdfast_directory::{
    Actor, Agent, AgentSettings, Directory, NewAgent, NewProvider, ProviderKind,
};
use holdfast_kit::config::Secrets;
use holdfast_pg::Pools;
use holdfast_schedule::store::JobSigner;
use holdfast_session::{
    Acceptance, Claim, Completion, LoadedSession, MessageStatus, NewMessage, Sessions, TurnOutcome,
};
use holdfast_testkit::{Database, FakeModel, nats, redis};
use holdfast_types::{
    AccountId, Body, Entry, QueueMode, RunnerId, SessionId, SessionKey, Source, Target, TenantId,
    Usage, Wait,
};
use holdfast_workspace::Workspaces;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

/// Longer than anything here should take.
pub const LONG: Duration = Duration::from_secs(60);

pub struct World {
    pub sessions: Sessions,
    pub directory: Directory,
    pub bus: Bus,
    pub model: FakeModel,
    pub tenant: TenantId,
    pub agent: Agent,
    /// Folder of the commands' files.
    pub scratch: tempfile::TempDir,
    pub workspaces: Workspaces,
    /// Keys of the jobs that the test makes.
    pub job_signer: JobSigner,
    database: Database,
    nats: nats::Namespace,
    redis: redis::Namespace,
}

/// A runner in this process.
pub struct Running {
    pub address: std::net::SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Asks it to stop, and waits until it has.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        (&mut self.task).await?
    }

    /// Ends it where it stands, as a crash does.
    pub fn kill(&self) {
        self.task.abort();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    pub async fn start() -> anyhow::Result<Self> {
        let database = Database::create_from(&holdfast_pg::fingerprint(), async |url: String| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        })
        .await?;
        let (nats, redis) = (nats::Namespace::create().await?, redis::Namespace::create().await?);
        let model = FakeModel::start().await?;
        // What gateways set up, with the login that may do what any service may.
        let all = holdfast_pg::Config { url: database.url().into(), ..database_config(&database) };
        let pools = Pools::lazy(&all, "test")?;
        let directory = Directory::new(pools.clone(), &secrets())?;
        let (tenant, _) = directory.tenants().create(Actor::Operator, "acme").await?;
        let agent = directory.agents().default_agent(tenant.id).await?;
        let bus_config = holdfast_bus::Config {
            url: nats.url().into(),
            prefix: nats.prefix().to_owned(),
            ..holdfast_bus::Config::default()
        };
        let bus = Bus::connect(&bus_config, "test").await?;
        RequestKeys::new(directory.request_keys().await?).install(&bus);
        let job_signer = JobSigner::default();
        job_signer.set_keys(directory.job_keys().await?);
        let world = Self {
            job_signer,
            workspaces: Workspaces::new(pools.clone()),
            sessions: Sessions::new(pools),
            directory,
            bus,
            model,
            tenant: tenant.id,
            agent,
            scratch: tempfile::tempdir()?,
            database,
            nats,
            redis,
        };
        world.use_provider(Some("key")).await?;
        Ok(world)
    }

    /// Makes the fake model the tenant's default.
    pub async fn use_provider(&self, key: Option<&str>) -> anyhow::Result<()> {
        self.put_provider(self.model.url(), key).await
    }

    /// Makes another server the tenant's default.
    pub async fn use_provider_at(&self, url: &str) -> anyhow::Result<()> {
        self.put_provider(url.to_owned(), Some("key")).await
    }

    async fn put_provider(&self, base_url: String, key: Option<&str>) -> anyhow::Result<()> {
        let provider = NewProvider {
            name: "fake".to_owned(),
            kind: ProviderKind::OpenAi,
            base_url,
            api_key: key.map(Into::into),
            default_model: Some("fake:one".to_owned()),
            ..NewProvider::default()
        };
        self.directory.providers().put(self.tenant, Actor::Operator, provider).await?;
        Ok(())
    }

    /// Changes the agent.
    pub async fn change_agent(&self, change: impl FnOnce(&mut NewAgent)) -> anyhow::Result<Agent> {
        let mut new = NewAgent {
            name: self.agent.name.clone(),
            description: self.agent.description.clone(),
            instructions: self.agent.instructions.clone(),
            model: self.agent.model.clone(),
            is_default: true,
            settings: self.agent.settings.clone(),
        };
        change(&mut new);
        let name = self.agent.name.as_str();
        Ok(self.directory.agents().update(self.tenant, Actor::Operator, name, new).await?)
    }

    /// The agent uses the built-in provider, which a test may replace.
    pub async fn use_demo(&self) -> anyhow::Result<()> {
        self.change_agent(|agent| agent.model = Some("demo:demo".to_owned())).await?;
        Ok(())
    }

    pub fn config(&self) -> Config {
        Config {
            database: database_config(&self.database),
            nats: holdfast_bus::Config {
                url: self.nats.url().into(),
                prefix: self.nats.prefix().to_owned(),
                ..holdfast_bus::Config::default()
            },
            redis: holdfast_lock::Config {
                url: self.redis.url().into(),
                prefix: self.redis.prefix().to_owned(),
                ..holdfast_lock::Config::default()
            },
            secrets: secrets(),
            egress: holdfast_egress::Config {
                allow: vec!["127.0.0.1".to_owned()],
                ..holdfast_egress::Config::default()
            },
            runner: RunnerConfig {
                listen: ([127, 0, 0, 1], 0).into(),
                slots: 8,
                // Longer than a test takes that keeps an answer back.
                model_timeout: Duration::from_secs(60),
                sweep: Duration::from_millis(200),
                shutdown_grace: Duration::from_secs(5),
                // Tests that need commands enable the sandbox.
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
            ..Config::default()
        }
    }

    /// The database, as this service logs in.
    pub fn database_of(&self, service: &str) -> holdfast_pg::Config {
        let url = self.database.service_url(service).into();
        holdfast_pg::Config { url, ..database_config(&self.database) }
    }

    /// The database, by the login of a pool of runners.
    pub async fn database_of_runner_pool(&self, pool: &str) -> anyhow::Result<holdfast_pg::Config> {
        let url = self.database.runner_pool_url(pool).await?.into();
        holdfast_pg::migrate(&self.database.admin_url()).await?;
        Ok(holdfast_pg::Config { url, ..database_config(&self.database) })
    }

    pub async fn runner(&self) -> anyhow::Result<Running> {
        self.runner_with(self.config(), |app| app).await
    }

    /// A runner that does not look after the limits of tenants. For these it would record what
    /// their files take, once a minute.
    pub async fn runner_without_tenant_limits(&self) -> anyhow::Result<Running> {
        let mut config = self.config();
        config.runner.tenant_limits = Duration::from_secs(3_600);
        self.runner_with(config, |app| app).await
    }

    pub async fn runner_with(
        &self,
        config: Config,
        change: impl FnOnce(App) -> App,
    ) -> anyhow::Result<Running> {
        let app = change(Box::pin(App::connect(config)).await?);
        let address = app.address()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(app.run(stop.clone()));
        Ok(Running { address, stop, task })
    }

    pub fn message(&self, session: &str, text: &str) -> NewMessage {
        NewMessage {
            key: SessionKey::api(&self.agent.name, session).unwrap(),
            agent: self.agent.id,
            label: None,
            source: Source::Internal("test".to_owned()),
            idem_key: uuid::Uuid::now_v7().to_string(),
            body: Body::text(text),
            target: None,
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: None,
        }
    }

    /// Accepts a message and tells runners, as the gateway does.
    pub async fn send(&self, message: NewMessage) -> anyhow::Result<Acceptance> {
        let kind = match message.mode {
            QueueMode::Interrupt => ControlKind::Interrupt,
            QueueMode::Steer
            | QueueMode::Followup
            | QueueMode::Collect
            | QueueMode::SteerBacklog => ControlKind::Input,
        };
        let accepted = self.sessions.ingest(self.tenant, message).await?;
        if let Some(delay) = accepted.wake {
            self.bus.wake_run(u64::try_from(delay.as_millis())?);
        }
        if let Some(running) = accepted.running {
            let control = Control { session: accepted.session, kind, epoch: running.epoch };
            self.bus.control(running.owner, &control);
        }
        Ok(accepted)
    }

    pub async fn say(&self, session: &str, text: &str) -> anyhow::Result<Acceptance> {
        self.send(self.message(session, text)).await
    }

    pub async fn say_as(
        &self,
        mode: QueueMode,
        session: &str,
        text: &str,
    ) -> anyhow::Result<Acceptance> {
        self.send(NewMessage { mode, ..self.message(session, text) }).await
    }

    /// Waits for the message's end.
    pub async fn answer(&self, accepted: &Acceptance) -> anyhow::Result<MessageStatus> {
        let begun = Instant::now();
        loop {
            let answer = self.sessions.views().answer(self.tenant, accepted.message).await?;
            if answer.outcome.is_some() {
                return Ok(answer);
            }
            anyhow::ensure!(begun.elapsed() < LONG, "no answer within {LONG:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Says something to another tenant's agent, and waits for the message's end.
    pub async fn answer_in(
        &self,
        tenant: TenantId,
        message: NewMessage,
    ) -> anyhow::Result<MessageStatus> {
        let accepted = self.sessions.ingest(tenant, message).await?;
        self.bus.wake_run(0);
        self.until("the other tenant is answered", async || {
            let answer = self.sessions.views().answer(tenant, accepted.message).await;
            answer.is_ok_and(|answer| answer.outcome.is_some())
        })
        .await?;
        Ok(self.sessions.views().answer(tenant, accepted.message).await?)
    }

    /// Text of the answer to a message, if there is one.
    pub async fn text(&self, accepted: &Acceptance) -> anyhow::Result<String> {
        let answer = self.answer(accepted).await?;
        anyhow::ensure!(answer.outcome == Some(TurnOutcome::Completed), "{answer:?}");
        Ok(answer.text)
    }

    pub async fn ask(&self, session: &str, text: &str) -> anyhow::Result<String> {
        self.text(&self.say(session, text).await?).await
    }

    pub async fn journal(&self, session: SessionId) -> anyhow::Result<Vec<Entry>> {
        let entries = self.sessions.views().history(self.tenant, session, 500, None).await?;
        Ok(entries.into_iter().map(|view| view.entry).collect())
    }

    /// The kinds of a session's entries, in order.
    pub async fn kinds(&self, session: SessionId) -> anyhow::Result<Vec<&'static str>> {
        Ok(self.journal(session).await?.iter().map(Entry::kind).collect())
    }

    /// Takes a session as some other runner would.
    pub async fn claim_as(&self, runner: RunnerId) -> anyhow::Result<Claim> {
        let mut claims = self.sessions.claim(runner, 1).await?;
        claims.pop().ok_or_else(|| anyhow::anyhow!("nothing is ready"))
    }

    /// Ends a turn of a session that was claimed by hand, which then waits.
    pub async fn end(
        &self,
        claim: &Claim,
        loaded: &LoadedSession,
        wait: Wait,
    ) -> anyhow::Result<()> {
        let first = &loaded.waiting[0];
        let thought = Entry::Thought {
            text: "I will".to_owned(),
            calls: Vec::new(),
            usage: Usage::default(),
            model: String::new(),
            carry: None,
            record: None,
        };
        let completion = Completion {
            run: first.message.into(),
            at: None,
            newest: None,
            entries: vec![Entry::Heard { seq: first.seq, body: first.body.clone() }, thought],
            done: vec![first.seq],
            outcome: TurnOutcome::Completed,
            reason: None,
            reply: Some(1),
            deliveries: Vec::new(),
            usage: Usage::default(),
            model: String::new(),
            steps: 1,
            tools: Vec::new(),
            started_at: jiff::Timestamp::now(),
            wait,
            last_target: None,
            effects: None,
        };
        self.sessions.complete(claim, completion).await?;
        Ok(())
    }

    pub async fn admin(&self, sql: &str) -> anyhow::Result<u64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?.rows_affected())
    }

    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
    }

    pub async fn texts(&self, sql: &str) -> anyhow::Result<Vec<String>> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut connection).await?)
    }

    /// The system events that no turn has received, after the last part of their session's key.
    pub async fn pending_events(&self) -> anyhow::Result<Vec<String>> {
        let sql = "select split_part(key, ':', -1) || ' ' || text from session.system_events
                   where gone_at is null order by event_id";
        self.texts(sql).await
    }

    /// A message to the conversation that the agent has with its owner.
    pub fn owners(&self, text: &str) -> NewMessage {
        NewMessage { key: SessionKey::main(&self.agent.name), ..self.message("owner", text) }
    }

    /// Contents of a file of the agent.
    pub async fn file(&self, path: &str) -> anyhow::Result<Option<String>> {
        let path = path.parse()?;
        let found = self.workspaces.read(self.tenant, self.agent.id, &path, None).await?;
        Ok(found.and_then(|file| file.text().map(str::to_owned)))
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) -> anyhow::Result<()> {
        self.until_some(what, async || is_so().await.then_some(())).await
    }

    /// Waits until something is found, and returns it.
    pub async fn until_some<T>(
        &self,
        what: &str,
        find: impl AsyncFn() -> Option<T>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            if let Some(found) = find().await {
                return Ok(found);
            }
            anyhow::ensure!(begun.elapsed() < LONG, "not within {LONG:?}: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Settings that allow for a machine that is busy with other tests.
fn database_config(database: &Database) -> holdfast_pg::Config {
    holdfast_pg::Config {
        url: database.service_url("agent-runner").into(),
        acquire_timeout: LONG,
        ..holdfast_pg::Config::default()
    }
}

pub fn place(chat: &str) -> Target {
    Target {
        channel: "telegram".to_owned(),
        account: AccountId::from(uuid::Uuid::nil()),
        chat: chat.to_owned(),
        thread: None,
        reply_to: None,
    }
}

pub fn settings(change: impl FnOnce(&mut AgentSettings)) -> AgentSettings {
    let mut settings = AgentSettings::default();
    change(&mut settings);
    settings
}

fn secrets() -> Secrets {
    let kek = STANDARD.encode([7_u8; 32]).into();
    Secrets { kek, pepper: "pepper of the tests".into(), ..Secrets::default() }
}

/// The secret of the tests' mesh.
pub const MESH: &str = "the secret of a mesh of tests";

/// Settings of the tests' mesh.
pub fn mesh() -> holdfast_kit::config::Mesh {
    holdfast_kit::config::Mesh { secret: MESH.into(), ..holdfast_kit::config::Mesh::default() }
}

/// A memory service in this process.
pub struct Remembers {
    pub url: String,
    stop: CancellationToken,
    _task: tokio_util::task::AbortOnDropHandle<anyhow::Result<()>>,
}

impl Drop for Remembers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// A memory service over the same database.
    pub async fn memory(&self) -> anyhow::Result<Remembers> {
        let mut config = memory::Config::default();
        config.memory.listen = "127.0.0.1:0".parse()?;
        config.memory.embedding.engine = memory::Engine::Hashed;
        config.database.url = self.database.service_url("memory-service").into();
        config.mesh.secret = MESH.into();
        let app = memory::App::connect(config).await?;
        let url = format!("http://{}", app.address()?);
        let stop = CancellationToken::new();
        let task = tokio::spawn(app.run(stop.clone()));
        Ok(Remembers { url, stop, _task: tokio_util::task::AbortOnDropHandle::new(task) })
    }

    /// A runner's settings with that memory.
    pub fn config_with(&self, memory: &Remembers) -> Config {
        let mut config = self.config();
        config.mesh.secret = MESH.into();
        config.mesh.memory_url.clone_from(&memory.url);
        // The machine may be busy with other tests.
        config.runner.memory.recall_timeout = Duration::from_secs(10);
        config.runner.memory.extractions = 0;
        config
    }

    /// Empties this test's corner of Redis; says how much was in it.
    pub async fn flush_redis(&self) -> anyhow::Result<u64> {
        self.redis.flush().await
    }
}
