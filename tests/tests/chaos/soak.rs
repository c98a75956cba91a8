//! A mesh under steady load does not grow: memory, open files, connections, tables and indexes.
//!
//! What would be kept for weeks is removed after a minute here, and conversations are deleted now
//! and then, so that each table holds as much at the end as after the warm-up.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use holdfast_session::Retention;
use holdfast_testkit::{OwnBackends, backends::Server};
use holdfast_tests::dice;
use holdfast_tests::growth::{GrowthLimit, Series};
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::script::MessageKind;
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use rand::RngExt as _;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::RUNNER;
use crate::report::Report;

const SAMPLE_INTERVAL: Duration = Duration::from_secs(3);

/// How long finished rows are kept.
const KEPT: Duration = Duration::from_secs(60);

/// From this length on the limit is the one of the guarantee.
const FULL_LENGTH: Duration = Duration::from_secs(60 * 60);

/// Messages after which a conversation is deleted.
const CONVERSATION_LENGTH: usize = 40;

/// Measured values by name.
type Measured = BTreeMap<String, (Unit, Series)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Mebibytes,
    /// Mebibytes of a table or its indexes, which grow by steps and shrink seldom.
    DiskMebibytes,
    Count,
}

impl Unit {
    /// One percent an hour; a shorter test cannot tell that from noise.
    const fn limit(self, is_full: bool) -> GrowthLimit {
        let noise = match (self, is_full) {
            (Self::Mebibytes, true) => 0.5,
            (Self::DiskMebibytes, true) => 1.0,
            (Self::Count, true) => 1.0,
            (Self::Mebibytes, false) => 6.0,
            (Self::DiskMebibytes, false) => 3.0,
            (Self::Count, false) => 4.0,
        };
        GrowthLimit { percent_per_hour: 1.0, noise }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes at least five minutes: `make soak`"]
async fn a_mesh_under_steady_load_does_not_grow() -> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    let minutes = std::env::var("HOLDFAST_CHAOS_MINUTES").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(60 * minutes.unwrap_or(5));
    let backends = OwnBackends::start().await?;
    let plan = MeshConfig {
        runners: 2,
        schedulers: 1,
        memories: 1,
        tenants: vec![QueueMode::Steer, QueueMode::Followup],
        lease: Duration::from_secs(30),
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::start(&plan, backends.urls()).await?;
    // The fake keeps nothing either.
    mesh.fakes.model.forget_requests();
    let load = Senders::on(&mesh)?;
    let enough = CancellationToken::new();
    let measure = async {
        let measured = measure(&mesh, &backends, length).await;
        enough.cancel();
        measured
    };
    let (talked, removed, measured) =
        tokio::join!(talk(&load, &enough), remove_old(&mesh, &enough), measure);
    talked?;
    removed?;
    let measured = measured?;

    let mut report = Report::of("soak");
    report.line("minutes", length.as_secs() / 60);
    report.line("messages", load.said().len());
    let mut grown = Vec::new();
    for (name, (unit, series)) in &measured {
        let growth = format!(
            "{:.2}, grows by {:.2}, {:.1} % an hour",
            series.mean(),
            series.growth(),
            series.percent_per_hour()
        );
        report.line(&format!("{name}, {unit:?}"), &growth);
        if !series.is_within(unit.limit(length >= FULL_LENGTH)) {
            grown.push(format!("{name}: {growth}"));
        }
    }
    report.show()?;
    ensure!(measured.len() > 30, "only {} values were measured", measured.len());
    ensure!(grown.is_empty(), "it grows:\n{}", grown.join("\n"));
    Ok(())
}

async fn talk(load: &Senders<'_>, enough: &CancellationToken) -> anyhow::Result<()> {
    let doors = [TestChannel::Grpc, TestChannel::Grpc, TestChannel::Webhook, TestChannel::Telegram];
    let conversations = (0..2).flat_map(|tenant| {
        let here = doors.into_iter().enumerate();
        here.map(move |(number, door)| Conversation { tenant, number, door })
    });
    try_join_all(conversations.map(|conversation| async move {
        let mut draws = dice::stream(&format!("{conversation:?}"));
        let words = [MessageKind::Say, MessageKind::Note, MessageKind::Status, MessageKind::Act]
            .into_iter();
        for (number, word) in words.cycle().enumerate() {
            if enough.is_cancelled() {
                break;
            }
            load.say(&conversation, word, 1).await?;
            if number % CONVERSATION_LENGTH == CONVERSATION_LENGTH - 1 {
                load.delete(&conversation).await?;
            }
            sleep(Duration::from_millis(draws.random_range(400..800))).await;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(())
}

/// Removes finished rows after a minute, and conversations on channels when they are long.
async fn remove_old(mesh: &Mesh, enough: &CancellationToken) -> anyhow::Result<()> {
    const LONG: &str = "
        select string_agg(tenant_id || ' ' || session_id, ' ') from session.session_lease
        where state = 'WAIT' and next_entry > 200";
    let keep = Retention {
        inbox: KEPT,
        keys: KEPT,
        deliveries: KEPT,
        runs: KEPT,
        events: KEPT,
        event_log: KEPT,
        ephemeral: KEPT,
        heartbeats: KEPT,
        journals: None,
    };
    while enough.run_until_cancelled(sleep(Duration::from_secs(5))).await.is_some() {
        if let Some(error) = mesh.sessions.upkeep().prune(&keep).await.failure {
            return Err(error.into());
        }
        let long = mesh.text(LONG).await?;
        let ids =
            long.split_whitespace().map(str::parse).collect::<Result<Vec<uuid::Uuid>, _>>()?;
        for (tenant, session) in ids.chunks_exact(2).map(|pair| (pair[0], pair[1])) {
            // It may have been deleted meanwhile.
            drop(mesh.sessions.delete(tenant.into(), session.into()).await);
        }
    }
    Ok(())
}

async fn measure(
    mesh: &Mesh,
    backends: &OwnBackends,
    length: Duration,
) -> anyhow::Result<Measured> {
    let warm_up = (length / 3).min(Duration::from_secs(15 * 60));
    sleep(warm_up).await;
    let (begun, mut measured) = (Instant::now(), Measured::new());
    while begun.elapsed() < length - warm_up {
        let at = begun.elapsed();
        let mut add = |name: String, unit: Unit, value: f64| {
            measured.entry(name).or_insert_with(|| (unit, Series::default())).1.add(at, value);
        };
        for node in mesh.nodes() {
            let (pid, name) = (node.pid().await?, &node.spec().name);
            add(format!("memory of {name}"), Unit::Mebibytes, resident_mebibytes(pid)?);
            add(format!("open files of {name}"), Unit::Count, open_files(pid)?);
        }
        for (name, server) in [("NATS", Server::Nats), ("Redis", Server::Redis)] {
            let memory = resident_mebibytes(backends.pid(server)?)?;
            add(format!("memory of {name}"), Unit::Mebibytes, memory);
        }
        for (name, unit, value) in in_database(mesh).await? {
            add(name, unit, value);
        }
        sleep(SAMPLE_INTERVAL).await;
    }
    Ok(measured)
}

/// Connections of each service, and sizes of tables and their indexes.
async fn in_database(mesh: &Mesh) -> anyhow::Result<Vec<(String, Unit, f64)>> {
    const CONNECTIONS: &str = "
        select 'connections of ' || application_name, count(*)::float8 from pg_stat_activity
        where application_name like 'holdfast-%' group by application_name";
    const SIZES: &str = "
        select what || schemaname || '.' || relname, bytes::float8 / 1048576
        from pg_stat_user_tables,
            lateral (values ('table ', pg_table_size(relid)), ('indexes of ', pg_indexes_size(relid)))
                size (what, bytes)";
    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    let mut all = Vec::new();
    for (sql, unit) in [(CONNECTIONS, Unit::Count), (SIZES, Unit::DiskMebibytes)] {
        let rows: Vec<(String, f64)> = sqlx::query_as(sql).fetch_all(&mut admin).await?;
        all.extend(rows.into_iter().map(|(name, value)| (name, unit, value)));
    }
    Ok(all)
}

fn resident_mebibytes(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}

fn open_files(pid: u32) -> anyhow::Result<f64> {
    let count = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
    Ok(f64::from(u32::try_from(count)?))
}
