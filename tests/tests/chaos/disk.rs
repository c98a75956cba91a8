//! Full and slow disks: of Postgres, of NATS, and of the runner's scratch folder.
//!
//! A full disk is a small file system in memory, with a file that takes all that is free. Mounting
//! needs root, and limits of I/O a control group, so these tests are left out by name elsewhere.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::messages_client::MessagesClient;
use holdfast_testkit::OwnBackends;
use holdfast_testkit::backends::Server;
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, until};
use holdfast_tests::turnstile;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::RUNNER;
use crate::report::{Report, ensure_most_within, slowest};

/// How soon a caller is told that its message is not accepted.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);

/// One message to a gateway, and what became of it.
struct Sender {
    client: GrpcClient,
    accepted: Vec<String>,
    /// How long each refusal took.
    refusals: Vec<Duration>,
    next: usize,
}

impl Sender {
    fn to(mesh: &Mesh) -> anyhow::Result<Self> {
        let client = GrpcClient::of(mesh, 0)?;
        Ok(Self { client, accepted: Vec::new(), refusals: Vec::new(), next: 1 })
    }

    /// Sends a message of about so many bytes, each in a session of its own; says whether it was
    /// accepted.
    ///
    /// # Errors
    ///
    /// If it is refused with a code that does not say "later".
    async fn send(&mut self, bytes: usize) -> anyhow::Result<bool> {
        let id = format!("t0m{:06}", self.next);
        self.next += 1;
        // Does not compress: random letters.
        let filler: String =
            (0..bytes).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect();
        let send = pb::SendRequest {
            request_id: id.clone(),
            text: format!("{id} say {filler}"),
            session: format!("s-{id}"),
            ..Default::default()
        };
        let mut request = self.client.request(send)?;
        request.set_timeout(Duration::from_secs(30));
        let begun = Instant::now();
        let mut messages = MessagesClient::new(self.client.channel.clone());
        match messages.send(request).await {
            Ok(_) => {
                self.accepted.push(id);
                Ok(true)
            }
            Err(status) => {
                let later = [Code::Unavailable, Code::ResourceExhausted].contains(&status.code());
                ensure!(later, "`{id}` was refused with {status}");
                self.refusals.push(begun.elapsed());
                Ok(false)
            }
        }
    }

    /// Waits until all that was accepted is answered.
    async fn all_answered(&self, mesh: &Mesh) -> anyhow::Result<()> {
        let ids = self.accepted.join("','");
        let sql = format!(
            "select count(*) from session.inbox where state = 'done' and outcome = 'completed'
             and idem_key in ('{ids}')"
        );
        let wanted = i64::try_from(self.accepted.len())?;
        until("what was accepted is answered", async || Ok(mesh.number(&sql).await? == wanted))
            .await
    }
}

