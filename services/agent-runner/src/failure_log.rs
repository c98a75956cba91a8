//! Failure log of a loop: one line when a backend starts to fail and one when it works again.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::{info, warn};

#[derive(Debug)]
pub(crate) struct FailureLog {
    what: &'static str,
    is_failing: AtomicBool,
}

impl FailureLog {
    /// `what` describes the failure in the log.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, is_failing: AtomicBool::new(false) }
    }

    pub(crate) fn on_failure(&self, error: &(dyn Error + 'static)) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            warn!(error, what = self.what, "in trouble; trying again");
        }
    }

    pub(crate) fn on_success(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            info!(what = self.what, "out of trouble");
        }
    }
}
