//! All faults at once: processes are killed, paused and drained, backends crash, answers get lost,
//! while messages are sent. Then the faults stop, and every guarantee is checked.

mod subscribers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use futures::future::{join_all, try_join_all};
use holdfast_tests::checks::{Findings, check, journals_of};
use holdfast_tests::history::{Verdict, judge};
use holdfast_tests::load::{Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::node::{Node, Role};
use holdfast_tests::person::until;
use holdfast_tests::platforms::Platforms;
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::subscribers::{Receipt, Subscribers};
use crate::actors::set_up;
use crate::report::Report;
use crate::talk::talk;
use crate::weather::{
    Servers, Weather, crash_postgres, crash_redis, flush_redis, freeze, freeze_one, kill,
    lose_answers, pause, pause_one, wipe_nats,
};
use crate::{Form, POINTS, RUNNER, form, storm_time};

pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// How long a process may take to be ready, or to stop.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a runner dies at each.
const DEATH_PROBABILITY: f64 = 0.0004;

/// What is not at rest, in words.
const BUSY_QUERY: &str = "
    select (select count(*) from session.inbox where state in ('new', 'seen')) || ' messages, '
        || (select count(*) from session.deliveries where state in ('pending', 'sending')) || ' replies, '
        || (select count(*) from session.session_lease where state in ('READY', 'RUNNING'))
        || ' sessions, at most ' || (select max(attempts) from session.session_lease) || ' attempts'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_dies_no_message_is_lost_and_none_is_doubled() -> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    Box::pin(blow("storm", &Servers::single().await?, MeshConfig::with_failing_database(RUNNER)))
        .await
}

/// Lets a storm blow over this mesh, with the processes that a storm needs, and judges what is left.
pub(crate) async fn blow(
    name: &'static str,
    servers: &Servers,
    plan: MeshConfig,
) -> anyhow::Result<()> {
    let points: Vec<String> =
        POINTS.iter().map(|name| format!("{name}=kill:{DEATH_PROBABILITY}")).collect();
    let plan = MeshConfig {
        gateways: 2,
        runners: 3,
        bridges: 2,
        schedulers: 2,
        memories: 1,
        tenants: vec![
            QueueMode::Steer,
            QueueMode::Followup,
            QueueMode::Collect,
            QueueMode::Interrupt,
        ],
        lease: LEASE,
        slots: 8,
        failpoints: points.join(","),
        platforms: true,
        ..plan
    };
    let mesh = Mesh::start(&plan, servers.own.urls()).await?;
    mesh.fakes.model.latency(Duration::from_millis(250));
    set_up(&mesh).await?;
    let platforms = mesh.fakes.platforms.as_ref();
    let are_read = async || Ok(platforms.is_some_and(Platforms::are_read));
    until("bridges read at the platforms", are_read).await?;
    let subscribers = Subscribers::start(&mesh).await?;
    let load = Senders::on(&mesh)?;
    let weather = Weather::default();

    let mut report = Report::of(name);
    let playing = async {
        let playing = play(&mesh, &load, servers, &weather, &mut report);
        let complaints = Box::pin(playing).await?;
        subscribers.finish(&mesh).await?;
        anyhow::Ok(complaints)
    };
    let playing = async { tokio::try_join!(playing, subscribers.receive(&mesh)) };
    let (mut complaints, ()) = tokio::select! {
        played = playing => played?,
        failed = keep_up(&mesh) => { failed?; (Vec::new(), ()) }
    };
    complaints.extend(count_readers(&mesh).await);
    let (missed, receipts) = subscribers.judge(&mesh).await?;
    complaints.extend(missed);
    let mut findings = check(&mesh, &load.said()).await?;
    load.complete_history().await?;
    let events = mesh.fakes.history.events();
    let verdict = judge(&events);
    findings.broken.extend(complaints);
    findings.broken.extend(verdict.broken.iter().cloned());
    tell(&mut report, &mesh, &load, &weather, &findings).await;
    report.line("events in the history", events.len());
    for (name, number) in &verdict.counts {
        report.line(&format!("history: {name}"), number);
    }
    for broken in &findings.broken {
        report.line("broken", broken);
    }
    for line in journals_of(&mesh, &findings.broken).await? {
        report.line("  journal", line);
    }
    report_receipts(&mut report, &receipts);
    report.show()?;
    ensure!(findings.broken.is_empty(), "promises were broken:\n{}", findings.broken.join("\n"));
    not_vacuous(&mesh, &weather, &findings).await?;
    did_subscribe(&receipts)?;
    did_act(&mesh, &verdict).await
}

