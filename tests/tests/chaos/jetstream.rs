//! JetStream on three servers, of which one is killed every few seconds.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_testkit::ports::free_addresses;
use holdfast_testkit::{Backends, Process};
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::until;
use holdfast_tests::script::MessageKind;
use holdfast_tests::turnstile;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::faults::finish;
use crate::report::{Report, ensure_most_within, slowest};
use crate::{Form, RUNNER, form};

/// Events on their way to JetStream.
const UNPUBLISHED: &str = "
    select (select count(*) from session.events)
         + (select count(*) from session.event_positions where published < newest)";
/// Rows of the log with an event of a session.
const LOGGED: &str = "
    select count(*) from session.event_log where jsonb_path_exists(events, '$[*].session')";
const SERVERS: usize = 3;

/// How long an answer takes whose turn's wake-up and deltas were lost with a server.
const ANSWERED_WITHIN: Duration = Duration::from_millis(3500);
const START_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_survive_though_one_of_three_nats_servers_is_killed_every_few_seconds()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    let (every, rounds) = match form() {
        Form::Short => (Duration::from_secs(3), 3),
        Form::Long => (Duration::from_secs(10), 18),
    };
    let backends = Backends::get().await?;
    let cluster = NatsCluster::start(&nats_program()?).await?;
    let mesh = Mesh::prepare(&MeshConfig::small(RUNNER), backends).await?;
    let urls = cluster.urls();
    for node in mesh.nodes() {
        let replicas = ("HOLDFAST_NATS__EVENTS_REPLICAS", "3");
        node.start_with(&[("HOLDFAST_NATS__URL", &urls), replicas]).await?;
    }
    for node in mesh.nodes() {
        node.ready(START_TIMEOUT).await?;
    }
    let load = Senders::on(&mesh)?;
    let talk = Conversation { tenant: 0, number: 0, door: TestChannel::Grpc };
    load.ask(&talk, MessageKind::Say).await?;
    let outbox = || mesh.number(UNPUBLISHED);
    until("the first events are stored", async || Ok(outbox().await? == 0)).await?;

    let is_over = AtomicBool::new(false);
    let talking = async {
        let mut waits = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            load.ask(&talk, MessageKind::Status).await?;
            waits.push(begun.elapsed());
        }
        anyhow::Ok(waits)
    };
    let killing = async {
        for round in 0..rounds {
            cluster.kill(round % SERVERS).await?;
            sleep(every / 2).await;
            cluster.restart(round % SERVERS).await?;
            sleep(every / 2).await;
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let (waits, ()) = tokio::try_join!(talking, killing)?;

    finish(&mesh, &load).await?;
    until("all events are stored", async || Ok(outbox().await? == 0)).await?;
    let (messages, replicas) = cluster.stored_events().await?;
    let mut report = Report::of("three NATS servers");
    report.line("servers killed", rounds);
    report.line("answers", waits.len());
    report.line("slowest answer, ms", slowest(&waits).as_millis());
    report.line("events stored", messages);
    report.show()?;
    ensure!(replicas == SERVERS, "the stream has {replicas} replicas");
    // Events of a session that were logged together are one message.
    let logged = mesh.number(LOGGED).await?.unsigned_abs();
    ensure!(logged > 0 && messages >= logged, "{messages} of {logged} messages are stored");
    // The journal is read 1, 3 and 7 s after the last sign of life of a turn. An answer is late
    // only if its turn ends after the second look.
    let late = waits.iter().filter(|wait| **wait > ANSWERED_WITHIN).count();
    ensure!(late * 3 <= rounds, "{late} of {} answers took over {ANSWERED_WITHIN:?}", waits.len());
    ensure_most_within(&waits, ANSWERED_WITHIN)
}

/// Three servers that keep JetStream's streams together.
struct NatsCluster {
    program: PathBuf,
    servers: Mutex<Vec<Option<Process>>>,
    clients: Vec<SocketAddr>,
    monitors: Vec<SocketAddr>,
    folder: tempfile::TempDir,
}

impl NatsCluster {
    async fn start(program: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let ports = || free_addresses(SERVERS);
        let (clients, routes, monitors) = (ports()?, ports()?, ports()?);
        let all: Vec<_> = routes.iter().map(|route| format!("nats://{route}")).collect();
        for number in 0..SERVERS {
            let config = format!(
                "server_name: n{number}\nlisten: {}\nhttp: {}\n\
                 jetstream {{ store_dir: {:?}, max_mem: 64MB, max_file: 4GB }}\n\
                 cluster {{ name: three, listen: {}, routes: [{}] }}\n",
                clients[number],
                monitors[number],
                folder.path().join(format!("n{number}")),
                routes[number],
                all.join(", "),
            );
            fs::write(folder.path().join(format!("n{number}.conf")), config)?;
        }
        let servers = Mutex::new((0..SERVERS).map(|_| None).collect());
        let program = program.to_owned();
        let cluster = Self { program, servers, clients, monitors, folder };
        for number in 0..SERVERS {
            cluster.spawn(number).await?;
        }
        for number in 0..SERVERS {
            cluster.wait(number).await?;
        }
        Ok(cluster)
    }

    fn urls(&self) -> String {
        let urls: Vec<_> = self.clients.iter().map(|at| format!("nats://{at}")).collect();
        urls.join(",")
    }

    async fn spawn(&self, number: usize) -> anyhow::Result<()> {
        let config = self.folder.path().join(format!("n{number}.conf"));
        let server = Process::builder(&self.program).arg("-c").arg(config).spawn()?;
        self.servers.lock().await[number] = Some(server);
        Ok(())
    }

    /// Waits until a server has found the others and its streams.
    async fn wait(&self, number: usize) -> anyhow::Result<()> {
        let url = format!("http://{}/healthz", self.monitors[number]);
        let mut servers = self.servers.lock().await;
        let server = servers[number].as_mut().context("it is down")?;
        server.wait_for_ok(&url, START_TIMEOUT).await
    }

    async fn kill(&self, number: usize) -> anyhow::Result<()> {
        let server = self.servers.lock().await[number].take();
        server.context("it is down")?.kill().await
    }

    async fn restart(&self, number: usize) -> anyhow::Result<()> {
        self.spawn(number).await
    }

    /// Number of events in the stream, and of servers that keep them.
    async fn stored_events(&self) -> anyhow::Result<(u64, usize)> {
        for number in 0..SERVERS {
            self.wait(number).await?;
        }
        let url = format!("http://{}/jsz?streams=true&config=true", self.monitors[0]);
        let told: Value = reqwest::get(url).await?.json().await?;
        let streams = told["account_details"][0]["stream_detail"].as_array();
        let events = streams.and_then(|all| {
            all.iter().find(|one| one["name"].as_str().is_some_and(|name| name.ends_with("EVENTS")))
        });
        let events = events.with_context(|| format!("there is no stream of events: {told}"))?;
        let replicas = events["config"]["num_replicas"].as_u64().unwrap_or(0);
        let messages = events["state"]["messages"].as_u64().unwrap_or(0);
        Ok((messages, usize::try_from(replicas)?))
    }
}

/// The server that `backends.py` has installed for all tests.
pub(crate) fn nats_program() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = root.join(".holdfast/test/pkg/bin/nats-server");
    ensure!(program.exists(), "`{}` is missing", program.display());
    Ok(program)
}
