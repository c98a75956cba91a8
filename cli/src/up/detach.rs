//! Starts `up` in the background.

use std::{
    env,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::{READY_TIMEOUT, plan::Plan};
use crate::{
    signal,
    state_dir::{State, StateDir},
};

/// Number of lines of the log that are shown after a failure.
const LAST_LINES: usize = 15;

/// Starts a child that serves, and waits until everything is ready.
///
/// # Errors
///
/// If the child ends before that; the error has the end of its log.
pub async fn start(home: &StateDir, lock: File, plan: &Plan) -> anyhow::Result<State> {
    let log_path = home.log_file("up");
    let log = File::create(&log_path)
        .with_context(|| format!("cannot write `{}`", log_path.display()))?;
    let program = env::current_exe().context("cannot find this program's own file")?;
    let mut child = Command::new(&program)
        .args(["up", "--background", "--workers", &plan.workers.to_string(), "--dir"])
        .arg(home.path())
        // The lock lasts while any process has the file open, so it is handed over without a moment
        // at which nobody holds it.
        .stdin(lock)
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C at this terminal must not reach the child.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{}`", program.display()))?;

    let ready = tokio::time::timeout(READY_TIMEOUT, ready(home, &mut child)).await;
    let Ok(state) = ready else {
        signal::terminate(child.id()).await?;
        bail!("not ready after {READY_TIMEOUT:?}: {}", failure_from_log(home, "up"));
    };
    state
}

async fn ready(home: &StateDir, child: &mut Child) -> anyhow::Result<State> {
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("it ended ({status}): {}", failure_from_log(home, "up"));
        }
        match home.state() {
            Ok(state) if state.pid == child.id() => return Ok(state),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Returns the end of a process's log, as a reason for its end.
pub fn failure_from_log(home: &StateDir, process: &str) -> String {
    let path = home.log_file(process);
    let log = fs::read(&path).unwrap_or_default();
    format!(
        "{} (all of it is in `{}`)",
        error_or_log_end(&String::from_utf8_lossy(&log)),
        path.display()
    )
}

/// Returns the error in the log, or its last lines if there is none.
fn error_or_log_end(log: &str) -> String {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    match lines.iter().rev().find_map(|line| line.strip_prefix("error: ")) {
        Some(error) => error.to_owned(),
        None => format!(
            "its log ends with\n{}\n",
            lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_alone_and_else_the_log_s_end() {
        assert_eq!(error_or_log_end("INFO one\nerror: two\nINFO three\n"), "two");

        let told = error_or_log_end(&"INFO line\n".repeat(100));
        assert_eq!(told.matches("INFO line").count(), LAST_LINES);
    }
}