/// The storm, then a rolling restart while people still talk, then calm. Says what the talkers
/// had to complain about.
async fn play(
    mesh: &Mesh,
    load: &Senders<'_>,
    backends: &Servers,
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
            freeze(mesh, weather, until),
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
        for (name, faults) in mesh.fakes.platforms.iter().flat_map(Platforms::faults) {
            report.line(&format!("faults of {name}"), faults.fired());
            faults.clear();
        }
        // Whether a stale owner writes is a matter of milliseconds; it must have been tried.
        for attempt in 0..6 {
            if fenced(mesh).await == 0 {
                pause_one(mesh, attempt % mesh.runners.len()).await?;
            }
            // Nor is it certain that a gateway is stopped within a transaction.
            if weather.open_transactions.load(Ordering::Relaxed) == 0 {
                freeze_one(mesh, weather, &mesh.gateways[attempt % mesh.gateways.len()]).await;
            }
        }
        let longest = roll(mesh).await?;
        report.line("rolling restart: longest drain, ms", longest.as_millis());
        anyhow::Ok(())
    };
    let blow = async {
        let blown = Box::pin(blow).await;
        enough.cancel();
        blown
    };
    let talking = async { anyhow::Ok(talk(mesh, load, &enough).await) };
    // After a fault that could not be ended nobody may be answered any more.
    let (complaints, ()) = tokio::try_join!(talking, blow)?;
    let began = Instant::now();
    report.line("open when people stopped talking", mesh.text(BUSY_QUERY).await?);
    mesh.fakes.model.latency(Duration::ZERO);
    calm(mesh, load).await?;
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
            let _ = mesh.expire_sends(Duration::from_secs(6)).await;
            lapse = Instant::now();
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Every process in turn is asked to stop, and started when it has.
async fn roll(mesh: &Mesh) -> anyhow::Result<Duration> {
    let mut longest = Duration::ZERO;
    for node in mesh.nodes() {
        up(&node).await?;
        match node.stop(PROCESS_TIMEOUT).await {
            Ok(took) => longest = longest.max(took),
            // Dead at a failpoint just now: there was nothing to drain.
            Err(error) if format!("{error:#}").contains("SIGABRT") => {}
            Err(error) if format!("{error:#}").contains("has ended") => {}
            Err(error) => return Err(error),
        }
        node.start().await?;
        up(&node).await?;
    }
    Ok(longest)
}

/// Waits until it is ready; one that dies at a failpoint meanwhile is started again by then.
async fn up(node: &Node) -> anyhow::Result<()> {
    for _ in 0..5 {
        if node.ready(PROCESS_TIMEOUT).await.is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(300)).await;
        node.revive().await?;
    }
    node.ready(PROCESS_TIMEOUT).await
}

