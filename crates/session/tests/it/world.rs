//! Fixture of the tests: a database, a tenant that sends, a runner that claims.

use std::time::Duration;

use holdfast_pg::{Config, Pools};
use holdfast_session::{
    Acceptance, Claim, Completion, Error, NewMessage, PruneCounts, Retention, Sessions,
    SweepCounts, TurnOutcome,
};
use holdfast_testkit::Database;
use holdfast_types::{
    AccountId, AgentId, AgentName, Body, Entry, QueueMode, RunId, RunnerId, SessionId, SessionKey,
    Source, Target, TenantId, Usage, Wait,
};
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

pub struct World {
    pub sessions: Sessions,
    pub runner: RunnerId,
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
        let sessions = Sessions::new(Pools::lazy(&config(&database), "test")?);
        Ok(Self { sessions, runner: RunnerId::generate(), database })
    }

    /// Connects pools with the services' login.
    pub fn pools(&self) -> anyhow::Result<Pools> {
        Pools::lazy(&config(&self.database), "test")
    }

    /// Connects pools with the login of a pool of runners; an empty name is the default pool.
    pub async fn runner_pool_login(&self, pool: &str) -> anyhow::Result<Pools> {
        let url = self.database.runner_pool_url(pool).await?;
        holdfast_pg::migrate(&self.database.admin_url()).await?;
        Pools::lazy(&Config { url: url.into(), ..config(&self.database) }, "test")
    }

    pub fn tenant(&self) -> Tenant<'_> {
        Tenant { world: self, id: TenantId::generate(), agent: AgentId::generate() }
    }

    /// Stores a tenant's row, which pruning reads.
    pub async fn enroll(&self, tenant: Tenant<'_>) -> anyhow::Result<()> {
        let id = tenant.id.as_uuid();
        let sql = format!(
            "insert into control.tenants (tenant_id, name, data_key) values ('{id}', '{id}', '')"
        );
        self.admin(&sql).await.map(drop)
    }

    /// URL of the database for the services' login.
    pub fn url(&self) -> String {
        self.database.url()
    }

    /// Connects as the owner.
    pub async fn admin_connection(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.database.admin_url()).await?)
    }

    /// Runs a statement as the owner, to whom row-level security does not apply.
    pub async fn admin(&self, sql: &str) -> anyhow::Result<u64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?;
        // Otherwise Postgres counts what this read at a time of its own, within a later measurement.
        sqlx::query("select pg_stat_force_next_flush()").execute(&mut connection).await?;
        Ok(done.rows_affected())
    }

    /// Reads one number as the owner.
    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
    }

    /// A connection of the database's owner, in a transaction.
    pub async fn begin(&self) -> anyhow::Result<PgConnection> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        sqlx::query("begin").execute(&mut connection).await?;
        Ok(connection)
    }

    /// Locks the rows of all sessions, until [`let_go_after`](Self::let_go_after).
    pub async fn hold_sessions(&self) -> anyhow::Result<PgConnection> {
        let mut holder = self.begin().await?;
        sqlx::query("select from session.session_lease for update").execute(&mut holder).await?;
        Ok(holder)
    }

    /// Locks the row of one session in a transaction that stays open.
    pub async fn hold_session(&self, session: SessionId) -> anyhow::Result<PgConnection> {
        const SQL: &str = "select from session.session_lease where session_id = $1 for update";
        let mut holder = self.begin().await?;
        sqlx::query(SQL).bind(session.as_uuid()).execute(&mut holder).await?;
        Ok(holder)
    }

    /// Runs an action once a number of transactions wait for a lock.
    pub async fn after_waiting<T>(
        &self,
        waiting: i64,
        then: impl Future<Output = Result<T, Error>>,
    ) -> anyhow::Result<T> {
        const WAITING: &str = "
            select count(*) from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'";
        while self.number(WAITING).await? < waiting {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(then.await?)
    }

    /// Releases the locks of [`hold_sessions`](Self::hold_sessions) once a number of transactions
    /// wait for them.
    pub async fn let_go_after(
        &self,
        waiting: i64,
        holder: &mut PgConnection,
    ) -> anyhow::Result<()> {
        let let_go = async { Ok(sqlx::query("commit").execute(holder).await.map(drop)?) };
        self.after_waiting(waiting, let_go).await
    }

    /// Makes every lease expire now.
    pub async fn lapse(&self) -> anyhow::Result<()> {
        self.admin(
            "update session.session_lease set lease_until = clock_timestamp() - interval '1 second'
             where state = 'RUNNING'",
        )
        .await?;
        Ok(())
    }

    /// Sweeps once; an error of any part is returned instead of the counts.
    pub async fn sweep(&self) -> Result<SweepCounts, Error> {
        let swept = self.sessions.sweep().await;
        swept.failure.map_or(Ok(swept.done), Err)
    }

    /// Prunes once; an error of any part is returned instead of the counts.
    pub async fn prune(&self, keep: &Retention) -> Result<PruneCounts, Error> {
        let pruned = self.sessions.upkeep().prune(keep).await;
        pruned.failure.map_or(Ok(pruned.done), Err)
    }

    pub async fn claim(&self) -> anyhow::Result<Vec<Claim>> {
        Ok(self.sessions.claim(self.runner, 100).await?)
    }

    /// Moves the committed events to the log. Returns their number.
    pub async fn log_events(&self) -> Result<usize, Error> {
        if !self.sessions.event_log().has_unlogged().await? {
            return Ok(0);
        }
        let Some(mut writer) = self.sessions.event_log().writer().await? else { return Ok(0) };
        let (_, events) = writer.take(1_000).await?;
        let count = events.len();
        writer.commit(events).await?;
        Ok(count)
    }

    pub async fn claim_one(&self) -> anyhow::Result<Claim> {
        let mut claims = self.sessions.claim(self.runner, 1).await?;
        claims.pop().ok_or_else(|| anyhow::anyhow!("nothing is ready"))
    }

    /// Answers all messages of a claimed session.
    pub async fn answer(&self, claim: &Claim, text: &str) -> Result<(), Error> {
        Self::answer_with(&self.sessions, claim, text).await
    }

    /// Answers all messages of a session that other sessions than the world's have claimed.
    pub async fn answer_with(sessions: &Sessions, claim: &Claim, text: &str) -> Result<(), Error> {
        let loaded = sessions.load(claim, 100).await?;
        let done: Vec<i64> = loaded.waiting.iter().map(|waiting| waiting.seq).collect();
        Self::finish_with(sessions, claim, (done, text, Wait::Anything)).await
    }

    /// Answers some messages of a claimed session, which then waits.
    pub async fn finish(
        &self,
        claim: &Claim,
        done: Vec<i64>,
        text: &str,
        wait: Wait,
    ) -> Result<(), Error> {
        Self::finish_with(&self.sessions, claim, (done, text, wait)).await
    }

    async fn finish_with(
        sessions: &Sessions,
        claim: &Claim,
        (done, text, wait): (Vec<i64>, &str, Wait),
    ) -> Result<(), Error> {
        let loaded = sessions.load(claim, 100).await?;
        let first = loaded.waiting.iter().find(|waiting| done.contains(&waiting.seq));
        let run = first.map_or_else(RunId::generate, |first| first.message.into());
        let mut entries: Vec<Entry> = loaded
            .waiting
            .iter()
            .filter(|waiting| done.contains(&waiting.seq))
            .map(|waiting| Entry::Heard { seq: waiting.seq, body: waiting.body.clone() })
            .collect();
        entries.push(thought(text));
        let reply = Some(entries.len() - 1);
        let completion = Completion { entries, done, reply, wait, ..completion(run) };
        sessions.complete(claim, completion).await.map(|_| ())
    }
}

