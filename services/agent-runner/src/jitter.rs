//! Random variation of intervals.

use std::time::Duration;

/// Returns 90 to 100 % of a duration, so that replicas do not act at the same time.
pub(crate) fn jittered(every: Duration) -> Duration {
    every.mul_f64(0.9 + 0.1 * rand::random::<f64>())
}
