//! Faults that a fake platform injects on request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::scratch::lock;

/// One way in which a request goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Refused with this status; nothing is done.
    Status(u16),
    /// Refused with 429 and, the platform's way, how long to wait; nothing is done.
    RateLimited {
        /// What the caller is told to wait; sent in whole seconds, rounded up.
        retry_after: Duration,
    },
    /// Done, but the answer comes only after this long.
    Hang(Duration),
    /// The connection closes, and nothing was done.
    CutBefore,
    /// Done, and then the connection closes without an answer: the caller cannot know.
    CutAfter,
}

/// Which requests go wrong, and how. Clones share the plan.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<FaultPlan>>);

#[derive(Debug, Default)]
struct FaultPlan {
    next: VecDeque<Fault>,
    chance: Vec<(f64, Fault, StdRng)>,
    fired: u64,
}

impl Faults {
    /// The next `times` requests go wrong like this, after those already planned.
    pub fn next(&self, times: usize, fault: &Fault) {
        lock(&self.0).next.extend(std::iter::repeat_n(fault.clone(), times));
    }

    /// Any request goes wrong like this with a probability between 0 and 1, unless something is
    /// planned for it. Whether it does is drawn from `draws`.
    pub fn sometimes(&self, probability: f64, fault: Fault, draws: StdRng) {
        lock(&self.0).chance.push((probability, fault, draws));
    }

    /// Every request goes wrong like this, unless something is planned for it.
    pub fn always(&self, fault: Fault) {
        self.sometimes(1.0, fault, StdRng::seed_from_u64(0));
    }

    /// Nothing goes wrong from now on.
    pub fn clear(&self) {
        let mut plan = lock(&self.0);
        plan.next.clear();
        plan.chance.clear();
    }

    /// How many requests went wrong.
    #[must_use]
    pub fn fired(&self) -> u64 {
        lock(&self.0).fired
    }

    /// What goes wrong with the request at hand.
    pub(crate) fn take(&self) -> Option<Fault> {
        let mut plan = lock(&self.0);
        let fault = plan.next.pop_front().or_else(|| {
            plan.chance.iter_mut().find_map(|(chance, fault, draws)| {
                (draws.random::<f64>() < *chance).then(|| fault.clone())
            })
        })?;
        plan.fired += 1;
        Some(fault)
    }
}

/// What a client is told: whole seconds, and not zero.
pub(crate) fn retry_seconds(retry_after: Duration) -> u64 {
    retry_after.as_millis().div_ceil(1000).max(1).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_faults_come_in_order_and_then_no_more() {
        let faults = Faults::default();
        faults.next(2, &Fault::Status(500));
        faults.next(1, &Fault::CutAfter);

        let seen: Vec<_> = (0..4).map(|_| faults.take()).collect();

        let error = Some(Fault::Status(500));
        assert_eq!(seen, [error.clone(), error, Some(Fault::CutAfter), None]);
        assert_eq!(faults.fired(), 3);
    }

    #[test]
    fn a_chance_of_one_always_fires_and_of_zero_never() {
        let faults = Faults::default();
        faults.sometimes(0.0, Fault::CutBefore, StdRng::seed_from_u64(1));
        faults.always(Fault::CutAfter);

        assert!((0..100).all(|_| faults.take() == Some(Fault::CutAfter)));
        faults.clear();
        assert_eq!(faults.take(), None);
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds() {
        assert_eq!(retry_seconds(Duration::from_millis(1)), 1);
        assert_eq!(retry_seconds(Duration::from_millis(1500)), 2);
        assert_eq!(retry_seconds(Duration::ZERO), 1);
    }
}
