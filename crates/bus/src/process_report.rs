//! Reports of all processes of the mesh about themselves, for operators.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{Bus, Error, Subject};

/// Maximum number of reports read per request.
const MAX_PROCESSES: usize = 2_000;

/// Delay before subscribing again after a failed subscription.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(5);

/// Report of a process about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// Name of the service: `gateway`, `agent-runner`, `scheduler` or `channel-bridge`.
    pub service: String,
    pub id: String,
    pub version: String,
    /// In milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// Pool of a runner; empty is the default one.
    pub pool: String,
    /// Sessions that a runner runs, and the most that it takes.
    pub running: u32,
    pub capacity: u32,
    /// Isolation of a runner's commands, and the reason why there are no commands.
    pub sandbox: String,
    pub no_commands: String,
    /// Whether a runner hosts tenants that do not trust each other (`runner.sandbox.hosted`); `None`
    /// for other services, and for a runner of a version before.
    pub is_hosted: Option<bool>,
    /// It stops, and takes no new work.
    pub is_stopping: bool,
}

impl ProcessReport {
    /// Report of this process, which starts now.
    #[must_use]
    pub fn starting(service: &str, id: impl fmt::Display, version: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            service: service.to_owned(),
            id: id.to_string(),
            version: version.to_owned(),
            started_at_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
            ..Self::default()
        }
    }

    /// Asks all processes for a report. Returns those that arrive within `timeout`.
    ///
    /// # Errors
    ///
    /// If NATS is unavailable.
    pub async fn of_all(bus: &Bus, timeout: Duration) -> Result<Vec<Self>, Error> {
        bus.ask(&Subject::process_reports(), &(), timeout, MAX_PROCESSES).await
    }

    /// Answers with the report of this process until `stop`.
    pub async fn serve(bus: &Bus, report: impl Fn() -> Self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Ok(mut questions) = bus.questions(&Subject::process_reports()).await {
                while let Some(Some(((), asker))) = stop.run_until_cancelled(questions.next()).await
                {
                    asker.answer(&report()).await;
                }
            }
            stop.run_until_cancelled(sleep(RESUBSCRIBE_DELAY)).await;
        }
    }
}
