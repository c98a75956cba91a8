//! One process of the mesh, under a name and at an address that outlive it.
//!
//! **What can go wrong.** Several faults may hit a node at once: kill, restart, pause. Each locks the
//! node while it acts; a caller that cannot wait skips the node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex as Lock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_testkit::Process;
use rand::RngExt as _;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::dice;

/// The counter of writes that the fence refused.
const FENCED_WRITES_METRIC: &str = "holdfast_session_fenced_writes_total";

/// What a process of the mesh does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Gateway,
    Runner,
    Bridge,
    Scheduler,
    Memory,
}

#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// What it is called here: `runner-1`.
    pub name: String,
    pub role: Role,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Where it tells of its health and its numbers.
    pub http: SocketAddr,
}

/// What was done to a node.
#[derive(Debug, Default)]
pub struct FaultCounts {
    pub kills: AtomicU64,
    /// Died by itself, as at a failpoint.
    pub deaths: AtomicU64,
    /// Stopped for longer than its lease.
    pub pauses: AtomicU64,
    pub drains: AtomicU64,
}

/// One process of the mesh.
#[derive(Debug)]
pub struct Node {
    spec: NodeSpec,
    process: Mutex<Option<Process>>,
    http: reqwest::Client,
    /// How often it was started.
    starts: AtomicU64,
    /// Fenced writes of processes that are gone.
    fenced: AtomicU64,
    /// Those of the process that runs, when it was last asked: what it counts dies with it.
    fenced_now: AtomicU64,
    /// What its processes said that somebody should look at.
    log_errors: Lock<Vec<String>>,
    /// What was done to it.
    pub counts: FaultCounts,
}

impl Node {
    /// A node that does not run yet.
    pub fn new(spec: NodeSpec) -> anyhow::Result<Self> {
        holdfast_kit::tls::install_crypto();
        // As a kubelet, which verifies no certificate.
        let http = reqwest::Client::builder()
            .timeout(Duration::from_millis(500))
            .danger_accept_invalid_certs(true)
            .build()?;
        Ok(Self {
            spec,
            process: Mutex::new(None),
            http,
            starts: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            fenced_now: AtomicU64::new(0),
            log_errors: Lock::default(),
            counts: FaultCounts::default(),
        })
    }

    #[must_use]
    pub const fn spec(&self) -> &NodeSpec {
        &self.spec
    }

    /// Starts it, with these settings besides its own.
    pub async fn start_with(&self, env: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut process = self.process.lock().await;
        *process = Some(self.spawn(env)?);
        Ok(())
    }

    pub async fn start(&self) -> anyhow::Result<()> {
        self.start_with(&[]).await
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&self, limit: Duration) -> anyhow::Result<()> {
        let url = format!("{}://{}/readyz", self.scheme(), self.spec.http);
        let is_ready = async || {
            let answer = self.http.get(&url).send().await;
            answer.is_ok_and(|answer| answer.status().is_success())
        };
        let mut process = self.process.lock().await;
        let process = process.as_mut().with_context(|| format!("{} is down", self.spec.name))?;
        process.wait_until(&url, limit, is_ready).await.with_context(|| self.spec.name.clone())
    }

