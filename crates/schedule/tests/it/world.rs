//! Test world: a database, a tenant with an agent, and a planner of intervals.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_pg::{Config, Pools};
use holdfast_schedule::store::{
    Due, Error, FinishedFiring, Firing, Job, JobKind, Jobs, Limits, Missed, NewJob, NextSlot,
    Outcome, Overlap, Planner, ScheduledJob, SlotPlan, Unplannable,
};
use holdfast_testkit::Database;
use holdfast_types::{AgentId, JobId, TenantId};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Planner for schedules `{"first", "every_s", "missed"}`; without an interval there is one slot.
/// Its clock can be set, up to the database's time.
#[derive(Debug, Default)]
pub struct Clockwork {
    now: Mutex<Option<Timestamp>>,
}

impl Clockwork {
    fn now(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, now: Timestamp) {
        *self.now() = Some(now);
    }
}

impl Planner for Clockwork {
    fn first(
        &self,
        job: ScheduledJob<'_>,
        now: Timestamp,
    ) -> Result<Option<NextSlot>, Unplannable> {
        if job.spec.get("never").is_some() {
            return Ok(None);
        }
        let first = match job.spec["first"].as_str() {
            Some(first) => {
                first.parse().map_err(|_| Unplannable("`first` is no time".to_owned()))?
            }
            None => now + every(job.spec).unwrap_or(SignedDuration::from_hours(1)),
        };
        Ok(Some(NextSlot { slot: first, due: first }))
    }

    fn plan(&self, due: Due<'_>) -> Result<SlotPlan, Unplannable> {
        let spec = due.job.spec;
        if spec.get("broken").is_some() {
            return Err(Unplannable("no such zone".to_owned()));
        }
        let now = self.now().unwrap_or(due.now);
        let Some(every) = every(spec) else {
            return Ok(SlotPlan { fire: vec![due.slot], missed: None, next: None });
        };
        let mut slots = vec![due.slot];
        let mut next = due.slot + every;
        while next <= now {
            slots.push(next);
            next += every;
        }
        let fire = match spec["missed"].as_str() {
            Some("all") => slots.clone(),
            Some("skip") if slots.len() > 1 => vec![],
            _ => slots[slots.len() - 1..].to_vec(),
        };
        let count = slots.len() - fire.len();
        let missed = (count > 0).then(|| Missed {
            first: slots[0],
            last: slots[count - 1],
            count: u32::try_from(count).ok(),
        });
        Ok(SlotPlan { fire, missed, next: Some(NextSlot { slot: next, due: next }) })
    }
}

fn every(spec: &Value) -> Option<SignedDuration> {
    spec["every_s"].as_i64().map(SignedDuration::from_secs)
}

pub struct World {
    pub jobs: Jobs,
    pub clock: Arc<Clockwork>,
    database: Database,
}

impl World {
    pub async fn start() -> anyhow::Result<Self> {
        let database =
            Database::create_from(&holdfast_pg::fingerprint(), async |admin_url: String| {
                holdfast_pg::migrate(&admin_url).await?;
                Ok(())
            })
            .await?;
        let clock = Arc::new(Clockwork::default());
        let config = Config { system_pool_size: 4, ..config(&database) };
        let jobs = Jobs::new(Pools::lazy(&config, "test")?, Arc::clone(&clock) as Arc<dyn Planner>);
        Ok(Self { jobs, clock, database })
    }

    /// URL of the services' login.
    pub fn config(&self) -> Config {
        config(&self.database)
    }

