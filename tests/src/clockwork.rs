//! Schedulers as processes, and jobs whose every slot is checked.
//!
//! The test computes a job's slots itself: whole intervals from its anchor. So it detects slots
//! that were missed as well as slots that fired twice.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use holdfast_directory::{Actor, Directory};
use holdfast_kit::config::Secrets;
use holdfast_pg::Pools;
use holdfast_schedule::store::{
    Calendar, FiringRef, Job, JobKind, Jobs, NewJob, Overlap, Slot, Spec,
};
use holdfast_schedule::{AgentTurn, Missed, Payload, Schedule};
use holdfast_session::{Claim, Completion, Sessions, TurnOutcome};
use holdfast_testkit::{Backends, Database, free_address, nats};
use holdfast_types::{AgentId, JobId, RunnerId, TenantId, Usage, Wait};
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::mesh::specs::log_level;
use crate::node::{Node, NodeSpec as Process, Role};

/// How long a replica has to deliver what it claimed. No test waits for the usual 30 s.
pub const HANDOVER_TIMEOUT: Duration = Duration::from_secs(3);

/// How many slots of each kind of wrong are shown.
const MAX_SHOWN_SLOTS: usize = 12;

/// Schedulers over a database of their own, in which nobody else does anything.
#[derive(Debug)]
pub struct SchedulerMesh {
    // Dropped first: processes before what they stand on.
    pub replicas: Vec<Arc<Node>>,
    /// The jobs, past all replicas.
    pub jobs: Jobs,
    sessions: Sessions,
    tenants: Vec<(TenantId, AgentId)>,
    made: Vec<Made>,
    nats: nats::Namespace,
    database: Database,
}

/// A job, and the slots that it has.
#[derive(Debug, Clone, Copy)]
struct Made {
    tenant: TenantId,
    job: JobId,
    first: Timestamp,
    /// `None` is due once.
    every: Option<Duration>,
}

/// Outcome of all slots. A failed firing is retried under a key of its own; all attempts count for
/// their slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotReport {
    pub due: usize,
    /// Those of which there is no message.
    pub missed: usize,
    /// Messages beyond one for a slot.
    pub doubled: usize,
    /// Messages of no slot that was due.
    pub strange: usize,
    /// Firings that have not ended, or not well.
    pub unended: usize,
    /// Lines that the jobs' logs have too few or too many: a try that failed has one of its own.
    pub misrecorded: usize,
    /// Firings that were handed out again, since whoever had them was not heard of.
    pub handed_again: usize,
    /// What is wrong, with names: some of each, and how many firings ended otherwise than well.
    pub wrong: Vec<String>,
}

/// Inserts a job for each of these times, of the tenants in turn, past the product. Returns their ids.
///
/// Each is a turn of the tenant's agent, whose answer is sent nowhere.
///
/// # Errors
///
/// If the database refuses them.
pub async fn insert_jobs(
    admin: &mut PgConnection,
    owners: &[(TenantId, AgentId)],
    times: &[Timestamp],
) -> anyhow::Result<Vec<Uuid>> {
    const SQL: &str = "
        insert into schedule.jobs
            (tenant_id, job_id, external_id, kind, agent_id, spec, payload, slot_at, due_at)
        select t.tenant_id, j.job_id, j.job_id::text, 'at', t.agent_id,
               jsonb_build_object('schedule', jsonb_build_object('kind', 'at', 'at_ms', j.ms)),
               $5, j.at, j.at
        from (select *, row_number() over () - 1 as n
              from unnest($1::uuid[], $2::timestamptz[], $3::bigint[]) as u (job_id, at, ms)) j
        join (select *, row_number() over () - 1 as n
              from unnest($4::uuid[], $6::uuid[]) as u (tenant_id, agent_id)) t
             on t.n = j.n % cardinality($4::uuid[])";

    let turn = AgentTurn { deliver: false, ..AgentTurn::new("tick") };
    let payload = serde_json::to_value(Payload::AgentTurn(turn))?;
    let ids: Vec<Uuid> = times.iter().map(|_| JobId::generate().as_uuid()).collect();
    let at: Vec<jiff_sqlx::Timestamp> = times.iter().map(|at| (*at).into()).collect();
    let millis: Vec<i64> = times.iter().map(|at| at.as_millisecond()).collect();
    sqlx::query(SQL)
        .bind(&ids)
        .bind(at)
        .bind(millis)
        .bind(owners.iter().map(|one| one.0.as_uuid()).collect::<Vec<_>>())
        .bind(payload)
        .bind(owners.iter().map(|one| one.1.as_uuid()).collect::<Vec<_>>())
        .execute(admin)
        .await?;
    Ok(ids)
}

