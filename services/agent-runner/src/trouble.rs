//! A loop's trouble with a backend, said once when it begins and once when it ends.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::{info, warn};

/// Whether a loop is in trouble, and what that means.
#[derive(Debug)]
pub(crate) struct Trouble {
    what: &'static str,
    is_known: AtomicBool,
}

impl Trouble {
    /// No trouble yet; `what` says what does not work while there is.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, is_known: AtomicBool::new(false) }
    }

    /// It failed.
    pub(crate) fn begins(&self, error: &(dyn Error + 'static)) {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            warn!(error, what = self.what, "in trouble; trying again");
        }
    }

    /// It works.
    pub(crate) fn ends(&self) {
        if self.is_known.swap(false, Ordering::Relaxed) {
            info!(what = self.what, "out of trouble");
        }
    }
}
