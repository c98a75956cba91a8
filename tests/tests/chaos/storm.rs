//! Everything at once: processes are killed, paused and drained, backends crash, answers get lost,
//! while people talk. Then it is calm, and every promise is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::{join_all, try_join_all};
use holdfast_testkit::backends::Server;
use holdfast_testkit::proxy::{LostAnswers, When, contains};
use holdfast_testkit::{Fault, OwnBackends};
use holdfast_tests::checks::{Findings, check};
use holdfast_tests::load::{Conversation, Door, Load};
use holdfast_tests::mesh::{Mesh, Plan};
use holdfast_tests::node::{Node, Role};
use holdfast_tests::script::Word;
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::report::Report;
use crate::{RUNNER, storm_time};

const LEASE: Duration = Duration::from_secs(3);

/// Every place in the runner where a commit or a call outside begins or ends.
const POINTS: [&str; 13] = [
    "runner.before_claim",
    "runner.after_claim",
    "runner.after_load",
    "runner.boundary",
    "runner.before_model",
    "runner.after_model",
    "runner.before_append",
    "runner.after_append",
    "runner.before_call",
    "runner.after_call",
    "runner.before_complete",
    "runner.after_complete",
    "runner.before_renew",
];

/// How often a runner dies at each.
const CHANCE: f64 = 0.0004;

/// What is not at rest, in words.
const BUSY: &str = "
    select (select count(*) from session.inbox where state in ('new', 'seen')) || ' messages, '
        || (select count(*) from session.deliveries where state in ('pending', 'sending')) || ' replies, '
        || (select count(*) from session.session_lease where state in ('READY', 'RUNNING'))
        || ' sessions, at most ' || (select max(attempts) from session.session_lease) || ' attempts'";