impl SchedulerMesh {
    /// So many replicas that do not run yet, and so many tenants.
    pub async fn prepare(replicas: usize, tenants: usize) -> anyhow::Result<Self> {
        let program = crate::program::holdfast().await?.to_owned();
        Self::prepare_on(Backends::get().await?, program, replicas, tenants).await
    }

    /// The same over these backends, with this binary.
    pub async fn prepare_on(
        backends: &Backends,
        program: PathBuf,
        replicas: usize,
        tenants: usize,
    ) -> anyhow::Result<Self> {
        let database = Database::create_on(backends).await?;
        holdfast_pg::migrate(&database.admin_url()).await?;
        let nats = nats::Namespace::create_on(backends);
        let config =
            holdfast_pg::Config { url: database.url().into(), ..holdfast_pg::Config::default() };
        let pools = Pools::lazy(&config, "test")?;
        let pepper = "pepper of the tests".into();
        let secrets = Secrets { kek: kek().into(), pepper, ..Secrets::default() };
        let directory = Directory::new(pools.clone(), &secrets)?;
        let mut made = Vec::new();
        for number in 0..tenants {
            let (tenant, _) =
                directory.tenants().create(Actor::Operator, &format!("t{number}")).await?;
            made.push((tenant.id, directory.agents().default_agent(tenant.id).await?.id));
        }
        let mut nodes = Vec::new();
        for number in 0..replicas {
            let http = free_address()?;
            let set = |name: &str, value: String| (format!("HOLDFAST_{name}"), value);
            let env = vec![
                set("DATABASE__URL", database.url()),
                set("NATS__URL", nats.service_url("scheduler").to_owned()),
                set("NATS__PREFIX", nats.prefix().to_owned()),
                set("SCHEDULER__LISTEN", http.to_string()),
                set("SCHEDULER__HANDOVER", format!("{}s", HANDOVER_TIMEOUT.as_secs())),
                set("TELEMETRY__LOG", log_level()),
            ];
            let name = format!("scheduler-{number}");
            let args = vec!["scheduler".to_owned()];
            let (role, program) = (Role::Scheduler, program.clone());
            nodes.push(Arc::new(Node::new(Process { name, role, program, args, env, http })?));
        }
        Ok(Self {
            replicas: nodes,
            jobs: Jobs::new(pools.clone(), Arc::new(Calendar::default())),
            sessions: Sessions::new(pools),
            tenants: made,
            made: Vec::new(),
            nats,
            database,
        })
    }

    /// Makes jobs that are due each second, spread over it, each of whose slots is made up for.
    pub async fn add_each_second(&mut self, count: usize) -> anyhow::Result<()> {
        let every = Duration::from_secs(1);
        let anchor = Timestamp::now().as_millisecond();
        let schedules = (0..count).map(|n| {
            let spread = i64::try_from(n * 1_000 / count.max(1)).unwrap_or(0);
            Schedule::every(1_000, Some(anchor + spread))
        });
        let schedules = schedules.collect::<Result<Vec<_>, _>>()?;
        self.add(schedules, Some(every)).await
    }

    /// Makes jobs that are all due in one instant, so long from now, and says when that is.
    pub async fn add_at_once(
        &mut self,
        count: usize,
        after: Duration,
    ) -> anyhow::Result<Timestamp> {
        let at = Timestamp::now() + after;
        let at = Timestamp::from_millisecond(at.as_millisecond())?;
        let schedule = Schedule::at(at.as_millisecond())?;
        self.add(vec![schedule; count], None).await?;
        Ok(at)
    }

    /// Makes many jobs that are due at these times, past the product, which would take a while.
    pub async fn add_many(&mut self, times: &[Timestamp]) -> anyhow::Result<()> {
        let mut admin = self.admin().await?;
        insert_jobs(&mut admin, &self.tenants, times).await?;
        sqlx::query("analyze schedule.jobs").execute(&mut admin).await?;
        Ok(())
    }

