//! Supervision of one service as its own process, as Kubernetes would do it.
//!
//! The child's stdin is a pipe that this process holds and never writes to. If this process is
//! killed, the pipe closes and the child shuts down, so that none is left behind.

use std::{
    env,
    fs::{self, File},
    future::Future,
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use holdfast_kit::Backoff;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{detach::failure_from_log, serve::ServiceInstance};
use crate::{
    signal,
    state_dir::{StateDir, write_private},
};

/// Delays before a service is restarted.
const RESTART_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// Run time after which a start counts as successful.
const STABLE_RUN_TIME: Duration = Duration::from_secs(5);
/// Number of consecutive failed starts, before everything was ready once, after which `up` gives
/// up.
const MAX_FAILED_STARTS: u32 = 5;
/// Maximum time for a service to stop; it drains for up to 50 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(55);
/// Size above which the log of an earlier run is deleted, in bytes.
const MAX_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Starts the service, and restarts it whenever it ends, until `stop` is cancelled.
///
/// # Errors
///
/// If this program's file cannot be found; later, if the service cannot be started.
pub fn supervise(
    part: ServiceInstance,
    workers: u8,
    home: StateDir,
    stop: CancellationToken,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + 'static> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let name = format!("{}-{}", part.service, part.n);
    let kept = Supervisor { part, workers, program, name, home };
    Ok(async move { kept.run(stop).await })
}

struct Supervisor {
    part: ServiceInstance,
    workers: u8,
    program: PathBuf,
    name: String,
    home: StateDir,
}

impl Supervisor {
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let pid_file = self.home.pid_file(&self.name);
        let mut tries = 0;
        loop {
            let started = Instant::now();
            let mut child = self.spawn()?;
            // `wait` closes the child's stdin, so it is taken out before.
            let _held = child.stdin.take();
            tokio::select! {
                ended = child.wait() => {
                    let status = ended.context("cannot wait for a service")?;
                    StateDir::remove_file(&pid_file);
                    tries = if started.elapsed() > STABLE_RUN_TIME { 0 } else { tries + 1 };
                    ensure!(
                        tries < MAX_FAILED_STARTS || self.home.state_file().exists(),
                        "`{}` ended {tries} times before everything was ready: {}",
                        self.name,
                        failure_from_log(&self.home, &self.name)
                    );
                    let again_in = RESTART_BACKOFF.cap(tries);
                    warn!(service = %self.name, %status, ?again_in, "a service ended");
                    tokio::select! {
                        () = sleep(again_in) => {}
                        () = stop.cancelled() => return Ok(()),
                    }
                }
                () = stop.cancelled() => {
                    let ended = self.end(&mut child).await;
                    StateDir::remove_file(&pid_file);
                    return ended;
                }
            }
        }
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = self.log()?;
        let child = Command::new(&self.program)
            .arg(self.part.service)
            .args(["--with-parent", "--workers", &self.workers.to_string()])
            .envs(&self.part.vars)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for this process, which then stops its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start `{}`", self.program.display()))?;
        let pid = child.id().context("a service ended at once")?;
        write_private(&self.home.pid_file(&self.name), &format!("{pid}\n"))?;
        info!(service = %self.name, pid, "started a service");
        Ok(child)
    }

    fn log(&self) -> anyhow::Result<File> {
        let path = self.home.log_file(&self.name);
        if fs::metadata(&path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
            StateDir::remove_file(&path);
        }
        File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write `{}`", path.display()))
    }

    async fn end(&self, child: &mut Child) -> anyhow::Result<()> {
        if let Some(pid) = child.id() {
            signal::terminate(pid).await?;
        }
        if timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
            warn!(service = %self.name, "a service did not stop in time and is killed");
            child.kill().await.context("cannot kill a service")?;
        }
        Ok(())
    }
}
