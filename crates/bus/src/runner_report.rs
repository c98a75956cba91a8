//! Reports of runners about themselves, for operators.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Bus, Error, Subject};

/// Maximum number of reports read per request.
const MAX_RUNNERS: usize = 1_000;

/// Report of a runner about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerReport {
    /// Isolation of commands: `bubblewrap` or `plain`; empty if the runner runs no commands.
    #[serde(default)]
    pub sandbox: String,
    /// Reason why agents cannot run commands; empty if they can.
    #[serde(default)]
    pub no_commands: String,
}

impl Bus {
    /// Asks all runners for a report. Returns those that arrive within `patience`.
    ///
    /// # Errors
    ///
    /// If NATS is unavailable.
    pub async fn runner_reports(&self, patience: Duration) -> Result<Vec<RunnerReport>, Error> {
        self.ask(&Subject::runner_reports(), &(), patience, MAX_RUNNERS).await
    }
}
