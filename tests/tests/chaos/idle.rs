//! A mesh that nobody speaks to does nothing (I11).

use std::time::Duration;

use anyhow::ensure;
use holdfast_testkit::Backends;
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::script::MessageKind;
use holdfast_tests::turnstile;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::sleep;

use crate::report::Report;
use crate::{Form, RUNNER, form};

/// Of one core, in percent. Without optimisation everything costs several times as much.
const MAX_CPU_PERCENT: f64 = if cfg!(debug_assertions) { 4.0 } else { 1.0 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_mesh_calls_no_model_and_writes_no_row() -> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    let time = Duration::from_secs(if form() == Form::Long { 60 } else { 15 });
    let plan = MeshConfig {
        gateways: 2,
        runners: 2,
        bridges: 2,
        schedulers: 2,
        lease: Duration::from_secs(30),
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::start(&plan, Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    for door in [TestChannel::Grpc, TestChannel::Webhook, TestChannel::Telegram] {
        for number in 0..5 {
            load.say(&Conversation { tenant: 0, number, door }, MessageKind::Note, 2).await?;
        }
    }
    // The last events are published, and turns are indexed, a few seconds later.
    rest(&mesh).await?;

    let (rows, calls) = (versions(&mesh).await?, mesh.fakes.model.count());
    let before = cpu(&mesh).await?;
    sleep(time).await;
    let after = cpu(&mesh).await?;

    let mut report = Report::of("idle");
    let mut most = 0.0_f64;
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        // A tick is a hundredth of a second.
        let percent = f64::from(u32::try_from(after - before)?) / time.as_secs_f64();
        report.line(&format!("CPU of {name}, % of a core"), format!("{percent:.2}"));
        most = most.max(percent);
    }
    report.show()?;
    ensure!(mesh.fakes.model.count() == calls, "the model was called");
    let now = versions(&mesh).await?;
    let changed: Vec<_> = rows.iter().zip(&now).filter(|(was, is)| was != is).collect();
    ensure!(changed.is_empty(), "rows were written: {changed:?}");
    ensure!(
        most < MAX_CPU_PERCENT,
        "a process took {most:.2} % of a core, and {MAX_CPU_PERCENT} % are the most"
    );

    load.say(&Conversation { tenant: 0, number: 0, door: TestChannel::Grpc }, MessageKind::Say, 1)
        .await?;
    ensure!(versions(&mesh).await? != rows, "a message leaves no trace in these numbers");
    Ok(())
}

async fn rest(mesh: &Mesh) -> anyhow::Result<()> {
    const BUSY: &str = "
        select (select count(*) from session.inbox where state in ('new', 'seen'))
             + (select count(*) from session.deliveries where state in ('pending', 'sending'))
             + (select count(*) from session.events)";
    for _ in 0..300 {
        if mesh.number(BUSY).await? == 0 && mesh.fakes.telegram.pending(&mesh.tenants[0].bot) == 0 {
            let before = versions(mesh).await?;
            // Together longer than the interval of any background work. Two pauses, since the machine
            // may stand still during one.
            sleep(Duration::from_secs(3)).await;
            let between = versions(mesh).await?;
            sleep(Duration::from_secs(3)).await;
            if between == before && versions(mesh).await? == before {
                return Ok(());
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the mesh does not come to rest")
}

async fn cpu(mesh: &Mesh) -> anyhow::Result<Vec<(String, u64)>> {
    let mut used = Vec::new();
    for node in mesh.nodes() {
        used.push((node.spec().name.clone(), node.cpu_ticks().await?));
    }
    Ok(used)
}

/// For each table a number that changes with every version and every lock of any of its rows.
async fn versions(mesh: &Mesh) -> anyhow::Result<Vec<(String, i64)>> {
    // The lease of the upkeep is one row, which its owner renews.
    const TABLES: &str = "
        select schemaname || '.' || tablename from pg_tables
        where schemaname in ('session', 'control', 'schedule') and tablename <> 'duties'
        order by 1";
    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut admin).await?;
    let mut versions = Vec::new();
    for table in tables {
        let sql = format!(
            "select coalesce(sum(hashtext(ctid::text || xmin::text || xmax::text)::bigint), 0)::bigint
             from {table}"
        );
        let version: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut admin).await?;
        versions.push((table, version));
    }
    Ok(versions)
}
