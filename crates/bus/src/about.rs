//! Reports of runners about themselves, for operators.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Bus, Error, Subject};

/// Maximum number of reports read per request.
const MOST: usize = 1_000;

/// Report of a runner about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerAbout {
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
    pub async fn about_runners(&self, patience: Duration) -> Result<Vec<RunnerAbout>, Error> {
        self.ask(&Subject::about_runners(), &(), patience, MOST).await
    }
}