/// Waits until nothing is under way any more.
async fn calm(mesh: &Mesh, load: &Senders<'_>) -> anyhow::Result<()> {
    const OPEN: &str = "
        select (select count(*) from session.inbox where state in ('new', 'seen'))
             + (select count(*) from session.deliveries where state in ('pending', 'sending'))
             + (select count(*) from session.session_lease where state in ('READY', 'RUNNING'))";
    let pending = || -> usize {
        let bots = mesh.tenants.iter().map(|tenant| mesh.fakes.telegram.pending(&tenant.bot));
        bots.chain(mesh.fakes.platforms.iter().map(Platforms::pending)).sum()
    };
    let unread = unread_mails(load);
    let wait = async {
        while pending() > 0 || mesh.number(&unread).await? > 0 || mesh.number(OPEN).await? > 0 {
            sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    // What is still open then, the checks say.
    let _ = timeout(Duration::from_secs(75), wait).await;
    try_join_all(mesh.nodes().iter().map(|node| up(node))).await?;
    Ok(())
}

/// Query that counts mails that are not in the inbox of the mesh yet.
fn unread_mails(load: &Senders<'_>) -> String {
    let said = load.said();
    let mails = said.iter().filter(|said| said.door == TestChannel::Email);
    let ids: Vec<&str> = mails.map(|said| said.id.as_str()).collect();
    format!(
        "select count(*) from unnest(string_to_array('{}', ',')) id
         where not exists (select from session.inbox where split_part(body->>'text', ' ', 1) = id)",
        ids.join(",")
    )
}

/// Of two bridges one reads at each account, and the other does not: leases that were lost in the
/// storm are taken again by now. Says what is wrong.
async fn count_readers(mesh: &Mesh) -> Vec<String> {
    const TIME: Duration = Duration::from_secs(4);
    let Some(platforms) = &mesh.fakes.platforms else { return Vec::new() };
    let is_one = async || Ok(platforms.readers().iter().all(|(_, readers)| *readers == 1));
    if let Err(error) = until("each account has one reader", is_one).await {
        return vec![format!("{error:#}: {:?}", platforms.readers())];
    }
    let (mut most, began) = (BTreeMap::new(), Instant::now());
    while began.elapsed() < TIME {
        for (name, readers) in platforms.readers() {
            let seen: &mut usize = most.entry(name).or_default();
            *seen = readers.max(*seen);
        }
        sleep(Duration::from_millis(20)).await;
    }
    let several = most.into_iter().filter(|(_, readers)| *readers != 1);
    several.map(|(name, readers)| format!("{readers} bridges read at {name}")).collect()
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
    load: &Senders<'_>,
    weather: &Weather,
    findings: &Findings,
) {
    for (name, nodes) in [
        ("gateways", &mesh.gateways),
        ("runners", &mesh.runners),
        ("bridges", &mesh.bridges),
        ("schedulers", &mesh.schedulers),
        ("memory services", &mesh.memories),
    ] {
        report.line(&format!("kill -9 of {name}"), sum(nodes, |node| &node.counts.kills));
        report.line(&format!("drains of {name}"), sum(nodes, |node| &node.counts.drains));
    }
    let deaths = sum(&mesh.runners, |node| &node.counts.deaths);
    report.line("runners that died at a failpoint or of poison", deaths);
    report.line("runners stopped past their lease", sum(&mesh.runners, |node| &node.counts.pauses));
    report.line("gateways stopped for 6.5 s", sum(&mesh.gateways, |node| &node.counts.pauses));
    report.line("bridges stopped for 6.5 s", sum(&mesh.bridges, |node| &node.counts.pauses));
    let open = weather.open_transactions.load(Ordering::Relaxed);
    report.line("  transactions that were open meanwhile", open);
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
    for (what, count) in [
        ("Postgres", &weather.postgres),
        ("NATS", &weather.nats),
        ("Redis", &weather.flushes),
        ("a transaction of a stopped process", &weather.open_transactions),
    ] {
        ensure!(count.load(Ordering::Relaxed) > 0, "{what} was left alone");
    }
    for what in [
        "messages completed",
        "replies to a keyed channel",
        "replies to a plain channel",
        "replies to Matrix",
        "replies to Slack",
        "replies to Discord",
        "replies by e-mail",
        "acts on the world",
        "messages dead",
    ] {
        ensure!(findings.counts.get(what).is_some_and(|n| *n > 0), "there were no {what}");
    }
    for (name, faults) in mesh.fakes.platforms.iter().flat_map(Platforms::faults) {
        ensure!(faults.fired() > 0, "{name} took every reply at once");
    }
    for node in mesh.nodes() {
        let panics = node.complaints().await;
        let panics: Vec<_> = panics.iter().filter(|line| line.contains("panicked")).collect();
        ensure!(panics.is_empty(), "{} panicked: {panics:?}", node.spec().name);
    }
    Ok(())
}

/// Nor does one in which clients only sent messages. A short storm on a slow machine may have too
/// little time for each kind of action.
async fn did_act(mesh: &Mesh, verdict: &Verdict) -> anyhow::Result<()> {
    for what in ["messages acknowledged", "answers heard"] {
        ensure!(verdict.counts.get(what).is_some_and(|n| *n > 0), "there were no {what}");
    }
    if form() == Form::Short {
        return Ok(());
    }
    for what in [
        "reminders heard",
        "ends of subagents heard",
        "ends of chains heard",
        "approvals granted",
        "approvals denied",
        "actions after an approval",
        "messages cancelled",
        "messages to a paused session",
        "sessions deleted",
    ] {
        ensure!(verdict.counts.get(what).is_some_and(|n| *n > 0), "there were no {what}");
    }
    // Keys of messages of deleted sessions are kept for a week, those of pruned ones for a month.
    let pruned = "
        select count(*) from session.tombstones where until > now() + interval '20 days'";
    ensure!(mesh.number(pruned).await? > 0, "no message was pruned");
    Ok(())
}

fn report_receipts(report: &mut Report, receipts: &[Receipt]) {
    for Receipt { name, logged, received, ends } in receipts {
        let what = format!("{received} received of {logged} logged, ended {ends} times");
        report.line(&format!("events by {name}"), what);
    }
}

/// Nor does one in which there was little to subscribe to, or no subscriber was ended.
fn did_subscribe(receipts: &[Receipt]) -> anyhow::Result<()> {
    for Receipt { name, logged, ends, .. } in receipts {
        // One receiver is taken down for all webhooks.
        let was_ended = *ends > 0 || name.starts_with("Webhook");
        ensure!(*logged > 20 && was_ended, "{name} was left alone, or had {logged} events");
    }
    let of_webhooks = receipts.iter().filter(|receipt| receipt.name.starts_with("Webhook"));
    let downs: u64 = of_webhooks.map(|receipt| receipt.ends).sum();
    ensure!(downs > 0, "the receiver of events was never down");
    Ok(())
}
