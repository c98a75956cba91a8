//! Wait for a database that this binary can use.

use std::time::Duration;

use tracing::{info, warn};

use crate::{Pools, error::advice, pending};

/// Interval between log lines while a service waits for its database.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Waits until the database answers and its schema is new enough for this binary.
///
/// A database that is down at startup is not a failure: this logs a warning and keeps waiting.
///
/// # Errors
///
/// Only if `stop` completes first.
pub async fn wait_until_ready<F>(pools: &Pools, stop: F) -> anyhow::Result<()>
where
    F: Future<Output = ()>,
{
    tokio::select! {
        () = stop => anyhow::bail!("asked to stop while waiting for the database"),
        () = until_ready(pools) => Ok(()),
    }
}

async fn until_ready(pools: &Pools) {
    let mut said: Option<tokio::time::Instant> = None;
    let mut pause = Duration::from_millis(50);
    loop {
        let problem = match pending(pools).await {
            Ok(None) => {
                if said.is_some() {
                    info!("the database is ready");
                }
                return;
            }
            Ok(Some(missing)) => missing,
            Err(error) if is_refused_by_pooler(&error) => {
                format!("{error}: behind a pooler set `database.transaction_pooling`")
            }
            Err(error) => match advice(&error) {
                Some(advice) => format!("{error}: {advice}"),
                None => format!("it does not answer ({error})"),
            },
        };
        if said.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            warn!(%problem, "waiting for the database: check `database.url`, or run `holdfast migrate`");
            said = Some(tokio::time::Instant::now());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Whether a pooler refused the settings that a connection is opened with.
fn is_refused_by_pooler(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("startup parameter"))
}