    fn scheme(&self) -> &'static str {
        let has_certificate = |(name, _): &(String, String)| name == "HOLDFAST_TLS__CERTIFICATE";
        if self.spec.env.iter().any(has_certificate) { "https" } else { "http" }
    }

    /// Kills it as a crash would, and leaves it dead.
    pub async fn kill(&self) -> anyhow::Result<()> {
        let mut process = self.process.lock().await;
        self.ask_fenced().await;
        let mut dying = process.take().with_context(|| format!("{} is down", self.spec.name))?;
        self.counts.kills.fetch_add(1, Ordering::Relaxed);
        let killed = dying.kill().await;
        self.read(&dying);
        killed
    }

    /// Kills it as a crash would if it runs.
    pub async fn end(&self) -> anyhow::Result<()> {
        let mut process = self.process.lock().await;
        let Some(mut dying) = process.take() else { return Ok(()) };
        let killed = dying.kill().await;
        self.read(&dying);
        killed
    }

    /// Kills it as a crash would and starts it at once. If something else is being done to it,
    /// does nothing and says so.
    pub async fn crash(&self) -> anyhow::Result<bool> {
        let Ok(mut process) = self.process.try_lock() else { return Ok(false) };
        self.ask_fenced().await;
        if let Some(mut dying) = process.take() {
            // One that died by itself just now cannot be killed.
            if dying.kill().await.is_ok() {
                self.counts.kills.fetch_add(1, Ordering::Relaxed);
            }
            self.read(&dying);
        }
        *process = Some(self.spawn(&[])?);
        Ok(true)
    }

    /// Starts it again if it has died by itself.
    pub async fn revive(&self) -> anyhow::Result<()> {
        let Ok(mut process) = self.process.try_lock() else { return Ok(()) };
        let Some(running) = process.as_mut() else { return Ok(()) };
        if running.wait(Duration::from_millis(1)).await.is_ok() {
            self.counts.deaths.fetch_add(1, Ordering::Relaxed);
            self.read(running);
            *process = Some(self.spawn(&[])?);
        }
        Ok(())
    }

    /// Waits until it has died by itself, and leaves it dead.
    pub async fn wait_for_death(&self, limit: Duration) -> anyhow::Result<()> {
        let mut process = self.process.lock().await;
        let mut dying = process.take().with_context(|| format!("{} is down", self.spec.name))?;
        dying.wait(limit).await?;
        self.read(&dying);
        self.counts.deaths.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Stops it in its tracks for so long, as a suspended machine would.
    pub async fn pause(&self, time: Duration) -> anyhow::Result<()> {
        let wait = async {
            sleep(time).await;
            Ok(())
        };
        self.pause_while(wait).await
    }

    /// As [`Self::pause`], until something has ended.
    pub async fn pause_while(
        &self,
        work: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let process = self.process.lock().await;
        let process = process.as_ref().with_context(|| format!("{} is down", self.spec.name))?;
        process.pause()?;
        let done = work.await;
        process.resume()?;
        done?;
        self.counts.pauses.fetch_add(1, Ordering::Relaxed);
        // What it believed it held, it tries to write now.
        sleep(Duration::from_millis(700)).await;
        self.ask_fenced().await;
        Ok(())
    }

    /// Asks it to read its settings again.
    pub async fn hang_up(&self) -> anyhow::Result<()> {
        let process = self.process.lock().await;
        process.as_ref().with_context(|| format!("{} is down", self.spec.name))?.hang_up()
    }

    /// Asks it to stop, waits until it has, and leaves it so. Says how long it took.
    pub async fn stop(&self, limit: Duration) -> anyhow::Result<Duration> {
        let mut process = self.process.lock().await;
        self.ask_fenced().await;
        let mut ending = process.take().with_context(|| format!("{} is down", self.spec.name))?;
        let began = Instant::now();
        ending.terminate()?;
        let status = ending.wait(limit).await?;
        self.read(&ending);
        ensure!(status.success(), "{} ended with {status}:\n{}", self.spec.name, ending.output());
        self.counts.drains.fetch_add(1, Ordering::Relaxed);
        Ok(began.elapsed())
    }

    /// Writes that the fence has refused, so far as it was seen.
    pub async fn fenced(&self) -> u64 {
        self.ask_fenced().await;
        self.fenced.load(Ordering::Relaxed) + self.fenced_now.load(Ordering::Relaxed)
    }

    /// Id of its process.
    pub async fn pid(&self) -> anyhow::Result<u32> {
        let process = self.process.lock().await;
        let process = process.as_ref().with_context(|| format!("{} is down", self.spec.name))?;
        Ok(process.pid())
    }

    /// CPU time that it has used, in hundredths of a second.
    pub async fn cpu_ticks(&self) -> anyhow::Result<u64> {
        let pid = self.pid().await?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name may have spaces in it; what follows its bracket has none.
        let (_, rest) = stat.rsplit_once(')').context("a stat without a name")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        Ok(ticks(11).zip(ticks(12)).map_or(0, |(user, system)| user + system))
    }

    /// Lines of its processes' logs that somebody should look at: panics and errors.
    pub async fn complaints(&self) -> Vec<String> {
        let process = self.process.lock().await;
        let mut all = self.log_errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.extend(process.iter().flat_map(|process| complaints(&process.output())));
        all
    }

    fn read(&self, process: &Process) {
        let mut all = self.log_errors.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(complaints(&process.output()));
    }

    /// What it has written so far.
    pub async fn output(&self) -> String {
        let process = self.process.lock().await;
        process.as_ref().map(Process::output).unwrap_or_default()
    }

    fn spawn(&self, env: &[(&str, &str)]) -> anyhow::Result<Process> {
        let counted = self.fenced_now.swap(0, Ordering::Relaxed);
        self.fenced.fetch_add(counted, Ordering::Relaxed);
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        // With one seed for all its processes each would die at the same passage.
        let seed: u64 = dice::stream(&format!("{} {start}", self.spec.name)).random();
        let mut builder =
            Process::builder(&self.spec.program).env("HOLDFAST_FAILPOINTS_SEED", seed.to_string());
        for arg in &self.spec.args {
            builder = builder.arg(arg);
        }
        for (name, value) in &self.spec.env {
            builder = builder.env(name, value);
        }
        for (name, value) in env {
            builder = builder.env(name, value);
        }
        builder.spawn()
    }

    async fn ask_fenced(&self) {
        if self.spec.role == Role::Runner
            && let Some(number) = self.number(FENCED_WRITES_METRIC).await
        {
            self.fenced_now.fetch_max(number, Ordering::Relaxed);
        }
    }

    /// A counter of its `/metrics`; `None` if it is not there, or does not answer.
    pub async fn number(&self, name: &str) -> Option<u64> {
        let url = format!("{}://{}/metrics", self.scheme(), self.spec.http);
        let text = self.http.get(url).send().await.ok()?.text().await.ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

fn complaints(output: &str) -> Vec<String> {
    // A right that a service lacks on NATS or Redis costs time only, so that no other check sees it.
    let marks = ["panicked at", " ERROR ", "nats denies a right", "give the user the rights"];
    let speaks = |line: &&str| marks.iter().any(|mark| line.contains(mark));
    // A failpoint says that it is one, and the bus's client that NATS is down.
    let meant =
        |line: &&str| !line.contains("ending at a failpoint") && !line.contains("async_nats");
    // Without the moment, so that the same said twice is the same.
    let plain = |line: &str| line.split_once(" ERROR ").map_or(line, |(_, said)| said).to_owned();
    output.lines().filter(speaks).filter(meant).map(plain).collect()
}
