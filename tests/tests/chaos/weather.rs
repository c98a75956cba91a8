//! Faults that hit the mesh and its backends until a given moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use holdfast_testkit::backends::Server;
use holdfast_testkit::proxy::{LostAnswers, When, contains};
use holdfast_testkit::{Fault, NatsCluster, OwnBackends, RedisGroup};
use holdfast_tests::dice;
use holdfast_tests::mesh::{Mesh, Replicas};
use holdfast_tests::node::{Node, Role};
use holdfast_tests::platforms::Platforms;
use rand::RngExt as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::storm::LEASE;

/// The servers that a storm crashes.
#[derive(Debug)]
pub(crate) struct Servers {
    /// Postgres, and NATS and Redis unless there are several of them.
    pub(crate) own: OwnBackends,
    replicated: Option<(Mutex<NatsCluster>, Mutex<RedisGroup>)>,
}

impl Servers {
    /// One server of each kind.
    pub(crate) async fn single() -> anyhow::Result<Self> {
        Ok(Self { own: OwnBackends::start().await?, replicated: None })
    }

    /// One Postgres, three NATS servers, and two Redis servers with Sentinels. At most one server
    /// of each kind is down at a time.
    pub(crate) async fn replicated() -> anyhow::Result<(Self, Replicas)> {
        let (nats, redis) = (NatsCluster::start().await?, RedisGroup::start().await?);
        let replicas = Replicas {
            nats_urls: nats.urls(),
            redis_url: RedisGroup::LOGIN_URL.to_owned(),
            sentinels: redis.sentinels(),
            sentinel_group: RedisGroup::NAME.to_owned(),
        };
        let replicated = Some((Mutex::new(nats), Mutex::new(redis)));
        Ok((Self { own: OwnBackends::start().await?, replicated }, replicas))
    }

    /// Kills NATS, or one of its servers, and starts it again without data.
    async fn wipe_nats(&self, number: u64) -> anyhow::Result<()> {
        let down = Duration::from_secs(1);
        if let Some((nats, _)) = &self.replicated {
            let (mut nats, number) = (nats.lock().await, usize::try_from(number % 3)?);
            nats.lose(number).await?;
            sleep(down).await;
            return nats.restart(number).await;
        }
        self.own.kill(Server::Nats).await?;
        self.own.wipe_nats().await?;
        sleep(down).await;
        self.own.restart(Server::Nats).await
    }

    /// Kills the Redis that is used, and starts it again, maybe as the copy of another.
    async fn crash_redis(&self) -> anyhow::Result<()> {
        // A Sentinel names another server after a second at the earliest.
        let down = Duration::from_secs(4);
        if let Some((_, redis)) = &self.replicated {
            let mut redis = redis.lock().await;
            let primary = redis.primary().await?;
            redis.kill(primary).await?;
            sleep(down).await;
            ensure!(redis.primary().await? != primary, "the Sentinels name a dead server");
            return redis.restart(primary).await;
        }
        self.own.kill(Server::Redis).await?;
        sleep(down / 2).await;
        self.own.restart(Server::Redis).await
    }

    async fn flush_redis(&self) -> anyhow::Result<()> {
        match &self.replicated {
            Some((_, redis)) => redis.try_lock()?.flush().await,
            None => self.own.flush_redis().await,
        }
    }
}

/// What happened to the backends.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    pub(crate) postgres: AtomicU64,
    pub(crate) nats: AtomicU64,
    pub(crate) redis: AtomicU64,
    pub(crate) flushes: AtomicU64,
    /// Connections of a stopped process whose transaction was open.
    pub(crate) open_transactions: AtomicU64,
}

/// How long a gateway or a bridge is stopped: longer than Postgres waits for a client in a
/// transaction, which is 5 s.
const FREEZE: Duration = Duration::from_millis(6_500);

pub(crate) fn lose_answers(mesh: &Mesh) -> Vec<(&'static str, LostAnswers)> {
    let commits = |name: &str, proxy: &holdfast_testkit::Proxy| {
        let draws = dice::stream(&format!("lost answers after COMMIT, {name}"));
        proxy.lose_answer(When::Chance(0.004, Box::new(draws)), contains("COMMIT"))
    };
    for (faults, plain) in
        [(mesh.fakes.receiver.faults(), false), (mesh.fakes.telegram.faults(), true)]
    {
        let limited = Fault::RateLimited { retry_after: Duration::from_secs(1) };
        let all = [
            (0.03, Fault::CutAfter),
            (0.01, Fault::CutBefore),
            (0.01, Fault::Status(503)),
            (if plain { 0.01 } else { 0.0 }, limited),
        ];
        for (probability, fault) in all {
            let draws = dice::stream(&format!("{fault:?}, plain: {plain}"));
            faults.sometimes(probability, fault, draws);
        }
    }
    for (name, faults) in mesh.fakes.platforms.iter().flat_map(Platforms::faults) {
        // These platforms get few replies, and chance alone may spare them all.
        for fault in [Fault::CutAfter, Fault::CutBefore, Fault::Status(503)] {
            faults.next(1, &fault);
        }
        let limited = Fault::RateLimited { retry_after: Duration::from_secs(1) };
        let all = [
            (0.03, Fault::CutAfter),
            (0.02, Fault::CutBefore),
            (0.02, Fault::Status(503)),
            (0.02, Fault::Hang(Duration::from_millis(700))),
            (0.01, limited),
        ];
        for (probability, fault) in all {
            let draws = dice::stream(&format!("{fault:?}, {name}"));
            faults.sometimes(probability, fault, draws);
        }
    }
    let nats = &mesh.proxies.nats_cluster;
    let nats = if nats.is_empty() { std::slice::from_ref(&mesh.proxies.nats) } else { nats };
    let published = nats.iter().enumerate().map(|(number, proxy)| {
        let draws = dice::stream(&format!("lost answers after PubAck, {number}"));
        let rule = proxy.lose_answer(When::Chance(0.02, Box::new(draws)), contains(".evt."));
        ("answers lost after PubAck", rule)
    });
    let commits = [
        (
            "answers lost after COMMIT, gateways",
            commits("gateways", &mesh.proxies.gateway_database),
        ),
        ("answers lost after COMMIT, runners", commits("runners", &mesh.proxies.runner_database)),
        ("answers lost after COMMIT, bridges", commits("bridges", &mesh.proxies.bridge_database)),
    ];
    commits.into_iter().chain(published).collect()
}

