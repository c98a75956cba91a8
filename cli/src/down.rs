//! `holdfast down`: stops an `up`, and the backends that it started.

use std::{fs, time::Duration};

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::{backends, error::Error, screen::Screen, signal, state_dir::StateDir};

/// Maximum time for `up` to end: services drain for 50 s, and backends stop after them.
const STOP_TIMEOUT: Duration = Duration::from_secs(95);

/// Runs `holdfast down`.
///
/// # Errors
///
/// If the running `up` does not end in time.
pub async fn run(home: &StateDir, screen: &Screen) -> Result<(), Error> {
    let stopped = home.exists() && end_services(home).await?;
    if home.exists() && !stopped {
        // An `up` that ended normally has stopped them; one that was killed has not.
        backends::down(home).await?;
    }
    let sentence = if stopped { "stopped" } else { "nothing was running" };
    screen.done(sentence, &json!({"stopped": stopped}))
}

/// Ends the `up` that holds the lock. Returns whether there was one.
async fn end_services(home: &StateDir) -> anyhow::Result<bool> {
    if home.lock()?.is_some() {
        return Ok(false);
    }
    let path = home.pid_file("up");
    let pid = fs::read_to_string(&path)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .with_context(|| {
            format!(
                "an `up` is just starting here, `{}` does not name it yet: try again in a moment",
                path.display()
            )
        })?;
    signal::terminate(pid).await?;
    let ended = async {
        while home.lock()?.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(STOP_TIMEOUT, ended).await {
        Ok(ended) => ended.map(|()| true),
        Err(_) => {
            bail!("process {pid} does not end within {STOP_TIMEOUT:?}: `kill -9 {pid}` ends it")
        }
    }
}
