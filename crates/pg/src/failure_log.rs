//! Failure log of a loop that retries.

use std::{
    error::Error,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{error, info, warn};

use crate::permanent_class;

/// Interval in which the failure of a loop is logged again while it lasts.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);

/// Logs when a loop starts to fail, now and then while it fails, and when it works again. A database
/// error that no retry removes is logged as an error, since only a person can end it.
#[derive(Debug)]
pub struct FailureLog {
    what: &'static str,
    /// Time of the last line about the failure; `None` while the loop works.
    logged: Mutex<Option<Instant>>,
}

impl FailureLog {
    /// `what` describes the failure in the log.
    #[must_use]
    pub const fn new(what: &'static str) -> Self {
        Self { what, logged: Mutex::new(None) }
    }

    pub fn on_failure(&self, error: &(dyn Error + 'static)) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_some_and(|at| at.elapsed() < REPEAT_INTERVAL) {
            return;
        }
        *logged = Some(Instant::now());
        match permanent_class(error) {
            Some(class) => error!(error, class, what = self.what, "the database refuses this"),
            None => warn!(error, what = self.what, "in trouble; trying again"),
        }
    }

    pub fn on_success(&self) {
        if self.logged.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            info!(what = self.what, "out of trouble");
        }
    }
}
