//! A service as a child process, to be killed, paused and looked at.
//!
//! The child leads a process group of its own, and signals go to the group, so that what it
//! started goes with it. Dropping the value kills the group.

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::http;
use crate::scratch;

/// How often a waiting test looks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What is to be started.
#[derive(Debug)]
pub struct Builder {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Builder {
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets an environment variable; others are inherited.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts it. Its output goes to a file, see [`Process::output`].
    pub fn spawn(self) -> anyhow::Result<Process> {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let dir = std::env::temp_dir().join("holdfast-testkit");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let log = dir.join(format!("{name}-{}.log", scratch::token()));
        let file = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .envs(self.env)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run `{}`", self.program.display()))?;
        let pid = child.id().context("the child has no pid")?;
        Ok(Process { name, child, pid, log, ended: false })
    }
}

/// A running child; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pid: u32,
    log: PathBuf,
    ended: bool,
}

impl Process {
    /// Says what is to be started.
    pub fn builder(program: impl Into<PathBuf>) -> Builder {
        Builder { program: program.into(), args: Vec::new(), env: Vec::new() }
    }

    /// The child's process id, which is also its group's.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills it at once, as a crash would, and waits until it is gone.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.signal("KILL")?;
        self.child.wait().await?;
        self.ended = true;
        Ok(())
    }

    /// Asks it to end, with SIGTERM; see [`Self::wait`].
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal("TERM")
    }

    /// Asks it to read its settings again, with SIGHUP.
    pub fn hang_up(&self) -> anyhow::Result<()> {
        self.signal("HUP")
    }

    /// Stops it in its tracks, with SIGSTOP, as a long garbage collection or a suspended machine.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal("STOP")
    }

    /// Lets it go on, with SIGCONT.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal("CONT")
    }

    /// Waits until it has ended.
    pub async fn wait(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        match timeout(limit, self.child.wait()).await {
            Ok(status) => {
                self.kill_group();
                Ok(status?)
            }
            Err(_) => bail!("`{}` did not end within {limit:?}; {}", self.name, self.last_words()),
        }
    }

    /// Waits until something listens on `addr`.
    ///
    /// # Errors
    ///
    /// If nothing does within `limit`, or the process ends first; with what it said last.
    pub async fn wait_for_port(&mut self, addr: SocketAddr, limit: Duration) -> anyhow::Result<()> {
        let wanted = format!("a listener on {addr}");
        self.wait_until(&wanted, limit, async || TcpStream::connect(addr).await.is_ok()).await
    }

    /// Waits until a GET of `url` (plain http) answers 200.
    ///
    /// # Errors
    ///
    /// If it does not within `limit`, or the process ends first; with what it said last.
    pub async fn wait_for_ok(&mut self, url: &str, limit: Duration) -> anyhow::Result<()> {
        let wanted = format!("200 from {url}");
        self.wait_until(&wanted, limit, async || {
            matches!(http::request("GET", url, &[], b"").await, Ok(answer) if answer.status == 200)
        })
        .await
    }

    /// What it has written to stdout and stderr so far.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The file that its output goes to; removed with the value, unless the test panics.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Waits until something is so, or the process has ended.
    pub async fn wait_until(
        &mut self,
        wanted: &str,
        limit: Duration,
        is_so: impl AsyncFn() -> bool,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.kill_group();
                bail!("`{}` ended ({status}) before {wanted}; {}", self.name, self.last_words());
            }
            // One look may hang, as when the process is paused.
            if matches!(tokio::time::timeout_at(end, is_so()).await, Ok(true)) {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!("no {wanted} within {limit:?}; {}", self.last_words());
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    fn last_words(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let last = &lines[lines.len().saturating_sub(15)..];
        format!("it said last:\n{}", last.join("\n"))
    }

    /// Ends what the child left behind. Once and at once, while its number cannot be another's yet.
    fn kill_group(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            drop(send("KILL", self.pid));
        }
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        // The number of a child that was waited for may be another's by now.
        if self.ended {
            bail!("`{}` has ended; {}", self.name, self.last_words());
        }
        send(name, self.pid)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_group();
        if !std::thread::panicking() {
            drop(std::fs::remove_file(&self.log));
        }
    }
}

/// Signals a group. The shell's own `kill`, since a safe one is in no library we have.
fn send(signal: &str, group: u32) -> anyhow::Result<()> {
    let status = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("kill -{signal} -{group}"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot run `sh`")?;
    if !status.success() {
        bail!("cannot send SIG{signal} to group {group}: it has ended");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Builder {
        Process::builder("sh").arg("-c").arg(script)
    }

    async fn says(process: &Process, text: &str) {
        timeout(LIMIT, async {
            while !process.output().contains(text) {
                sleep(POLL_INTERVAL).await;
            }
        })
        .await
        .unwrap();
    }

    fn is_alive(pid: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    }

    #[tokio::test]
    async fn its_output_and_its_end_are_seen() {
        let mut process =
            shell("echo $GREETING; echo two >&2; exit 3").env("GREETING", "one").spawn().unwrap();

        let status = process.wait(LIMIT).await.unwrap();

        assert_eq!(status.code(), Some(3));
        assert_eq!(process.output(), "one\ntwo\n");
    }

    #[tokio::test]
    async fn dropping_it_kills_what_it_started_too() {
        let process = shell("sleep 60 & echo child $!; wait").spawn().unwrap();
        says(&process, "child").await;
        let grandchild = process.output().trim().replace("child ", "");
        assert!(is_alive(&grandchild));

        drop(process);

        timeout(LIMIT, async {
            while is_alive(&grandchild) {
                sleep(POLL_INTERVAL).await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn it_can_be_asked_to_end_and_be_killed() {
        let mut polite =
            shell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")
                .spawn()
                .unwrap();
        says(&polite, "up").await;
        polite.terminate().unwrap();
        assert!(polite.wait(LIMIT).await.unwrap().success());
        assert!(polite.output().contains("bye"));

        let mut killed = shell("sleep 60").spawn().unwrap();
        killed.kill().await.unwrap();
        assert!(killed.terminate().is_err());
    }

    #[tokio::test]
    async fn a_paused_one_does_nothing_until_it_is_resumed() {
        let process = shell("while :; do echo tick; sleep 0.01; done").spawn().unwrap();
        says(&process, "tick").await;

        process.pause().unwrap();
        sleep(Duration::from_millis(50)).await;
        let then = process.output().len();
        sleep(Duration::from_millis(100)).await;
        assert_eq!(process.output().len(), then);
        process.resume().unwrap();

        timeout(LIMIT, async {
            while process.output().len() == then {
                sleep(POLL_INTERVAL).await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn its_port_is_waited_for() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let mut process = shell("sleep 60").spawn().unwrap();

        process.wait_for_port(addr, LIMIT).await.unwrap();
    }

    #[tokio::test]
    async fn one_that_ends_before_it_listens_is_an_error_with_its_last_words() {
        let mut process = shell("echo no such database; exit 1").spawn().unwrap();

        let waited = process.wait_for_ok("http://127.0.0.1:1/ready", LIMIT).await;

        let error = waited.unwrap_err().to_string();
        assert!(error.contains("exit status: 1") && error.contains("no such database"), "{error}");
    }
}
