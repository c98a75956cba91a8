//! Whether this process wants work.
//!
//! `/readyz` and the gRPC health service both ask one [`Readiness`], so that
//! they cannot disagree. Being alive is another question: a process that can
//! answer at all is.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

/// A set of named checks. The process is ready while every one passes and it is not draining.
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
    /// A set without checks, which is ready.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(State::default())) }
    }

    /// Adds a check, which fails until it is told to [pass](Check::pass).
    #[must_use]
    pub fn check(&self, name: &'static str) -> Check {
        let check = Check { name, of: self.clone() };
        check.fail();
        check
    }

    /// Says no from now on: the process finishes what it has and takes nothing new.
    pub fn drain(&self) {
        self.state.send_modify(|state| state.draining = true);
    }

    /// Whether every check passes and the process is not draining.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.borrow().is_ready()
    }

    /// The names of the checks that fail; `draining` is one of them while it is.
    #[must_use]
    pub fn failing(&self) -> Vec<&'static str> {
        let state = self.state.borrow();
        let failing = state.checks.iter().filter(|(_, passes)| !**passes).map(|(name, _)| *name);
        failing.chain(state.draining.then_some("draining")).collect()
    }

    /// Waits until it is no longer `was`, and says what it is now.
    pub async fn changed_from(&self, was: bool) -> bool {
        let mut state = self.state.subscribe();
        // The sender lives in `self`, so that waiting cannot fail.
        let _ = state.wait_for(|state| state.is_ready() != was).await;
        !was
    }
}

/// One check of a [`Readiness`].
#[derive(Debug, Clone)]
pub struct Check {
    name: &'static str,
    of: Readiness,
}

impl Check {
    /// All is well.
    pub fn pass(&self) {
        self.set(true);
    }

    /// Something is missing.
    pub fn fail(&self) {
        self.set(false);
    }

    fn set(&self, passes: bool) {
        self.of
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