    /// A connection as the owner.
    pub async fn admin(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.database.admin_url()).await?)
    }

    async fn add(&mut self, all: Vec<Schedule>, every: Option<Duration>) -> anyhow::Result<()> {
        let mut made = Vec::with_capacity(all.len());
        for (number, schedule) in all.into_iter().enumerate() {
            let (tenant, agent) = self.tenants[number % self.tenants.len()];
            made.push((tenant, job(agent, schedule)?));
        }
        for part in made.chunks(16) {
            let added = part.iter().map(|(tenant, new)| self.jobs.add(*tenant, new.clone()));
            for added in try_join_all(added).await? {
                let Job { tenant, id: job, next_slot, .. } = added.into_job();
                let first = next_slot.context("a job without a slot")?;
                self.made.push(Made { tenant, job, first, every });
            }
        }
        Ok(())
    }

    /// Answers what comes into the inboxes, until it is dropped.
    pub fn answer(&self) -> tokio::task::JoinHandle<anyhow::Result<()>> {
        let sessions = self.sessions.clone();
        let runner = RunnerId::generate();
        tokio::spawn(async move {
            let mut swept = Instant::now();
            loop {
                let claims = sessions.claim(runner, 64).await?;
                if claims.is_empty() {
                    sleep(Duration::from_millis(20)).await;
                }
                if swept.elapsed() > Duration::from_secs(1) {
                    let swept_now = sessions.sweep().await;
                    swept_now.failure.map_or(Ok(()), Err)?;
                    swept = Instant::now();
                }
                let done = claims.iter().map(|claim| complete(&sessions, claim));
                try_join_all(done).await?;
            }
        })
    }

    /// Stops all jobs, and waits until every firing that was due by then has ended.
    ///
    /// # Errors
    ///
    /// If what is due is not decided within `patience`, or nothing ends for as long.
    pub async fn finish(&self, patience: Duration) -> anyhow::Result<SlotReport> {
        // One statement under the rows' locks, taken in the usual order: exactly the slots decided
        // until then were due.
        const STOP: &str = "
            with old as (
                select tenant_id, job_id, slot_at from schedule.jobs
                order by job_id, tenant_id for update)
            update schedule.jobs j
            set slot_at = null, due_at = null
            from old where j.job_id = old.job_id and j.tenant_id = old.tenant_id
            returning old.job_id, old.slot_at";
        const OPEN: &str = "
            select count(*) from schedule.firings where state in ('pending', 'delivered')";
        // What is due once counts, decided or not.
        const UNDECIDED: &str = "
            select count(*) from schedule.jobs where kind = 'at' and due_at <= now()";

        let mut admin = PgConnection::connect(&self.database.admin_url()).await?;
        let begun = Instant::now();
        while self.number(UNDECIDED).await? > 0 {
            ensure!(begun.elapsed() < patience, "slots that are due are not decided");
            sleep(Duration::from_millis(100)).await;
        }
        let stopped: Vec<(Uuid, Option<jiff_sqlx::Timestamp>)> =
            sqlx::query_as(STOP).fetch_all(&mut admin).await?;
        let ends: HashMap<Uuid, Option<Timestamp>> =
            stopped.into_iter().map(|(job, at)| (job, at.map(|at| at.to_jiff()))).collect();
        // However slow the machine, there are ever fewer.
        let (mut open, mut fewer) = (self.number(OPEN).await?, Instant::now());
        while open > 0 {
            ensure!(
                fewer.elapsed() < patience,
                "{open} firings have not ended, and none has for {patience:?}"
            );
            sleep(Duration::from_millis(100)).await;
            let now = self.number(OPEN).await?;
            if now < open {
                (open, fewer) = (now, Instant::now());
            }
        }
        let mut due = HashSet::new();
        for made in &self.made {
            // A job that is gone or has no slot left was due up to its last.
            let end = ends.get(&made.job.as_uuid()).copied().flatten();
            due.extend(made.keys(end));
        }
        self.account(&mut admin, &due).await
    }

    /// Some of the slots that came not at all or that are none, and how firings ended.
    async fn wrong(&self, missed: &[&String], strange: &[&String]) -> anyhow::Result<Vec<String>> {
        const ROW: &str = "
            select concat_ws(' ', j.kind, j.state, f.origin, f.state, 'attempts', f.attempts, 'lost',
                             f.lost, 'recorded', f.created_at)
            from schedule.firings f left join schedule.jobs j using (job_id, tenant_id)
            where 'job_' || replace(f.job_id::text, '-', '') || ':' || f.slot = $1";
        const ENDS: &str = "
            select concat_ws(' ', j.kind, r.origin, r.status, r.class, sum(r.slots))
            from schedule.runs r left join schedule.jobs j using (job_id, tenant_id)
            where r.status <> 'ok' group by j.kind, r.origin, r.status, r.class";

        let mut admin = self.admin().await?;
        let mut wrong: Vec<String> = sqlx::query_scalar(ENDS).fetch_all(&mut admin).await?;
        for (what, keys) in [("missed", missed), ("of no slot", strange)] {
            for key in keys.iter().take(MAX_SHOWN_SLOTS) {
                let row: Option<String> =
                    sqlx::query_scalar(ROW).bind(key).fetch_optional(&mut admin).await?;
                wrong.push(format!("{what}: {key} {}", row.as_deref().unwrap_or("not recorded")));
            }
        }
        Ok(wrong)
    }

    async fn account(
        &self,
        admin: &mut PgConnection,
        due: &HashSet<String>,
    ) -> anyhow::Result<SlotReport> {
        let keys: Vec<String> =
            sqlx::query_scalar("select idem_key from session.inbox where source = 'schedule'")
                .fetch_all(admin)
                .await?;
        // `job:slot` or, of a try after the first, `job:slot~n`.
        let slot = |key: &String| key.split('~').next().unwrap_or_default().to_owned();
        let distinct: HashSet<String> = keys.iter().map(slot).collect();
        let lines = usize::try_from(
            self.number("select coalesce(sum(logged), 0)::bigint from schedule.jobs").await?,
        )?;
        let unended = "
            select count(*) from session.inbox where state <> 'done' or outcome <> 'completed'";
        let again = "select count(*) from schedule.firings where attempts > 1";
        let retries = "select count(*) from schedule.firings where origin = 'retry'";
        let retries = usize::try_from(self.number(retries).await?)?;
        let missed: Vec<_> = due.iter().filter(|key| !distinct.contains(*key)).collect();
        let strange: Vec<_> = distinct.iter().filter(|key| !due.contains(*key)).collect();
        Ok(SlotReport {
            due: due.len(),
            missed: missed.len(),
            doubled: keys.len() - distinct.len(),
            strange: strange.len(),
            wrong: self.wrong(&missed, &strange).await?,
            unended: usize::try_from(self.number(unended).await?)?,
            misrecorded: lines.abs_diff(due.len() + retries),
            handed_again: usize::try_from(self.number(again).await?)?,
        })
    }

    /// Reads one number as the owner.
    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut admin = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut admin).await?)
    }

    /// The prefix of all that is said over NATS.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.nats.prefix()
    }
}

