//! Longer intervals of an agent whom nobody has needed for a day (spec STM-021).

use jiff::SignedDuration;

/// Time without input after which an agent sleeps.
pub const SLEEP_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// Longest interval of a sleeping agent, unless its own is longer.
const MAX_SLEEP_INTERVAL: SignedDuration = SignedDuration::from_hours(4);

/// Returns the time until the next heartbeat of a sleeping agent: its interval, doubled with each
/// heartbeat since it fell asleep.
#[must_use]
pub fn sleep_interval(interval: SignedDuration, heartbeats: u32) -> SignedDuration {
    let factor = 1_i32.checked_shl(heartbeats.min(30)).unwrap_or(i32::MAX);
    let doubled = interval.checked_mul(factor).unwrap_or(SignedDuration::MAX);
    doubled.min(MAX_SLEEP_INTERVAL.max(interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_doubles_with_each_heartbeat_up_to_four_hours() {
        let minutes = |interval, heartbeats| {
            sleep_interval(SignedDuration::from_mins(interval), heartbeats).as_mins()
        };

        let all: Vec<i64> = (0..8).map(|heartbeats| minutes(5, heartbeats)).collect();
        assert_eq!(all, [5, 10, 20, 40, 80, 160, 240, 240]);
        assert_eq!(minutes(5, u32::MAX), 240);
        assert_eq!(minutes(24 * 60, 3), 24 * 60, "an interval is never shortened");
    }
}
