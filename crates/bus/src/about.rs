//! What runners say of themselves, to whoever looks after the installation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Bus, Error, Subject};

/// The most runners that are heard out.
const MOST: usize = 1_000;

/// What a runner says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerAbout {
    /// Where commands run: `bubblewrap` or `plain`; empty if none do.
    #[serde(default)]
    pub sandbox: String,
    /// Why agents have no commands; empty if they have.
    #[serde(default)]
    pub no_commands: String,
}

impl Bus {
    /// Asks all runners about themselves; those that answer within `patience` are heard.
    ///
    /// # Errors
    ///
    /// If NATS is not there.
    pub async fn about_runners(&self, patience: Duration) -> Result<Vec<RunnerAbout>, Error> {
        self.ask(&Subject::about_runners(), &(), patience, MOST).await
    }
}
