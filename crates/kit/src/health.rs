//! Readiness of the process to accept work.
//!
//! `/readyz` and the gRPC health service both read one [`Readiness`], so they always agree.
//! Liveness is separate: a process that can answer is alive.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

/// A set of named checks. The process is ready while all of them pass and it is not draining.
#[derive(Debug, Clone)]
pub struct Readiness {
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Default)]
struct State {
    checks: BTreeMap<&'static str, bool>,
    draining: bool,
}

impl State {
    fn is_ready(&self) -> bool {
        !self.draining && self.checks.values().all(|passes| *passes)
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// Creates a set without checks. It is ready.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(State::default())) }
    }

    /// Adds a check. It fails until its [`pass`](Check::pass) is called.
    #[must_use]
    pub fn check(&self, name: &'static str) -> Check {
        let check = Check { name, readiness: self.clone() };
        check.fail();
        check
    }

    /// Makes the process permanently not ready: it finishes its work in progress and accepts no
    /// more.
    pub fn drain(&self) {
        self.state.send_modify(|state| state.draining = true);
    }

    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.borrow().is_ready()
    }

    /// Returns the names of the failing checks, and `draining` while the process drains.
    #[must_use]
    pub fn failing(&self) -> Vec<&'static str> {
        let state = self.state.borrow();
        let failing = state.checks.iter().filter(|(_, passes)| !**passes).map(|(name, _)| *name);
        failing.chain(state.draining.then_some("draining")).collect()
    }

    /// Waits until readiness differs from `was`, and returns the new value.
    pub async fn changed_from(&self, was: bool) -> bool {
        let mut state = self.state.subscribe();
        // `self` holds the sender, so the wait cannot fail.
        let _ = state.wait_for(|state| state.is_ready() != was).await;
        !was
    }
}

/// One check of a [`Readiness`].
#[derive(Debug, Clone)]
pub struct Check {
    name: &'static str,
    readiness: Readiness,
}

impl Check {
    pub fn pass(&self) {
        self.set(true);
    }

    pub fn fail(&self) {
        self.set(false);
    }

    fn set(&self, passes: bool) {
        self.readiness
            .state
            .send_if_modified(|state| state.checks.insert(self.name, passes) != Some(passes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_once_every_check_passes() {
        let readiness = Readiness::new();
        let (postgres, routes) = (readiness.check("postgres"), readiness.check("routes"));
        postgres.pass();

        assert_eq!(readiness.failing(), ["routes"]);
        assert!(!readiness.is_ready());

        routes.pass();
        assert!(readiness.is_ready());
    }

    #[tokio::test]
    async fn draining_says_no_for_good_and_wakes_who_waits() {
        let readiness = Readiness::new();
        let check = readiness.check("postgres");
        check.pass();

        let told = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.changed_from(true).await }
        });
        readiness.drain();
        check.pass();

        assert!(!told.await.unwrap());
        assert_eq!(readiness.failing(), ["draining"]);
    }
}
