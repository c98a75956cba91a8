//! Test world: a tenant with an agent, schedulers, and a fake runner that answers.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_bus::Bus;
use holdfast_directory::{Actor, Agent, Directory};
use holdfast_kit::config::Secrets;
use holdfast_pg::Pools;
use holdfast_schedule::store::{
    Calendar, Job, JobKind, JobSigner, Jobs, NewJob, Outcome, Overlap, Reminder, RunLine, Spec,
};
use holdfast_schedule::{AgentTurn, Payload, Schedule};
use holdfast_session::{
    Claim, Completion, LoadedSession, NewDelivery, SendCapacity, SendResult, Sessions, TurnOutcome,
};
use holdfast_testkit::{Database, nats};
use holdfast_types::{
    AccountId, DeliveryClass, DeliveryId, JobId, RunId, RunnerId, SessionKey, Target, TenantId,
    Usage, Wait,
};
use jiff::Timestamp;
use scheduler::{App, Config, Scheduler};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

/// Longer than any operation here should take.
pub const LONG: Duration = Duration::from_secs(100);

pub struct World {
    pub jobs: Jobs,
    pub sessions: Sessions,
    pub bus: Bus,
    pub tenant: TenantId,
    pub agent: Agent,
    runner: RunnerId,
    database: Database,
    nats: nats::Namespace,
}

