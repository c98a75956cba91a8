//! How long to wait before trying again.

use std::time::Duration;

/// Exponential back-off with full jitter: anywhere between nothing and the cap,
/// so that many who failed together do not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait before the first new try; it doubles with each.
    pub base: Duration,
    /// The longest wait before any.
    pub max: Duration,
}

impl Backoff {
    /// A back-off that starts within `base` and never waits past `max`.
    #[must_use]
    pub const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }

    /// How long to wait after the failure of try number `attempt`, the first being 0.
    #[must_use]
    pub fn delay(&self, attempt: u32) -> Duration {
        self.cap(attempt).mul_f64(rand::random())
    }

    /// The longest wait after that failure.
    #[must_use]
    pub fn cap(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.checked_pow(attempt).and_then(|by| self.base.checked_mul(by));
        doubled.unwrap_or(self.max).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));

    #[test]
    fn the_longest_wait_doubles_until_the_most() {
        let caps: Vec<u128> = [0, 1, 3, 8, 9, 40].map(|n| BACKOFF.cap(n).as_millis()).into();

        assert_eq!(caps, [100, 200, 800, 25_600, 30_000, 30_000]);
    }

    #[test]
    fn no_wait_is_past_its_cap_and_not_all_are_alike() {
        let waits: Vec<Duration> = (0..200).map(|_| BACKOFF.delay(3)).collect();

        assert!(waits.iter().all(|wait| *wait <= BACKOFF.cap(3)));
        assert!(waits.iter().any(|wait| *wait < BACKOFF.cap(3) / 2));
        assert!(waits.iter().any(|wait| *wait > BACKOFF.cap(3) / 2));
    }
}