/// What happened to the backends.
#[derive(Debug, Default)]
struct Weather {
    postgres: AtomicU64,
    nats: AtomicU64,
    redis: AtomicU64,
    flushes: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_dies_no_message_is_lost_and_none_is_doubled() -> anyhow::Result<()> {
    let _turn = turnstile::alone().await?;
    let backends = OwnBackends::start().await?;
    let points: Vec<String> = POINTS.iter().map(|name| format!("{name}=kill:{CHANCE}")).collect();
    let plan = Plan {
        gateways: 2,
        runners: 3,
        bridges: 2,
        tenants: vec![
            QueueMode::Steer,
            QueueMode::Followup,
            QueueMode::Collect,
            QueueMode::Interrupt,
        ],
        lease: LEASE,
        slots: 8,
        failpoints: points.join(","),
        ..Plan::small(RUNNER)
    };
    let mesh = Mesh::start(&plan, backends.urls()).await?;
    mesh.fakes.model.latency(Duration::from_millis(250));
    let load = Load::on(&mesh)?;
    let weather = Weather::default();

    let mut report = Report::of("storm");
    let played = tokio::select! {
        played = play(&mesh, &load, &backends, &weather, &mut report) => played,
        failed = keep_up(&mesh) => failed.map(|()| Vec::new()),
    };
    let complaints = played?;
    let mut findings = check(&mesh, &load.said()).await?;
    findings.broken.extend(complaints);
    tell(&mut report, &mesh, &load, &weather, &findings).await;
    report.show()?;
    ensure!(findings.broken.is_empty(), "promises were broken:\n{}", findings.broken.join("\n"));
    not_vacuous(&mesh, &weather, &findings).await
}

/// The storm, then a rolling restart while people still talk, then calm. Says what the talkers
/// had to complain about.
async fn play(
    mesh: &Mesh,
    load: &Load<'_>,
    backends: &OwnBackends,
    weather: &Weather,
    report: &mut Report,
) -> anyhow::Result<Vec<String>> {
    let enough = CancellationToken::new();
    let blow = async {
        let lost = lose_answers(mesh);
        let until = Instant::now() + storm_time();
        tokio::try_join!(
            kill(mesh, until),
            pause(mesh, until),
            crash_postgres(backends, weather, until),
            wipe_nats(backends, weather, until),
            flush_redis(backends, weather, until),
            crash_redis(backends, weather, until),
        )?;
        for (name, rule) in &lost {
            rule.stop();
            report.line(name, rule.fired());
        }
        report.line("answers cut by the keyed platform", mesh.fakes.receiver.faults().fired());
        report.line("answers cut by the plain platform", mesh.fakes.telegram.faults().fired());
        mesh.fakes.receiver.faults().clear();
        mesh.fakes.telegram.faults().clear();
        // Whether a stale owner writes is a matter of milliseconds; it must have been tried.
        for _ in 0..5 {
            if fenced(mesh).await == 0 {
                pause_one(mesh).await?;
            }
        }
        let longest = roll(mesh).await?;
        report.line("rolling restart: longest drain, ms", longest.as_millis());
        anyhow::Ok(())
    };
    let blow = async {
        let blown = blow.await;
        enough.cancel();
        blown
    };
    let (complaints, blown) = tokio::join!(talk(mesh, load, &enough), blow);
    blown?;
    let began = Instant::now();
    report.line("open when people stopped talking", mesh.text(BUSY).await?);
    mesh.fakes.model.latency(Duration::ZERO);
    calm(mesh).await?;
    report.line("calm after, ms", began.elapsed().as_millis());
    Ok(complaints)
}

/// Dead processes are started again, as by an orchestrator; what a dead bridge was sending is
/// looked at sooner than after its minute.
async fn keep_up(mesh: &Mesh) -> anyhow::Result<()> {
    let nodes = mesh.nodes();
    let mut lapse = Instant::now();
    loop {
        for node in &nodes {
            node.revive().await?;
        }
        if lapse.elapsed() > Duration::from_secs(2) {
            // Postgres may be down.
            let _ = mesh.lapse_sends(Duration::from_secs(6)).await;
            lapse = Instant::now();
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn talk(mesh: &Mesh, load: &Load<'_>, enough: &CancellationToken) -> Vec<String> {
    let mut conversations = Vec::new();
    for tenant in 0..mesh.tenants.len() {
        let doors = [
            Door::Grpc,
            Door::Grpc,
            Door::Grpc,
            Door::Webhook,
            Door::Webhook,
            Door::Telegram,
            Door::Telegram,
        ];
        for (number, door) in doors.into_iter().enumerate() {
            conversations.push(Conversation { tenant, number, door });
        }
    }
    let talking = conversations.iter().map(|conversation| converse(load, conversation, enough));
    let poisoned = (0..3).map(|tenant| {
        let door = if tenant == 1 { Door::Webhook } else { Door::Grpc };
        let conversation = Conversation { tenant, number: 90, door };
        async move { poison(load, &conversation).await }
    });
    let (talked, poisoned) = tokio::join!(join_all(talking), join_all(poisoned));
    let failed = talked.into_iter().chain(poisoned).filter_map(Result::err);
    failed.map(|error| format!("{error:#}")).collect()
}

async fn converse(
    load: &Load<'_>,
    conversation: &Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    while !enough.is_cancelled() {
        let word = match rand::random_range(0..100) {
            0..10 => Word::Act,
            10..20 => Word::Note,
            20..30 => Word::Status,
            _ => Word::Say,
        };
        if conversation.door == Door::Grpc && rand::random_range(0..6) == 0 {
            load.ask(conversation, word).await?;
        } else {
            load.say(conversation, word, rand::random_range(1..=3)).await?;
        }
        sleep(Duration::from_millis(rand::random_range(200..1200))).await;
    }
    Ok(())
}

/// A message that kills whoever runs it, and two behind it.
async fn poison(load: &Load<'_>, conversation: &Conversation) -> anyhow::Result<()> {
    load.say(conversation, Word::Say, 1).await?;
    // What is still open is of the same turn, and goes before the poison does.
    sleep(Duration::from_secs(2)).await;
    load.say(conversation, Word::Poison, 2).await?;
    sleep(Duration::from_millis(500)).await;
    load.say(conversation, Word::Say, 2).await?;
    load.say(conversation, Word::Note, 1).await?;
    Ok(())
}

fn lose_answers(mesh: &Mesh) -> Vec<(&'static str, LostAnswers)> {
    let commits = |proxy: &holdfast_testkit::Proxy| {
        proxy.lose_answer(When::Chance(0.004), contains("COMMIT"))
    };
    for (faults, plain) in
        [(mesh.fakes.receiver.faults(), false), (mesh.fakes.telegram.faults(), true)]
    {
        faults.sometimes(0.03, Fault::CutAfter);
        faults.sometimes(0.01, Fault::CutBefore);
        faults.sometimes(0.01, Fault::Status(503));
        if plain {
            faults.sometimes(0.01, Fault::RateLimited { retry_after: Duration::from_secs(1) });
        }
    }
    vec![
        ("answers lost after COMMIT, gateways", commits(&mesh.proxies.gateway_database)),
        ("answers lost after COMMIT, runners", commits(&mesh.proxies.runner_database)),
        ("answers lost after COMMIT, bridges", commits(&mesh.proxies.bridge_database)),
        (
            "answers lost after PubAck",
            mesh.proxies.nats.lose_answer(When::Chance(0.02), contains(".evt.")),
        ),
    ]
}

async fn kill(mesh: &Mesh, until: Instant) -> anyhow::Result<()> {
    let nodes = mesh.nodes();
    while Instant::now() < until {
        sleep(Duration::from_millis(rand::random_range(700..1300))).await;
        nodes[rand::random_range(0..nodes.len())].crash().await?;
    }
    Ok(())
}

async fn pause(mesh: &Mesh, until: Instant) -> anyhow::Result<()> {
    while Instant::now() < until {
        sleep(Duration::from_secs(4)).await;
        pause_one(mesh).await?;
    }
    Ok(())
}

async fn pause_one(mesh: &Mesh) -> anyhow::Result<()> {
    let runner = &mesh.runners[rand::random_range(0..mesh.runners.len())];
    // It may have died a moment ago.
    let _ = runner.pause(LEASE + Duration::from_millis(2500)).await;
    Ok(())
}

async fn crash_postgres(
    backends: &OwnBackends,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(14), until, async || {
        backends.kill(Server::Postgres).await?;
        backends.restart(Server::Postgres).await?;
        weather.postgres.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

async fn wipe_nats(
    backends: &OwnBackends,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(19), until, async || {
        backends.kill(Server::Nats).await?;
        backends.wipe_nats().await?;
        sleep(Duration::from_secs(1)).await;
        backends.restart(Server::Nats).await?;
        weather.nats.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

async fn crash_redis(
    backends: &OwnBackends,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(31), until, async || {
        backends.kill(Server::Redis).await?;
        sleep(Duration::from_secs(2)).await;
        backends.restart(Server::Redis).await?;
        weather.redis.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

async fn flush_redis(
    backends: &OwnBackends,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    let url = &backends.urls().redis_url;
    let addr = url.strip_prefix("redis://").context("not a Redis URL")?.trim_end_matches('/');
    every(Duration::from_secs(1), until, async || {
        // It may be down just now.
        if let Ok(mut redis) = tokio::net::TcpStream::connect(addr).await
            && redis.write_all(b"FLUSHALL\r\n").await.is_ok()
        {
            weather.flushes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
    .await
}

async fn every(
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

/// Every process in turn is asked to stop, and started when it has.
async fn roll(mesh: &Mesh) -> anyhow::Result<Duration> {
    let mut longest = Duration::ZERO;
    for node in mesh.nodes() {
        let limit = Duration::from_secs(30);
        node.ready(limit).await?;
        // One that dies at a failpoint just now did not drain; the next one will.
        if let Ok(took) = node.stop(limit).await {
            longest = longest.max(took);
        }
        node.start().await?;
        node.ready(limit).await?;
    }
    Ok(longest)
}

/// Waits until nothing is under way any more.
async fn calm(mesh: &Mesh) -> anyhow::Result<()> {
    const OPEN: &str = "
        select (select count(*) from session.inbox where state in ('new', 'seen'))
             + (select count(*) from session.deliveries where state in ('pending', 'sending'))
             + (select count(*) from session.session_lease where state in ('READY', 'RUNNING'))";
    let pending = || -> usize {
        mesh.tenants.iter().map(|tenant| mesh.fakes.telegram.pending(&tenant.bot)).sum()
    };
    let wait = async {
        while pending() > 0 || mesh.number(OPEN).await? > 0 {
            sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    // What is still open then, the checks say.
    let _ = timeout(Duration::from_secs(75), wait).await;
    try_join_all(mesh.nodes().iter().map(|node| node.ready(Duration::from_secs(20)))).await?;
    Ok(())
}

async fn fenced(mesh: &Mesh) -> u64 {
    join_all(mesh.runners.iter().map(|runner| runner.fenced())).await.into_iter().sum()
}

fn sum(nodes: &[Arc<Node>], what: impl Fn(&Node) -> &AtomicU64) -> u64 {
    nodes.iter().map(|node| what(node).load(Ordering::Relaxed)).sum()
}

async fn tell(
    report: &mut Report,
    mesh: &Mesh,
    load: &Load<'_>,
    weather: &Weather,
    findings: &Findings,
) {
    for (name, nodes) in
        [("gateways", &mesh.gateways), ("runners", &mesh.runners), ("bridges", &mesh.bridges)]
    {
        report.line(&format!("kill -9 of {name}"), sum(nodes, |node| &node.counts.kills));
        report.line(&format!("drains of {name}"), sum(nodes, |node| &node.counts.drains));
    }
    let deaths = sum(&mesh.runners, |node| &node.counts.deaths);
    report.line("runners that died at a failpoint or of poison", deaths);
    report.line("runners stopped past their lease", sum(&mesh.runners, |node| &node.counts.pauses));
    report.line("writes that the fence refused", fenced(mesh).await);
    report.line("Postgres crashes", weather.postgres.load(Ordering::Relaxed));
    report.line("NATS killed and wiped", weather.nats.load(Ordering::Relaxed));
    report.line("Redis crashes", weather.redis.load(Ordering::Relaxed));
    report.line("Redis FLUSHALL", weather.flushes.load(Ordering::Relaxed));
    report.line("calls made again by senders", load.retries.load(Ordering::Relaxed));
    report.line("answers followed to their end", load.followed.load(Ordering::Relaxed));
    report.line("model calls", mesh.fakes.model.count());
    for (name, number) in &findings.counts {
        report.line(name, number);
    }
    report.line("messages given up that were no poison", findings.collateral.len());
    for collateral in &findings.collateral {
        report.line("  given up", collateral);
    }
    let mut complaints: BTreeMap<String, u64> = BTreeMap::new();
    for node in mesh.nodes() {
        for complaint in node.complaints().await {
            *complaints.entry(complaint).or_default() += 1;
        }
    }
    for (complaint, times) in complaints {
        report.line(&format!("  errors in logs, {times} times"), complaint);
    }
}

/// A storm that did not blow proves nothing.
async fn not_vacuous(mesh: &Mesh, weather: &Weather, findings: &Findings) -> anyhow::Result<()> {
    let fenced = fenced(mesh).await;
    ensure!(fenced > 0, "no stale owner tried to write: the fence was not tested");
    for nodes in [&mesh.gateways, &mesh.runners, &mesh.bridges] {
        let role: Role = nodes[0].spec().role;
        ensure!(sum(nodes, |node| &node.counts.kills) > 0, "no {role:?} was killed");
    }
    for (what, count) in
        [("Postgres", &weather.postgres), ("NATS", &weather.nats), ("Redis", &weather.flushes)]
    {
        ensure!(count.load(Ordering::Relaxed) > 0, "{what} was left alone");
    }
    for what in [
        "messages completed",
        "replies to a keyed channel",
        "replies to a plain channel",
        "acts on the world",
        "messages dead",
    ] {
        ensure!(findings.counts.get(what).is_some_and(|n| *n > 0), "there were no {what}");
    }
    for node in mesh.nodes() {
        let panics = node.complaints().await;
        let panics: Vec<_> = panics.iter().filter(|line| line.contains("panicked")).collect();
        ensure!(panics.is_empty(), "{} panicked: {panics:?}", node.spec().name);
    }
    Ok(())
}