/// A scheduler in this process.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Asks the scheduler to stop, and waits until it has.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        (&mut self.task).await?
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
        let nats = nats::Namespace::create().await?;
        let pools = Pools::lazy(&database_config(database.url()), "test")?;
        let directory = Directory::new(pools.clone(), &secrets())?;
        let (tenant, _) = directory.tenants().create(Actor::Operator, "acme").await?;
        let agent = directory.agents().default_agent(tenant.id).await?;
        let bus = Bus::connect(&bus_config(&nats), "test").await?;
        let signer = JobSigner::default();
        signer.set_keys(directory.job_keys().await?);
        Ok(Self {
            jobs: Jobs::new(pools.clone(), Arc::new(Calendar::default())).with_signer(signer),
            sessions: Sessions::new(pools),
            bus,
            tenant: tenant.id,
            agent,
            runner: RunnerId::generate(),
            database,
            nats,
        })
    }

    /// Starts a scheduler on the same backends.
    pub async fn scheduler(&self) -> anyhow::Result<Running> {
        self.scheduler_with(Scheduler::default()).await
    }

    /// Starts a scheduler with other settings, except for its address.
    pub async fn scheduler_with(&self, scheduler: Scheduler) -> anyhow::Result<Running> {
        let config = Config {
            scheduler: Scheduler { listen: ([127, 0, 0, 1], 0).into(), ..scheduler },
            database: database_config(self.database.service_url("scheduler")),
            nats: bus_config(&self.nats),
            ..Config::default()
        };
        let app = App::connect(config).await?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(app.run(stop.clone()));
        Ok(Running { stop, task })
    }

    /// Creates another tenant with an agent.
    pub async fn neighbour(&self) -> anyhow::Result<(TenantId, Agent)> {
        let pools = Pools::lazy(&database_config(self.database.url()), "test")?;
        let directory = Directory::new(pools, &secrets())?;
        let (tenant, _) = directory.tenants().create(Actor::Operator, "neighbour").await?;
        let agent = directory.agents().default_agent(tenant.id).await?;
        Ok((tenant.id, agent))
    }

    /// Creates a job with this schedule.
    pub fn new_job(&self, schedule: Schedule, payload: Value) -> NewJob {
        NewJob {
            id: JobId::generate(),
            external_id: None,
            kind: JobKind::of(&schedule),
            agent: self.agent.id,
            owner: None,
            author: None,
            name: "tea".to_owned(),
            description: String::new(),
            enabled: true,
            spec: Spec::of(schedule).to_json(),
            payload,
            session_target: None,
            wake_mode: None,
            isolation: None,
            overlap: Overlap::Skip,
            delete_after_run: false,
        }
    }

    /// Creates a reminder for the session with this key.
    pub fn reminder(&self, schedule: Schedule, session: &SessionKey) -> NewJob {
        let what = Reminder {
            content: "tea".to_owned(),
            session: session.to_string(),
            auto_continue: false,
            locale: "en".to_owned(),
            target: None,
            renewals: 0,
            author: None,
            outside: false,
        };
        let owner = "owner".to_owned();
        let new = NewJob::reminder(JobId::generate(), self.agent.id, owner, schedule, &what);
        NewJob { delete_after_run: false, ..new }
    }

    pub async fn add(&self, new: NewJob) -> anyhow::Result<Job> {
        let job = self.jobs.add(self.tenant, new).await?.into_job();
        self.bus.wake_schedule();
        Ok(job)
    }

    /// Waits until a session is ready, and claims it.
    pub async fn claim(&self) -> anyhow::Result<(Claim, LoadedSession)> {
        let begun = Instant::now();
        loop {
            if let Some(claim) = self.sessions.claim(self.runner, 1).await?.pop() {
                let loaded = self.sessions.load(&claim, 100).await?;
                return Ok((claim, loaded));
            }
            anyhow::ensure!(begun.elapsed() < LONG, "no session became ready");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Answers all messages of a session.
    pub async fn answer(
        &self,
        claim: &Claim,
        loaded: &LoadedSession,
        outcome: TurnOutcome,
    ) -> anyhow::Result<RunId> {
        self.end(claim, loaded, outcome, Wait::Anything, vec![]).await
    }

    /// Answers with a reply that must be delivered to a program.
    pub async fn answer_by_channel(
        &self,
        claim: &Claim,
        loaded: &LoadedSession,
    ) -> anyhow::Result<()> {
        let target = Target {
            channel: "webhook".to_owned(),
            account: AccountId::generate(),
            chat: "1".to_owned(),
            thread: None,
            reply_to: None,
        };
        let id = DeliveryId::generate();
        let answer = NewDelivery {
            target,
            text: "it is done".to_owned(),
            act: None,
            id,
            delay: Duration::ZERO,
        };
        let wait = Wait::Anything;
        self.end(claim, loaded, TurnOutcome::Completed, wait, vec![answer]).await.map(drop)
    }

    /// Tries to send the next delivery.
    pub async fn send(&self, sent: SendResult) -> anyhow::Result<()> {
        let (bridge, class) =
            (self.runner, DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) });
        let due = self
            .sessions
            .deliveries()
            .claim("webhook", class, bridge, &SendCapacity::slots(1))
            .await?;
        let delivery = due.first().context("nothing is to be sent")?;
        self.sessions.deliveries().record_result(delivery, bridge, sent).await?;
        Ok(())
    }

    /// Answers in the session with this key, which then waits for that event.
    pub async fn rest(&self, key: &SessionKey, wait: Wait) -> anyhow::Result<()> {
        let (claim, loaded) = self.claim().await?;
        anyhow::ensure!(loaded.key == key.as_str(), "another session was ready");
        self.end(&claim, &loaded, TurnOutcome::Completed, wait, vec![]).await.map(drop)
    }

    async fn end(
        &self,
        claim: &Claim,
        loaded: &LoadedSession,
        outcome: TurnOutcome,
        wait: Wait,
        deliveries: Vec<NewDelivery>,
    ) -> anyhow::Result<RunId> {
        let first = loaded.waiting.first().context("nothing waits")?;
        let run = first.message.into();
        let completion = Completion {
            run,
            at: None,
            newest: None,
            entries: vec![],
            done: loaded.waiting.iter().map(|waiting| waiting.seq).collect(),
            outcome,
            reason: None,
            reply: None,
            deliveries,
            usage: Usage::default(),
            model: "test:one".to_owned(),
            steps: 1,
            tools: Vec::new(),
            started_at: Timestamp::now(),
            wait,
            last_target: None,
            effects: None,
        };
        self.sessions.complete(claim, completion).await?;
        Ok(run)
    }

    /// Waits until a job's log contains the end of a firing, and returns the first. Slots that were
    /// skipped while that one ran are in the log too.
    pub async fn line(&self, job: &Job) -> anyhow::Result<RunLine> {
        let begun = Instant::now();
        loop {
            let lines = self.jobs.runs(self.tenant, job.id, 100).await?;
            if let Some(line) = lines.into_iter().rfind(|line| line.slot.is_some()) {
                return Ok(line);
            }
            anyhow::ensure!(begun.elapsed() < LONG, "nothing is in the log");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a job's log contains a skipped slot with this class.
    pub async fn until_logged(&self, job: &Job, class: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let lines = self.jobs.runs(self.tenant, job.id, 100).await?;
            if lines.iter().any(|line| {
                line.outcome == Outcome::Skipped && line.class.as_deref() == Some(class)
            }) {
                return Ok(());
            }
            anyhow::ensure!(begun.elapsed() < LONG, "no slot is skipped as {class}: {lines:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn text(&self, sql: &str) -> anyhow::Result<String> {
        let mut admin = PgConnection::connect(&self.database.admin_url()).await?;
        let found: Option<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut admin).await?;
        Ok(found.unwrap_or_default())
    }

    pub async fn admin(&self, sql: &str) -> anyhow::Result<()> {
        let mut admin = PgConnection::connect(&self.database.admin_url()).await?;
        sqlx::query(AssertSqlSafe(sql)).execute(&mut admin).await?;
        Ok(())
    }

    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut admin = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut admin).await?)
    }

    /// Waits until a query returns `number`.
    pub async fn until(&self, sql: &str, wanted: i64) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let number = self.number(sql).await?;
            if number == wanted {
                return Ok(());
            }
            anyhow::ensure!(begun.elapsed() < LONG, "{number} and not {wanted}: {sql}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Task of an agent.
pub fn turn(message: &str) -> Value {
    json(AgentTurn::new(message))
}

pub fn json(turn: AgentTurn) -> Value {
    serde_json::to_value(Payload::AgentTurn(turn)).unwrap_or_default()
}

/// A schedule of every second.
pub fn each_second() -> anyhow::Result<Schedule> {
    Ok(Schedule::every(1_000, None)?)
}

/// A schedule once, in `ms` milliseconds.
pub fn soon(millis: i64) -> anyhow::Result<Schedule> {
    Ok(Schedule::at(Timestamp::now().as_millisecond() + millis)?)
}

fn secrets() -> Secrets {
    let kek = STANDARD.encode([7; 32]).into();
    Secrets { kek, pepper: "pepper of the tests".into(), ..Secrets::default() }
}

/// Settings with which callers wait for a connection while the machine stalls.
fn database_config(url: String) -> holdfast_pg::Config {
    holdfast_pg::Config {
        url: url.into(),
        acquire_timeout: Duration::from_secs(20),
        ..holdfast_pg::Config::default()
    }
}

fn bus_config(nats: &nats::Namespace) -> holdfast_bus::Config {
    holdfast_bus::Config {
        url: nats.url().into(),
        prefix: nats.prefix().to_owned(),
        ..holdfast_bus::Config::default()
    }
}
