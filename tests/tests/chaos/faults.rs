//! One fault at a time, each at the moment when it hurts most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_testkit::proxy::{When, contains};
use holdfast_testkit::{Backends, Fault, Proxy, Reply};
use holdfast_tests::checks::check;
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::script::MessageKind;
use holdfast_tests::turnstile;
use tokio::time::{Instant, sleep, timeout};

use crate::report::{Report, ensure_most_within, slowest};
use crate::{POINTS, RUNNER};

const SOON: Duration = Duration::from_secs(30);

/// How long an answer may take without NATS or Redis.
const ANSWERED_WITHIN: Duration = Duration::from_millis(2500);

const GRPC: Conversation = Conversation { tenant: 0, number: 0, door: TestChannel::Grpc };
const WEBHOOK: Conversation = Conversation { tenant: 0, number: 1, door: TestChannel::Webhook };
const TELEGRAM: Conversation = Conversation { tenant: 0, number: 2, door: TestChannel::Telegram };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acceptance_whose_answer_is_lost_is_one_message() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = Mesh::start(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    // The first one also looks up the key, which has a COMMIT of its own.
    load.say(&GRPC, MessageKind::Say, 1).await?;

    let lost = lose_commit_after(&mesh.proxies.gateway_database, "t0m000002");
    load.say(&GRPC, MessageKind::Say, 1).await?;

    finish(&mesh, &load).await?;
    ensure!(lost() == 1, "no answer was lost");
    ensure!(load.retries.load(Ordering::Relaxed) > 0, "the sender was told in spite of it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_end_was_not_answered_ends_once() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = Mesh::start(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    load.say(&WEBHOOK, MessageKind::Say, 1).await?;
    settled(&mesh).await?;

    // What was heard is written with the turn's end, and not before.
    let lost = lose_commit_after(&mesh.proxies.runner_database, "t0m000002");
    load.say(&WEBHOOK, MessageKind::Say, 1).await?;
    finish(&mesh, &load).await?;
    ensure!(lost() == 1, "no answer was lost");
    ensure!(mesh.fakes.receiver.unique().len() == 2, "not two replies to two messages");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_dies_anywhere_in_a_turn_leaves_it_to_the_next() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig { lease: Duration::from_millis(900), ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    for node in mesh.gateways.iter().chain(&mesh.bridges) {
        node.start().await?;
        node.ready(SOON).await?;
    }
    let runner = &mesh.runners[0];
    let mut report = Report::of("failpoints");
    let mut before_call = String::new();

    for point in POINTS {
        // Long enough for a renewal to fall into it.
        let slow = if point == "runner.before_renew" { 700 } else { 0 };
        mesh.fakes.model.latency(Duration::from_millis(slow));
        runner.start_with(&[("HOLDFAST_FAILPOINTS", &format!("{point}=kill:1"))]).await?;
        let began = Instant::now();
        let said = load.say(&WEBHOOK, MessageKind::Act, 1).await?;
        if point == "runner.before_call" {
            before_call = said.id;
        }
        runner.wait_for_death(SOON).await.with_context(|| format!("it lives on past `{point}`"))?;
        runner.start().await?;
        settled(&mesh).await.with_context(|| format!("after `{point}`"))?;
        report.line(&format!("killed at {point}: settled after, ms"), began.elapsed().as_millis());
        runner.kill().await?;
    }

    runner.start().await?;
    let acts = mesh.fakes.world.posts();
    report.line("acts done of 13", acts.len());
    report.show()?;
    // Killed between `Called` and the call, the act is not done. Two others may be missing: a
    // restarted runner that stands still between the two loses its short lease.
    let is_done = acts.iter().any(|act| act.json()["id"] == before_call.as_str());
    ensure!(!is_done, "`{before_call}` was done, whose runner died before the call");
    ensure!((10..=12).contains(&acts.len()), "{} of 13", acts.len());
    finish(&mesh, &load).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_wakes_up_after_its_lease_writes_nothing() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig { runners: 2, ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    let (stale, fresh) = (&mesh.runners[0], &mesh.runners[1]);
    for node in mesh.gateways.iter().chain(&mesh.bridges) {
        node.start().await?;
        node.ready(SOON).await?;
    }
    // It stands right before its first write when it is stopped.
    stale.start_with(&[("HOLDFAST_FAILPOINTS", "runner.before_append=pause:12")]).await?;
    stale.ready(SOON).await?;
    load.say(&WEBHOOK, MessageKind::Status, 1).await?;
    until(|| async { Ok(mesh.fakes.model.count() > 0) }).await?;
    sleep(Duration::from_millis(500)).await;

    fresh.start().await?;
    let is_answered = || async { Ok(!mesh.fakes.receiver.posts().is_empty()) };
    stale.pause_while(until(is_answered)).await.context("the other one does not answer")?;

    finish(&mesh, &load).await?;
    until(|| async { Ok(stale.fenced().await > 0) }).await.context("its write was not refused")?;
    ensure!(mesh.fakes.receiver.unique().len() == 1, "there are two replies");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bridge_that_dies_in_a_send_repeats_it_only_under_a_key() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = Mesh::start(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    let bridge = &mesh.bridges[0];

    // Before the platform has answered.
    hang(&mesh, Duration::from_secs(20));
    load.say(&WEBHOOK, MessageKind::Say, 1).await?;
    load.say(&TELEGRAM, MessageKind::Say, 1).await?;
    let receiver = &mesh.fakes.receiver;
    until(|| async { Ok(!receiver.posts().is_empty() && sent(&mesh) == 1) }).await?;
    bridge.kill().await?;
    bridge.start().await?;
    calm(&mesh);
    let left = mesh.expire_sends(Duration::ZERO).await?;
    ensure!(left == 2, "{left} sends were cut off, and not 2");
    settled(&mesh).await?;
    ensure!(receiver.posts().len() >= 2, "under a key it is sent again");
    ensure!(
        sent(&mesh) == 1 && unknown(&mesh).await? == 1,
        "without one it is not, and is flagged"
    );

    // After the platform has answered, before that is stored.
    hang(&mesh, Duration::from_millis(300));
    load.say(&WEBHOOK, MessageKind::Say, 1).await?;
    load.say(&TELEGRAM, MessageKind::Say, 1).await?;
    until(|| async { Ok(receiver.unique().len() == 2) }).await?;
    until(|| async { Ok(sent(&mesh) == 2) }).await?;
    mesh.proxies.bridge_database.stall();
    sleep(Duration::from_millis(600)).await;
    bridge.kill().await?;
    mesh.proxies.bridge_database.cut();
    mesh.proxies.bridge_database.resume();
    calm(&mesh);
    bridge.start().await?;
    mesh.expire_sends(Duration::ZERO).await?;
    finish(&mesh, &load).await?;
    ensure!(receiver.unique().len() == 2, "each reply arrives once under its key");
    ensure!(sent(&mesh) == 2, "each arrives once without one");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bridge_that_is_not_told_that_it_may_send_asks_again_and_sends_once() -> anyhow::Result<()>
{
    let _turn = turnstile::lock_shared().await?;
    let mesh = Mesh::start(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;

    // The statement's text is sent once on each connection.
    let lost = lose_commit_after(&mesh.proxies.bridge_database, "set state = 'sending'");
    load.say(&TELEGRAM, MessageKind::Say, 1).await?;

    finish(&mesh, &load).await?;
    ensure!(lost() == 1, "no answer was lost");
    ensure!(sent(&mesh) == 1 && unknown(&mesh).await? == 0, "it was given up, or sent twice");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_nats_answers_come_a_little_later() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = Mesh::start(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    load.ask(&GRPC, MessageKind::Say).await?;

    mesh.proxies.nats.refuse().await?;
    mesh.proxies.nats.cut();
    let waits = five_answers(&mesh, &load, "without NATS").await?;
    mesh.proxies.nats.accept().await?;

    finish(&mesh, &load).await?;
    ensure_most_within(&waits, ANSWERED_WITHIN)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_nothing_changes() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = Mesh::start(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    load.ask(&GRPC, MessageKind::Say).await?;

    mesh.proxies.redis.refuse().await?;
    mesh.proxies.redis.cut();
    let waits = five_answers(&mesh, &load, "without Redis").await?;
    mesh.proxies.redis.accept().await?;

    finish(&mesh, &load).await?;
    ensure_most_within(&waits, ANSWERED_WITHIN)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_is_asked_to_stop_hands_over_in_the_midst_of_a_turn() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan =
        MeshConfig { runners: 2, lease: Duration::from_secs(30), ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    // The first step goes on when its runner is asked to stop, and ends within the runner's grace.
    let call = Reply::call("call-first", "session_status", "{}");
    mesh.fakes.model.queue([call.latency(Duration::from_secs(6))]);
    let load = Senders::on(&mesh)?;
    for node in mesh.gateways.iter().chain(&mesh.bridges).chain(&mesh.runners[..1]) {
        node.start().await?;
        node.ready(SOON).await?;
    }

    load.say(&WEBHOOK, MessageKind::Status, 1).await?;
    until(|| async { Ok(mesh.fakes.model.count() > 0) }).await?;
    mesh.runners[1].start().await?;
    let began = Instant::now();
    let took = mesh.runners[0].stop(Duration::from_secs(25)).await?;
    finish(&mesh, &load).await?;
    let handed = began.elapsed();

    // Claimed, given back, claimed: nobody waited for the lease, and no attempt was lost.
    let epoch = mesh.number("select max(epoch) from session.session_lease").await?;
    ensure!(epoch == 3, "the lease is at epoch {epoch}");
    ensure!(handed < Duration::from_secs(20), "it took {handed:?}, as if the lease had to lapse");
    let mut report = Report::of("drain");
    report.line("asked to stop, ended after, ms", took.as_millis());
    report.line("answered by the next one after, ms", handed.as_millis());
    report.show()
}

/// Asks five times and says how long each answer took.
async fn five_answers(
    mesh: &Mesh,
    load: &Senders<'_>,
    name: &'static str,
) -> anyhow::Result<Vec<Duration>> {
    let mut waits = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        load.ask(&GRPC, MessageKind::Say).await?;
        waits.push(began.elapsed());
    }
    load.say(&WEBHOOK, MessageKind::Say, 1).await?;
    settled(mesh).await?;
    let mut report = Report::of(name);
    report.line("longest of five answers, ms", slowest(&waits).as_millis());
    report.show()?;
    Ok(waits)
}

/// Loses the answer to the first COMMIT after this was written; says how often it did.
fn lose_commit_after(proxy: &Proxy, text: &str) -> impl Fn() -> u64 + use<> {
    let seen = Arc::new(AtomicBool::new(false));
    let (is_written, is_commit) = (contains(text), contains("COMMIT"));
    let rule = proxy.lose_answer(When::Once, move |chunk| {
        if is_written(chunk) {
            seen.store(true, Ordering::Release);
        }
        seen.load(Ordering::Acquire) && is_commit(chunk)
    });
    move || rule.fired()
}

/// Platforms do what they are asked, and say so late.
fn hang(mesh: &Mesh, time: Duration) {
    mesh.fakes.receiver.faults().always(Fault::Hang(time));
    mesh.fakes.telegram.faults().always(Fault::Hang(time));
}

fn calm(mesh: &Mesh) {
    mesh.fakes.receiver.faults().clear();
    mesh.fakes.telegram.faults().clear();
}

fn sent(mesh: &Mesh) -> usize {
    mesh.fakes.telegram.sends().len()
}

async fn unknown(mesh: &Mesh) -> anyhow::Result<i64> {
    mesh.number("select count(*) from session.deliveries where state = 'unknown'").await
}

/// Waits until every message is finished and every reply sent, and asks for every promise.
pub async fn finish(mesh: &Mesh, load: &Senders<'_>) -> anyhow::Result<()> {
    settled(mesh).await?;
    let findings = check(mesh, &load.said()).await?;
    ensure!(findings.broken.is_empty(), "promises were broken:\n{}", findings.broken.join("\n"));
    Ok(())
}

/// Waits until every message is finished and every reply sent.
pub async fn settled(mesh: &Mesh) -> anyhow::Result<()> {
    const OPEN: &str = "
        select string_agg(what, ', ') from (
            select 'message ' || seq || ' ' || state || ' ' || (body->>'text') as what
            from session.inbox where state in ('new', 'seen')
            union all
            select 'reply ' || channel || ' ' || state || ', attempt ' || attempt
                   || coalesce(', ' || reason, '')
            from session.deliveries where state in ('pending', 'sending')
            union all
            select 'session ' || state || ', attempt ' || attempts
            from session.session_lease where state in ('READY', 'RUNNING')) open";
    let bot = &mesh.tenants[0].bot;
    let is_settled =
        || async { Ok(mesh.fakes.telegram.pending(bot) == 0 && mesh.text(OPEN).await?.is_empty()) };
    let Err(error) = until(is_settled).await else { return Ok(()) };
    let pending = mesh.fakes.telegram.pending(bot);
    let open = mesh.text(OPEN).await?;
    Err(error.context(format!("the mesh does not come to rest: {pending} updates, {open}")))
}

async fn until<F>(is_so: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<bool>>,
{
    timeout(SOON, async {
        while !is_so().await? {
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })
    .await
    .context("it took too long")?
}
