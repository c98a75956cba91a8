//! Memory service in this process with its client, and timing of requests.

use std::{io::Write as _, time::Duration};

use anyhow::Context as _;
use holdfast_grpc::{MemoryClient, Mesh, Signer};
use holdfast_proto::memory::v1 as pb;
use holdfast_testkit::Database;
use holdfast_types::TenantId;
use memory::{App, Config};
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::host::Ticks;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Memory service that runs until this is dropped.
pub struct Served {
    pub memory: MemoryClient,
    _stop: DropGuard,
}

pub async fn database() -> anyhow::Result<Database> {
    Database::create_from(&holdfast_pg::fingerprint(), async |url: String| {
        holdfast_pg::migrate(&url).await?;
        Ok(())
    })
    .await
    .context("no Postgres to measure on: see docs/benchmarks.md")
}

/// Settings from the environment, with this database.
pub fn config(database: &Database) -> anyhow::Result<Config> {
    let mut config: Config = holdfast_kit::config::load("memory")?;
    config.memory.listen = "127.0.0.1:0".parse()?;
    config.database.url = database.service_url("memory-service").into();
    config.mesh.secret = SECRET.into();
    Ok(config)
}

pub async fn serve(config: Config) -> anyhow::Result<Served> {
    let mesh = config.mesh.clone();
    let app = App::connect(config).await?;
    let url = format!("http://{}", app.address()?);
    let stop = CancellationToken::new();
    tokio::spawn(app.run(stop.clone()));
    let memory = MemoryClient::new(&url, Mesh::new(Signer::new(&mesh)?, "agent-runner"))?;
    Ok(Served { memory, _stop: stop.drop_guard() })
}

pub fn from() -> Option<pb::Provenance> {
    Some(pb::Provenance {
        kind: pb::SourceKind::User.into(),
        name: "bench".into(),
        ..pb::Provenance::default()
    })
}

/// Adds turns in as few calls as possible.
pub async fn add(
    memory: &MemoryClient,
    tenant: TenantId,
    who: &pb::Who,
    session: &str,
    turns: &[pb::Turn],
) -> anyhow::Result<()> {
    for part in turns.chunks(512) {
        let request = pb::AddTurnsRequest {
            who: Some(who.clone()),
            session: session.to_owned(),
            turns: part.to_vec(),
            group_safe: false,
            provenance: from(),
        };
        memory.add_turns(tenant, request).await?;
    }
    Ok(())
}

/// Prints progress to stderr, so that it is not part of the report.
pub fn say(what: &str) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "{what}")
}

/// Waits until all units of a tenant are embedded.
pub async fn embedded(
    memory: &MemoryClient,
    tenant: TenantId,
) -> anyhow::Result<pb::GetStatusResponse> {
    let mut told = Instant::now();
    loop {
        let request = pb::GetStatusRequest { who: Some(pb::Who::default()) };
        let status = memory.status(tenant, request).await?;
        if status.pending == 0 {
            return Ok(status);
        }
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            say(&format!("{} units are still to be embedded", status.pending))?;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Searches and returns the duration.
pub async fn ask(
    memory: &MemoryClient,
    tenant: TenantId,
    who: &pb::Who,
    query: &str,
    k: u32,
    filter: Option<pb::Filter>,
) -> anyhow::Result<(pb::SearchResponse, Duration)> {
    let request = pb::SearchRequest {
        who: Some(who.clone()),
        query: query.to_owned(),
        k,
        filter,
        ..pb::SearchRequest::default()
    };
    let began = Instant::now();
    let answer = memory.search(tenant, request).await?;
    Ok((answer, began.elapsed()))
}

/// Durations of questions.
#[derive(Default)]
pub struct Times {
    times: Vec<Duration>,
    /// CPU ticks at the first and at the last question.
    host: Option<(Ticks, Ticks)>,
}

impl Times {
    pub fn add(&mut self, time: Duration) {
        self.times.push(time);
        if let Some(now) = Ticks::now() {
            self.host = Some((self.host.map_or(now, |(first, _)| first), now));
        }
    }

    /// Formats as `p50 1.2 ms, p99 3.4 ms, slowest 5.6 ms, the host took 7 % of the time`.
    pub fn told(&mut self) -> String {
        self.times.sort();
        let count = self.times.len();
        let at = |place: usize| {
            let place = place.min(count.saturating_sub(1));
            self.times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
        };
        let (p50, p99, slowest) = (at(count * 50 / 100), at(count * 99 / 100), at(count));
        let host = self.host.map_or(String::new(), |(first, last)| {
            format!(", the host took {} % of the time", last.taken_since(first))
        });
        format!("p50 {p50:.1} ms, p99 {p99:.1} ms, slowest {slowest:.1} ms{host}")
    }
}
