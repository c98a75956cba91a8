//! Black holes on each network edge, one after another: what is sent is neither delivered nor
//! refused, in one direction or both. Made by proxies, which still accept connections; and between
//! network namespaces, where every packet is lost.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_testkit::Backends;
use holdfast_testkit::proxy::Direction;
use holdfast_tests::checks::check;
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig, Network, Peer};
use holdfast_tests::node::Role;
use holdfast_tests::script::MessageKind;
use holdfast_tests::turnstile;
use tokio::time::{Instant, sleep, timeout};

use crate::faults::{finish, settled};
use crate::report::{Report, STALL, ensure_most_within, slowest};
use crate::{Form, RUNNER, form};

const ALL: [Role; 5] = [Role::Gateway, Role::Runner, Role::Bridge, Role::Scheduler, Role::Memory];

/// How soon after the end of a black hole a new message must be answered: the longest timeout on
/// the way, and a turn.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// How long an answer may take while a backend is unreachable that only saves time.
const WITHOUT_HINTS: Duration = Duration::from_secs(8);

#[derive(Debug, Clone, Copy)]
enum Loss {
    Both,
    OneWay(Direction),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_on_any_edge_loses_no_message_and_passes_by_itself() -> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    let plan =
        MeshConfig { schedulers: 1, memories: 1, ..MeshConfig::with_failing_database(RUNNER) };
    let mesh = Mesh::start(&plan, Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    let mut report = Report::of("black holes");
    // The short form makes one on each edge, the long one in each direction and for as long as a
    // router needs to find another way.
    let mut recoveries = Vec::new();
    let (duration, losses): (_, &[Loss]) = match form() {
        Form::Short => (Duration::from_millis(1500), &[Loss::Both]),
        Form::Long => (
            Duration::from_secs(60),
            &[Loss::Both, Loss::OneWay(Direction::ToServer), Loss::OneWay(Direction::ToClient)],
        ),
    };

    for (number, (name, edge)) in mesh.proxies.edges(&ALL).into_iter().enumerate() {
        for loss in losses {
            let begin = || {
                match *loss {
                    Loss::Both => edge.stall(),
                    Loss::OneWay(direction) => edge.stall_towards(direction),
                }
                Ok(())
            };
            let end = || {
                edge.resume();
                Ok(())
            };
            let took = black_hole(&load, begin, end, duration, number)
                .await
                .with_context(|| format!("{name}, {loss:?}"))?;
            report.line(&format!("{name}, {loss:?}: answered again after, ms"), took.as_millis());
            recoveries.push(took);
        }
    }

    report.show()?;
    ensure_most_within(&recoveries, RECOVERY_TIMEOUT)?;
    finish(&mesh, &load).await
}

/// Makes a black hole while people talk on each channel. Returns how long after its end a new
/// message was answered.
async fn black_hole(
    load: &Senders<'_>,
    begin: impl Fn() -> anyhow::Result<()>,
    end: impl Fn() -> anyhow::Result<()>,
    duration: Duration,
    number: usize,
) -> anyhow::Result<Duration> {
    begin()?;
    let during = async {
        let doors = [TestChannel::Webhook, TestChannel::Telegram, TestChannel::Grpc];
        let said = doors.into_iter().enumerate().map(|(place, door)| async move {
            let conversation = Conversation { tenant: 0, number: 3 * number + place, door };
            load.say(&conversation, MessageKind::Say, 1).await
        });
        futures::future::try_join_all(said).await
    };
    let hole = async {
        sleep(duration).await;
        end()?;
        anyhow::Ok(Instant::now())
    };
    let (said, ended) = tokio::join!(during, hole);
    said?;
    let ended = ended?;
    let conversation = Conversation { tenant: 0, number: 1000, door: TestChannel::Grpc };
    timeout(RECOVERY_TIMEOUT + STALL, load.ask(&conversation, MessageKind::Status))
        .await
        .context("nothing is answered after the black hole")??;
    Ok(ended.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn black_holes_at_nats_redis_and_memory_hold_up_no_answer() -> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    let plan = MeshConfig { memories: 1, ..MeshConfig::with_failing_database(RUNNER) };
    let mesh = Mesh::start(&plan, Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    let talk = Conversation { tenant: 0, number: 0, door: TestChannel::Grpc };
    load.ask(&talk, MessageKind::Say).await?;
    let edges = mesh.proxies.edges(&[Role::Gateway, Role::Runner]);
    let optional = |name: &str| ["nats", "redis", "memory"].iter().any(|to| name.ends_with(to));
    let optional: Vec<_> = edges.into_iter().filter(|(name, _)| optional(name)).collect();

    for (_, edge) in &optional {
        edge.stall();
    }
    let mut report = Report::of("black holes at NATS, Redis and memory");
    let mut waits = Vec::new();
    for _ in 0..4 {
        let begun = Instant::now();
        load.ask(&talk, MessageKind::Status).await?;
        waits.push(begun.elapsed());
    }
    for (_, edge) in &optional {
        edge.resume();
    }

    report.line("edges", optional.len());
    report.line("slowest of four answers, ms", slowest(&waits).as_millis());
    report.show()?;
    ensure!(optional.len() == 6, "{} edges, and not 6", optional.len());
    ensure_most_within(&waits, WITHOUT_HINTS)?;
    finish(&mesh, &load).await
}

mod needs_network_namespaces {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn packets_lost_between_any_two_lose_no_message_and_the_mesh_goes_on_by_itself()
    -> anyhow::Result<()> {
        let _turn = turnstile::lock_exclusive().await?;
        let plan = MeshConfig {
            schedulers: 1,
            memories: 1,
            namespaces: true,
            ..MeshConfig::with_failing_database(RUNNER)
        };
        let mesh = Mesh::start(&plan, Backends::get().await?).await?;
        let load = Senders::on(&mesh)?;
        let mut report = Report::of("partitions");
        // The short form cuts a role off from everything, the long one from each peer.
        let (duration, cuts): (_, Vec<(Role, Vec<Peer>)>) = match form() {
            Form::Short => {
                (Duration::from_secs(3), ALL.map(|role| (role, Network::links(role))).to_vec())
            }
            Form::Long => {
                let links =
                    |role| Network::links(role).into_iter().map(move |peer| (role, vec![peer]));
                (Duration::from_secs(60), ALL.into_iter().flat_map(links).collect())
            }
        };

        let (mut recoveries, mut without_model) = (Vec::new(), HashSet::new());
        for (number, (role, peers)) in cuts.iter().enumerate() {
            let said_before = load.said().len();
            let name = format!("{role:?} without {peers:?}");
            let begin = || peers.iter().try_for_each(|peer| mesh.network.cut(*role, *peer));
            let end = || peers.iter().try_for_each(|peer| mesh.network.heal(*role, *peer));
            let took = black_hole(&load, begin, end, duration, number)
                .await
                .with_context(|| name.clone())?;
            report.line(&format!("{name}: answered again after, ms"), took.as_millis());
            recoveries.push(took);
            if *role == Role::Runner && peers.contains(&Peer::World) {
                without_model.extend(load.said().into_iter().skip(said_before).map(|said| said.id));
            }
        }

        settled(&mesh).await?;
        let mut broken = check(&mesh, &load.said()).await?.broken;
        // A turn whose model is away for longer than it is asked again ends, and says so.
        let found = broken.len();
        broken.retain(|line| {
            let is_about = |id: &String| line.contains(&format!("{id} is failed: unavailable"));
            !without_model.iter().any(is_about)
        });
        report.line("messages that were told that the model is away", found - broken.len());
        report.show()?;
        ensure!(broken.is_empty(), "promises were broken:\n{}", broken.join("\n"));
        ensure_most_within(&recoveries, RECOVERY_TIMEOUT)
    }
}