/// Settings with which callers wait for a connection while the machine stalls.
fn config(database: &Database) -> Config {
    let acquire_timeout = Duration::from_secs(20);
    Config { url: database.url().into(), acquire_timeout, ..Config::default() }
}

pub fn thought(text: &str) -> Entry {
    Entry::Thought {
        text: text.to_owned(),
        calls: vec![],
        usage: Usage { input: 3, cached: 1, output: 2, ..Usage::default() },
        model: "test:one".to_owned(),
        carry: None,
        record: None,
    }
}

pub fn completion(run: RunId) -> Completion {
    Completion {
        run,
        at: None,
        newest: None,
        entries: vec![],
        done: vec![],
        outcome: TurnOutcome::Completed,
        reason: None,
        reply: None,
        deliveries: vec![],
        usage: Usage { input: 3, cached: 1, output: 2, ..Usage::default() },
        model: "test:one".to_owned(),
        steps: 1,
        tools: Vec::new(),
        started_at: Timestamp::now(),
        wait: Wait::Anything,
        last_target: None,
        effects: None,
    }
}

/// Creates a tenant with one agent.
#[derive(Clone, Copy)]
pub struct Tenant<'w> {
    world: &'w World,
    pub id: TenantId,
    pub agent: AgentId,
}

impl Tenant<'_> {
    pub fn message(&self, session: &str, idem_key: &str, text: &str) -> NewMessage {
        NewMessage {
            key: SessionKey::main(&AgentName::new(session)),
            agent: self.agent,
            label: None,
            source: Source::Internal("test".to_owned()),
            idem_key: idem_key.to_owned(),
            body: Body::text(text),
            target: None,
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: None,
        }
    }

    pub async fn say(
        &self,
        session: &str,
        idem_key: &str,
        text: &str,
    ) -> Result<Acceptance, Error> {
        self.world.sessions.ingest(self.id, self.message(session, idem_key, text)).await
    }

    pub fn target(&self) -> Target {
        Target {
            channel: "webhook".to_owned(),
            account: AccountId::generate(),
            chat: "c1".to_owned(),
            thread: None,
            reply_to: None,
        }
    }
}
