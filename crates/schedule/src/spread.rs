//! Deterministic jitter and phase, so that not all work begins at the full hour.
//!
//! Both are hashes of the name only: a job is delayed by the same time each time, on every replica,
//! so its runs stay as far apart as its slots.

use jiff::SignedDuration;
use sha2::{Digest as _, Sha256};

/// Returns the delay of a job's runs after their slots: 0 to less than `window`.
#[must_use]
pub fn jitter(job: &str, window: SignedDuration) -> SignedDuration {
    share("jitter", job, window)
}

/// Returns the offset of an agent's heartbeat within the interval (spec HBT-020).
#[must_use]
pub fn phase(agent: &str, interval: SignedDuration) -> SignedDuration {
    share("phase", agent, interval)
}

fn share(what: &str, name: &str, of: SignedDuration) -> SignedDuration {
    let Ok(window) = u64::try_from(of.as_millis()) else { return SignedDuration::ZERO };
    if window == 0 {
        return SignedDuration::ZERO;
    }
    let hash = Sha256::new().chain_update(what).chain_update([0]).chain_update(name).finalize();
    let number = hash.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    i64::try_from(number % window).map_or(SignedDuration::ZERO, SignedDuration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_always_late_by_the_same_time() {
        let window = SignedDuration::from_mins(5);

        // Fixed values: a change would move every job of an installation.
        assert_eq!(jitter("cron_0a1b2c3d", window), jitter("cron_0a1b2c3d", window));
        assert_eq!(jitter("cron_0a1b2c3d", window).as_millis(), 251_594);
        assert_eq!(phase("agt_a", window).as_millis(), 210_684);
    }

    #[test]
    fn a_thousand_jobs_fill_the_window_evenly() {
        let window = SignedDuration::from_secs(10);
        let mut tenths = [0_usize; 10];
        for job in 0..1_000 {
            let late = jitter(&format!("cron_{job:08x}"), window);
            assert!(late >= SignedDuration::ZERO && late < window);
            tenths[usize::try_from(late.as_secs()).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|tenth| (60..=140).contains(tenth)), "{tenths:?}");
    }

    #[test]
    fn no_window_is_no_jitter() {
        assert_eq!(jitter("a", SignedDuration::ZERO), SignedDuration::ZERO);
        assert_eq!(jitter("a", SignedDuration::from_secs(-1)), SignedDuration::ZERO);
    }
}
