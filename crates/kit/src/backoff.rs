//! Delays between retries.

use std::time::Duration;

/// Exponential backoff with full jitter. Each delay is random between zero and a cap, so that many
/// clients that failed together do not retry together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Maximum delay before the first retry. The cap doubles with each further retry.
    pub base: Duration,
    /// Maximum delay before any retry.
    pub max: Duration,
}

impl Backoff {
    #[must_use]
    pub const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }

    /// Returns a random delay before the retry that follows attempt number `attempt`; the first is
    /// 0.
    #[must_use]
    pub fn delay(&self, attempt: u32) -> Duration {
        self.cap(attempt).mul_f64(rand::random())
    }

    /// Returns the upper bound of [`delay`](Self::delay) for the same attempt.
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