mod needs_mounts {
    use holdfast_testkit::{Backends, Reply, Request};
    use serde_json::json;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_disk_of_postgres_loses_nothing_accepted_and_refuses_within_two_seconds()
    -> anyhow::Result<()> {
        let _turn = turnstile::lock_exclusive().await?;
        let own = OwnBackends::start().await?;
        let disk = SmallDisk::under(&own, Server::Postgres, 320).await?;
        let mesh = Mesh::start(&MeshConfig::with_failing_database(RUNNER), own.urls()).await?;
        let mut sender = Sender::to(&mesh)?;
        for _ in 0..3 {
            ensure!(sender.send(100).await?, "refused with space left");
        }

        disk.fill()?;
        for _ in 0..400 {
            if !sender.send(30_000).await? {
                break;
            }
        }
        ensure!(sender.refusals.len() == 1, "a full disk took {} messages", sender.accepted.len());
        for _ in 0..5 {
            sender.send(30_000).await?;
            sleep(Duration::from_millis(200)).await;
        }
        let mut report = Report::of("full disk of Postgres");
        report.line("accepted", sender.accepted.len());
        report.line("refused", sender.refusals.len());
        report.line("slowest refusal, ms", slowest(&sender.refusals).as_millis());
        report.show()?;
        ensure_most_within(&sender.refusals, REFUSED_WITHIN)?;

        disk.free()?;
        // A server that ended for lack of space is started by whatever looks after it.
        own.restart(Server::Postgres).await?;
        let accepted = timeout(Duration::from_secs(60), async {
            while !sender.send(100).await? {
                sleep(Duration::from_millis(100)).await;
            }
            anyhow::Ok(())
        });
        accepted.await.context("nothing is accepted though there is space")??;
        sender.all_answered(&mesh).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_disk_of_nats_costs_no_answer_and_no_event() -> anyhow::Result<()> {
        const WAITING: &str = "
            select (select count(*) from session.events)
                 + (select count(*) from session.event_positions where published < newest)";
        let _turn = turnstile::lock_exclusive().await?;
        let own = OwnBackends::start().await?;
        let disk = SmallDisk::under(&own, Server::Nats, 16).await?;
        let mesh = Mesh::start(&MeshConfig::small(RUNNER), own.urls()).await?;
        let client = GrpcClient::of(&mesh, 0)?;
        client.ask("talk", "t0m000001 say").await?;

        disk.fill()?;
        let mut waits = Vec::new();
        for number in 2..12 {
            let begun = Instant::now();
            let answer = client.ask("talk", &format!("t0m{number:06} status")).await?;
            ensure!(answer == format!("re t0m{number:06}"), "the answer is `{answer}`");
            waits.push(begun.elapsed());
        }
        disk.free()?;
        // A full disk turns JetStream off until the server is started again.
        own.stop(Server::Nats).await?;
        own.restart(Server::Nats).await?;

        // Events wait in the database until JetStream takes them.
        until("all events are stored", async || Ok(mesh.number(WAITING).await? == 0)).await?;
        let mut report = Report::of("full disk of NATS");
        report.line("slowest of ten answers, ms", slowest(&waits).as_millis());
        report.show()?;
        ensure_most_within(&waits, Duration::from_millis(2500))
    }

    /// Has a command read a file, and answers with what the command printed.
    fn reading(asked: &Request) -> Reply {
        match asked.tool_results().first() {
            None => {
                let input = json!({"command": "wc -c < shared/big.txt"}).to_string();
                Reply::call(format!("call-{}", asked.messages().len()), "exec", input)
            }
            Some((_, result)) => Reply::text(result.clone()),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_scratch_folder_fails_commands_clearly_until_there_is_space()
    -> anyhow::Result<()> {
        let _turn = turnstile::lock_shared().await?;
        let mesh = Mesh::prepare(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
        mesh.fakes.model.answer(reading);
        let folder = tempfile::tempdir_in("/var/tmp")?;
        let disk = SmallDisk::mount(folder.path(), 24, (0, 0))?;
        let scratch = folder.path().display().to_string();
        mesh.gateways[0].start().await?;
        mesh.runners[0].start_with(&[("HOLDFAST_RUNNER__SCRATCH__DIR", &scratch)]).await?;
        for node in [&mesh.gateways[0], &mesh.runners[0]] {
            node.ready(Duration::from_secs(30)).await?;
        }
        let client = GrpcClient::of(&mesh, 0)?;
        let write = pb::WriteFileRequest {
            path: "shared/big.txt".to_owned(),
            content: vec![b'x'; 200_000],
            ..Default::default()
        };
        let mut files = pb::files_client::FilesClient::new(client.channel.clone());
        files.write_file(client.request(write)?).await?;

        disk.fill()?;
        let mut waits = Vec::new();
        for _ in 0..3 {
            let begun = Instant::now();
            let told = client.ask("talk", "how long is it?").await?;
            waits.push(begun.elapsed());
            ensure!(!told.contains("200000"), "the command ran on a full disk: {told}");
            let says_why = ["space", "disk", "full"].iter().any(|word| told.contains(word));
            ensure!(says_why, "the agent is told `{told}`");
        }
        disk.free()?;
        let after = client.ask("talk", "and now?").await?;

        ensure!(after.contains("200000"), "with space again the command says `{after}`");
        ensure_most_within(&waits, Duration::from_secs(5))
    }
}

mod needs_io_limits {
    use super::*;

    /// Where control groups limit the operations of block devices.
    const GROUPS: &str = "/sys/fs/cgroup/blkio";

    const OPERATIONS_PER_SECOND: u32 = 20;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn twenty_operations_a_second_slow_messages_down_and_lose_none() -> anyhow::Result<()> {
        let _turn = turnstile::lock_exclusive().await?;
        let own = OwnBackends::start().await?;
        let mesh = Mesh::start(&MeshConfig::with_failing_database(RUNNER), own.urls()).await?;
        let mut sender = Sender::to(&mesh)?;
        sender.send(100).await?;

        let group = SlowDisk::of(own.pid(Server::Postgres)?, &own.dir().join("postgres"))?;
        let begun = Instant::now();
        for _ in 0..4 {
            sender.send(2_000).await?;
        }
        let took = begun.elapsed();
        drop(group);

        sender.all_answered(&mesh).await?;
        let mut report = Report::of("slow disk of Postgres");
        report.line("accepted", sender.accepted.len());
        report.line("refused", sender.refusals.len());
        report.line("time of 4 messages, ms", took.as_millis());
        report.show()?;
        ensure!(sender.accepted.len() > 1, "nothing was accepted on a slow disk");
        Ok(())
    }

    /// A control group with few writes a second; its processes go back when it is dropped.
    struct SlowDisk(PathBuf);

    impl SlowDisk {
        fn of(pid: u32, data: &Path) -> anyhow::Result<Self> {
            let group = Path::new(GROUPS).join(format!("holdfast-{pid}"));
            fs::create_dir(&group)?;
            let slow = Self(group);
            let device = fs::metadata(data)?.dev();
            let (major, minor) = ((device >> 8) & 0xfff, device & 0xff);
            let limit = format!("{major}:{minor} {OPERATIONS_PER_SECOND}");
            for file in ["blkio.throttle.write_iops_device", "blkio.throttle.read_iops_device"] {
                fs::write(slow.0.join(file), &limit)?;
            }
            for pid in family(pid)? {
                // One that has just ended is no error.
                drop(fs::write(slow.0.join("cgroup.procs"), pid.to_string()));
            }
            Ok(slow)
        }
    }

    impl Drop for SlowDisk {
        fn drop(&mut self) {
            let pids = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
            for pid in pids.lines() {
                drop(fs::write(Path::new(GROUPS).join("cgroup.procs"), pid));
            }
            drop(fs::remove_dir(&self.0));
        }
    }

    /// A process and its children.
    fn family(pid: u32) -> anyhow::Result<Vec<u32>> {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        Ok(std::iter::once(pid).chain(children).collect())
    }
}

/// A small file system in memory; it is gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Moves the data of a server onto a disk of so many megabytes.
    async fn under(own: &OwnBackends, server: Server, megabytes: u32) -> anyhow::Result<Self> {
        let data = own.dir().join(match server {
            Server::Postgres => "postgres",
            Server::Nats => "nats",
            Server::Redis => "redis",
        });
        own.stop(server).await?;
        let aside = data.with_extension("aside");
        fs::rename(&data, &aside)?;
        let owner = fs::metadata(&aside)?;
        fs::create_dir(&data)?;
        let disk = Self::mount(&data, megabytes, (owner.uid(), owner.gid()))?;
        run(Command::new("cp").arg("-a").arg(aside.join(".")).arg(&data))?;
        fs::remove_dir_all(&aside)?;
        own.restart(server).await?;
        Ok(disk)
    }

    fn mount(at: &Path, megabytes: u32, owner: (u32, u32)) -> anyhow::Result<Self> {
        let (uid, gid) = owner;
        let options = format!("size={megabytes}m,mode=700,uid={uid},gid={gid}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "holdfast-test"]).arg(at))?;
        Ok(Self(at.to_owned()))
    }

    /// Takes all that is free.
    fn fill(&self) -> anyhow::Result<()> {
        let mut ballast = File::create(self.0.join("ballast"))?;
        for size in [1 << 20, 1 << 12, 1] {
            let part = vec![0; size];
            while ballast.write(&part).is_ok_and(|written| written == size) {}
        }
        Ok(())
    }

    fn free(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.0.join("ballast"))?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that still runs is killed by its own value.
        drop(run(Command::new("umount").arg("-l").arg(&self.0)));
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(())
}
