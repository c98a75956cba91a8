//! Statistics of a key, and the consequences of failures.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::Reason;

const HOUR_SECS: u64 = 60 * 60;

/// Failures that are farther apart than this are counted separately, in milliseconds.
const FAILURE_WINDOW_MS: i64 = 24 * 60 * 60 * 1_000;

/// Statistics of a key; times are milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    pub last_used: Option<i64>,
    pub last_failure: Option<i64>,
    /// Failures since the last success.
    pub error_count: u32,
    pub cooldown_until: Option<i64>,
    /// Set when the account is out of credit.
    pub disabled_until: Option<i64>,
    pub disabled_reason: Option<Reason>,
    pub failure_counts: BTreeMap<Reason, u32>,
}

/// Cooldown after a number of consecutive failures: 1 min, 5, 25, then an hour.
#[must_use]
pub fn cooldown(errors: u32) -> Duration {
    let times = 5_u64.checked_pow(errors.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(60_u64.saturating_mul(times).min(HOUR_SECS))
}

/// Pause after a number of billing failures: 5 h, 10, 20, then a day.
#[must_use]
pub fn billing_pause(failures: u32) -> Duration {
    let times = 2_u64.checked_pow(failures.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs((5 * HOUR_SECS).saturating_mul(times).min(24 * HOUR_SECS))
}

impl Stats {
    /// Records a failure, and puts the key aside. `last_used` stays: it counts successes only.
    #[must_use]
    pub fn after_failure(self, reason: Reason, now: i64) -> Self {
        let mut stats = self.after_request_failure(reason, now);
        stats.error_count = stats.error_count.saturating_add(1);
        if reason == Reason::Billing {
            let count = stats.failure_counts.get(&reason).copied().unwrap_or_default();
            stats.disabled_until = Some(later(now, billing_pause(count)));
            stats.disabled_reason = Some(reason);
        } else {
            stats.cooldown_until = Some(later(now, cooldown(stats.error_count)));
        }
        stats
    }

    /// Counts a failure that may be of the request and not of the key, which stays in use.
    #[must_use]
    pub fn after_request_failure(mut self, reason: Reason, now: i64) -> Self {
        if self.last_failure.is_some_and(|last| now.saturating_sub(last) > FAILURE_WINDOW_MS) {
            self.error_count = 0;
            self.failure_counts.clear();
        }
        self.last_failure = Some(now);
        let count = self.failure_counts.entry(reason).or_default();
        *count = count.saturating_add(1);
        self
    }

    /// Returns the record of the two that puts the key aside for longer, with the later use of both.
    #[must_use]
    pub fn or_longer(self, other: Self, now: i64) -> Self {
        let last_used = self.last_used.max(other.last_used);
        let is_longer = other.unusable_until(now) > self.unusable_until(now);
        Self { last_used, ..if is_longer { other } else { self } }
    }

    /// Records a success and forgets earlier failures.
    #[must_use]
    pub fn after_success(self, now: i64) -> Self {
        let last_failure = self.last_failure;
        Self { last_used: Some(now), last_failure, ..Self::default() }
    }

    /// End of the cooldown or pause; `None` if the key is usable now.
    #[must_use]
    pub fn unusable_until(&self, now: i64) -> Option<i64> {
        self.cooldown_until.max(self.disabled_until).filter(|until| now < *until)
    }
}

fn later(now: i64, by: Duration) -> i64 {
    now.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_costs_five_times_as_long_up_to_an_hour() {
        let seconds: Vec<u64> = (0..=7).map(|errors| cooldown(errors).as_secs()).collect();
        assert_eq!(seconds, [60, 60, 300, 1_500, 3_600, 3_600, 3_600, 3_600]);
        assert_eq!(cooldown(u32::MAX).as_secs(), 3_600);
    }

    #[test]
    fn an_account_without_money_is_left_alone_for_hours_up_to_a_day() {
        let hours: Vec<u64> = (0..=5).map(|n| billing_pause(n).as_secs() / HOUR_SECS).collect();
        assert_eq!(hours, [5, 5, 10, 20, 24, 24]);
        assert_eq!(billing_pause(u32::MAX).as_secs() / HOUR_SECS, 24);
    }

    #[test]
    fn a_failure_is_counted_and_a_success_forgets_it() {
        let once = Stats { last_used: Some(5), ..Stats::default() }
            .after_failure(Reason::RateLimit, 1_000);
        assert_eq!((once.error_count, once.cooldown_until), (1, Some(61_000)));
        assert_eq!(once.last_used, Some(5));
        assert_eq!(once.unusable_until(60_999), Some(61_000));
        assert_eq!(once.unusable_until(61_000), None);

        let twice = once.after_failure(Reason::Auth, 2_000);
        assert_eq!((twice.error_count, twice.cooldown_until), (2, Some(302_000)));
        assert_eq!(twice.failure_counts, [(Reason::Auth, 1), (Reason::RateLimit, 1)].into());

        let well = twice.after_success(3_000);
        assert_eq!(
            (well.last_used, well.error_count, well.unusable_until(3_000)),
            (Some(3_000), 0, None)
        );
        assert!(well.failure_counts.is_empty());
    }

    #[test]
    fn being_out_of_money_puts_it_out_of_use_and_does_not_shorten_that() {
        let broke = Stats::default().after_failure(Reason::Billing, 0);
        assert_eq!((broke.disabled_until, broke.cooldown_until), (Some(18_000_000), None));
        assert_eq!(broke.disabled_reason, Some(Reason::Billing));

        let both = broke.after_failure(Reason::Timeout, 1_000);
        assert_eq!(both.unusable_until(1_000), Some(18_000_000));
    }

    #[test]
    fn a_failure_of_a_request_is_counted_and_the_key_stays_in_use() {
        let counted = Stats::default()
            .after_request_failure(Reason::Billing, 1_000)
            .after_request_failure(Reason::Auth, 1_000);

        assert_eq!((counted.error_count, counted.unusable_until(1_000)), (0, None));
        assert_eq!(counted.failure_counts, [(Reason::Auth, 1), (Reason::Billing, 1)].into());

        let own = Stats { last_used: Some(7), ..Stats::default() };
        let own = own.after_failure(Reason::RateLimit, 1_000);
        let both = counted.clone().or_longer(own.clone(), 1_000);
        assert_eq!(both, own);
        let both = own.or_longer(counted, 61_000);
        assert_eq!((both.last_used, both.unusable_until(61_000)), (Some(7), None));
    }

    #[test]
    fn what_failed_a_day_ago_does_not_count() {
        let old = Stats::default().after_failure(Reason::Auth, 0);

        assert_eq!(old.clone().after_failure(Reason::Auth, FAILURE_WINDOW_MS).error_count, 2);
        assert_eq!(old.after_failure(Reason::Auth, FAILURE_WINDOW_MS + 1).error_count, 1);
    }
}