impl SlotReport {
    /// Whether each slot came once and was put on record.
    ///
    /// # Errors
    ///
    /// With the account, if not.
    pub fn balance(&self) -> anyhow::Result<()> {
        let wrong = self.missed + self.doubled + self.strange + self.unended + self.misrecorded;
        ensure!(self.due > 0 && wrong == 0, "not each slot came once: {self:#?}");
        Ok(())
    }
}

impl Made {
    /// The keys of the messages of its slots before `end`.
    fn keys(&self, end: Option<Timestamp>) -> Vec<String> {
        let key = |at| {
            let slot = Slot::at(at);
            FiringRef { tenant: self.tenant, job: self.job, slot }.idem_key()
        };
        let (Some(every), Some(end)) = (self.every, end) else { return vec![key(self.first)] };
        let mut keys = Vec::new();
        let mut at = self.first;
        while at < end {
            keys.push(key(at));
            at += every;
        }
        keys
    }
}

fn job(agent: AgentId, schedule: Schedule) -> anyhow::Result<NewJob> {
    let what = Payload::AgentTurn(AgentTurn::new("tick"));
    let kind = JobKind::of(&schedule);
    let missed = Missed::All { within_ms: 3_600_000 };
    Ok(NewJob {
        id: JobId::generate(),
        external_id: None,
        kind,
        agent,
        owner: None,
        author: None,
        name: String::new(),
        description: String::new(),
        enabled: true,
        spec: Spec { missed, ..Spec::of(schedule) }.to_json(),
        payload: serde_json::to_value(what)?,
        session_target: None,
        wake_mode: None,
        isolation: None,
        overlap: Overlap::Allow,
        delete_after_run: false,
    })
}

async fn complete(sessions: &Sessions, claim: &Claim) -> anyhow::Result<()> {
    let loaded = sessions.load(claim, 10).await?;
    let first = loaded.waiting.first().context("nothing waits in a session that is ready")?;
    let completion = Completion {
        run: first.message.into(),
        at: None,
        newest: None,
        entries: Vec::new(),
        done: loaded.waiting.iter().map(|waiting| waiting.seq).collect(),
        outcome: TurnOutcome::Completed,
        reason: None,
        reply: None,
        deliveries: Vec::new(),
        usage: Usage::default(),
        model: "test:one".to_owned(),
        steps: 1,
        tools: Vec::new(),
        started_at: Timestamp::now(),
        wait: Wait::Anything,
        last_target: None,
        effects: None,
    };
    sessions.complete(claim, completion).await?;
    Ok(())
}

fn kek() -> String {
    STANDARD.encode([7; 32])
}