pub(crate) async fn kill(mesh: &Mesh, until: Instant) -> anyhow::Result<()> {
    let (nodes, mut draws) = (mesh.nodes(), dice::stream("kill"));
    while Instant::now() < until {
        sleep(Duration::from_millis(draws.random_range(700..1300))).await;
        nodes[draws.random_range(0..nodes.len())].crash().await?;
    }
    Ok(())
}

pub(crate) async fn pause(mesh: &Mesh, until: Instant) -> anyhow::Result<()> {
    let mut draws = dice::stream("pause");
    while Instant::now() < until {
        sleep(Duration::from_secs(4)).await;
        pause_one(mesh, draws.random_range(0..mesh.runners.len())).await?;
    }
    Ok(())
}

/// Stops gateways and bridges in turn while they have a transaction open.
pub(crate) async fn freeze(mesh: &Mesh, weather: &Weather, until: Instant) -> anyhow::Result<()> {
    let mut draws = dice::stream("freeze");
    for role in [Role::Gateway, Role::Bridge].into_iter().cycle() {
        sleep(Duration::from_secs(3)).await;
        if Instant::now() + FREEZE > until {
            break;
        }
        let nodes = if role == Role::Gateway { &mesh.gateways } else { &mesh.bridges };
        freeze_one(mesh, weather, &nodes[draws.random_range(0..nodes.len())]).await;
    }
    Ok(())
}

/// Stops a gateway or a bridge while it has a transaction open.
pub(crate) async fn freeze_one(mesh: &Mesh, weather: &Weather, node: &Node) {
    let role = node.spec().role;
    // Postgres may be down, and the process may have died a moment ago.
    if let Ok(locked) = lock_table(mesh, role).await {
        let (frozen, open) = tokio::join!(node.pause(FREEZE), count_open(locked, role));
        if frozen.is_ok() {
            weather.open_transactions.fetch_add(open.unwrap_or_default(), Ordering::Relaxed);
        }
    }
}

/// Locks what processes of this kind write: after a moment each waits with a transaction open.
async fn lock_table(mesh: &Mesh, role: Role) -> anyhow::Result<PgConnection> {
    let table = if role == Role::Gateway { "session.inbox" } else { "session.deliveries" };
    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    let lock = format!("set lock_timeout = '2s'; begin; lock table {table} in exclusive mode");
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut admin).await?;
    sleep(Duration::from_millis(300)).await;
    Ok(admin)
}

/// Lets the others go on, and counts the transactions that stay open.
async fn count_open(mut admin: PgConnection, role: Role) -> anyhow::Result<u64> {
    const OPEN: &str = "
        select count(*) from pg_stat_activity
        where state = 'idle in transaction' and application_name = $1
          and state_change < clock_timestamp() - interval '1 second'";
    sleep(Duration::from_millis(300)).await;
    sqlx::raw_sql("commit").execute(&mut admin).await?;
    sleep(Duration::from_millis(2_500)).await;
    let service = if role == Role::Gateway { "holdfast-gateway" } else { "holdfast-bridge" };
    let open: i64 = sqlx::query_scalar(OPEN).bind(service).fetch_one(&mut admin).await?;
    Ok(u64::try_from(open)?)
}

/// Stops a runner for longer than its lease.
pub(crate) async fn pause_one(mesh: &Mesh, number: usize) -> anyhow::Result<()> {
    let runner = &mesh.runners[number];
    // It may have died a moment ago.
    let _ = runner.pause(LEASE + Duration::from_millis(2500)).await;
    Ok(())
}

pub(crate) async fn crash_postgres(
    backends: &Servers,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(14), until, async || {
        backends.own.kill(Server::Postgres).await?;
        backends.own.restart(Server::Postgres).await?;
        weather.postgres.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

pub(crate) async fn wipe_nats(
    backends: &Servers,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(19), until, async || {
        backends.wipe_nats(weather.nats.load(Ordering::Relaxed)).await?;
        weather.nats.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

pub(crate) async fn crash_redis(
    backends: &Servers,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(31), until, async || {
        backends.crash_redis().await?;
        weather.redis.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

pub(crate) async fn flush_redis(
    backends: &Servers,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(1), until, async || {
        // It may be down just now.
        if backends.flush_redis().await.is_ok() {
            weather.flushes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
    .await
}

pub(crate) async fn every(
    pause: Duration,
    until: Instant,
    strike: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    while Instant::now() + pause < until {
        sleep(pause).await;
        strike().await?;
    }
    Ok(())
}
