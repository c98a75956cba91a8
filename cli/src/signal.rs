//! Signals to processes that `up` started.
//!
//! They are sent by the shell's `kill`, which is available everywhere: the standard library can
//! send only SIGKILL, and only to children.

use std::process::Stdio;

use anyhow::Context as _;
use tokio::process::Command;

/// Sends SIGTERM to a process.
///
/// # Errors
///
/// If there is no shell. A process that has already ended is not an error.
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