    pub fn pools(&self) -> anyhow::Result<Pools> {
        Pools::lazy(&self.config(), "test")
    }

    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.jobs = self.jobs.with_limits(limits);
        self
    }

    pub fn tenant(&self) -> Tenant<'_> {
        Tenant { world: self, id: TenantId::generate(), agent: AgentId::generate() }
    }

    /// Runs a statement as the owner, who is not subject to row-level security.
    pub async fn admin(&self, sql: &str) -> anyhow::Result<u64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?;
        Ok(done.rows_affected())
    }

    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
    }

    /// Adds many jobs, each with one due slot.
    pub async fn many_due(&self, tenant: TenantId, count: u32) -> anyhow::Result<()> {
        let sql = format!(
            "insert into schedule.jobs
                 (tenant_id, job_id, external_id, kind, agent_id, spec, payload, slot_at, due_at)
             select '{}', gen_random_uuid(), 'job ' || n, 'every', gen_random_uuid(),
                    '{{\"every_s\": 86400}}', '{{}}', t, t
             from generate_series(1, {count}) n, (select now() - interval '1 minute' as t) t",
            tenant.as_uuid()
        );
        self.admin(&sql).await?;
        Ok(())
    }

    /// Lets all holds and runs expire now.
    pub async fn lapse(&self) -> anyhow::Result<()> {
        for sql in [
            "update schedule.firings set offer_at = now() - interval '1 second'
             where state = 'pending' and held",
            "update schedule.firings set until = now() - interval '1 second'
             where state = 'delivered'",
            "update schedule.jobs set running_until = now() - interval '1 second'
             where running_until is not null",
        ] {
            self.admin(sql).await?;
        }
        Ok(())
    }

    pub async fn claim(&self) -> anyhow::Result<Vec<Firing>> {
        Ok(self.jobs.claim_due(100).await?.firings)
    }

    pub async fn claim_one(&self) -> anyhow::Result<Firing> {
        let mut firings = self.claim().await?;
        anyhow::ensure!(firings.len() == 1, "{} firings instead of one", firings.len());
        firings.pop().ok_or_else(|| anyhow::anyhow!("nothing is due"))
    }

    pub async fn sweep(&self) -> anyhow::Result<Vec<Firing>> {
        Ok(self.jobs.sweep(100).await?.firings)
    }

    pub async fn end(&self, firing: &Firing, outcome: Outcome) -> Result<u64, Error> {
        self.jobs.finish(&[ended(firing, outcome)]).await
    }
}

/// Settings with which callers wait for a connection while the machine stalls.
fn config(database: &Database) -> Config {
    let acquire_timeout = Duration::from_secs(20);
    Config { url: database.url().into(), acquire_timeout, ..Config::default() }
}

pub fn ended(firing: &Firing, outcome: Outcome) -> FinishedFiring {
    FinishedFiring {
        firing: firing.id,
        outcome,
        class: (outcome == Outcome::Error).then(|| "model-timeout".to_owned()),
        took: Some(Duration::from_millis(1500)),
    }
}

/// Time this many seconds ago, in whole microseconds like the database's.
pub fn ago(seconds: i64) -> Timestamp {
    let then = Timestamp::now() - SignedDuration::from_secs(seconds);
    Timestamp::from_second(then.as_second()).unwrap_or(then)
}

#[derive(Clone, Copy)]
pub struct Tenant<'w> {
    world: &'w World,
    pub id: TenantId,
    pub agent: AgentId,
}

impl Tenant<'_> {
    pub fn job(&self, spec: Value) -> NewJob {
        NewJob {
            id: JobId::generate(),
            external_id: None,
            kind: JobKind::Every,
            agent: self.agent,
            owner: None,
            author: None,
            name: "water the plants".to_owned(),
            description: String::new(),
            enabled: true,
            spec,
            payload: json!({"kind": "agentTurn", "message": "water the plants"}),
            session_target: None,
            wake_mode: None,
            isolation: None,
            overlap: Overlap::Skip,
            delete_after_run: false,
        }
    }

    pub async fn add(&self, new: NewJob) -> Result<Job, Error> {
        Ok(self.world.jobs.add(self.id, new).await?.into_job())
    }

    /// Adds a job whose first slot was this many seconds ago.
    pub async fn due(&self, seconds: i64, spec: Value) -> Result<Job, Error> {
        self.add(self.job(since(seconds, spec))).await
    }

    pub async fn get(&self, job: JobId) -> Result<Job, Error> {
        self.world.jobs.get(self.id, job).await
    }
}

/// Schedule whose first slot was this many seconds ago.
pub fn since(seconds: i64, mut spec: Value) -> Value {
    spec["first"] = json!(ago(seconds).to_string());
    spec
}
