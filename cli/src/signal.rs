//! Signals to processes that `up` started.
//!
//! By the shell's own `kill`, which is everywhere: the standard library sends none but SIGKILL, and
//! to no process but a child.

use std::process::Stdio;

use anyhow::Context as _;
use tokio::process::Command;

/// Asks a process to end.
///
/// # Errors
///
/// If there is no shell. That the process is gone already is no error.
pub async fn terminate(pid: u32) -> anyhow::Result<()> {
    Command::new("sh")
        .args(["-c", "kill -TERM \"$0\""])
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await
        .context("cannot run `sh`, which sends signals")?;
    Ok(())
}
