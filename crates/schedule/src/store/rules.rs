//! Operator's limits for jobs and reminders: config table `[schedules]`.

use std::time::Duration;

use crate::{ScheduleLimits, reminder};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::store::Limits;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Minimum time between two slots of a job.
    #[serde(with = "humantime_serde")]
    pub apart: Duration,

    /// Maximum time by which the moment of a one-time job may be in the past.
    #[serde(with = "humantime_serde")]
    pub late: Duration,

    pub jobs: u32,

    /// Maximum active reminders per user.
    pub reminders: u32,

    /// Minimum time from a reminder that fired to the one that its turn sets.
    #[serde(with = "humantime_serde")]
    pub reminders_apart: Duration,

    /// Maximum reminders in a row that set the next one without a message from the user.
    pub reminders_unanswered: u32,
}

impl Default for Rules {
    fn default() -> Self {
        let (limits, usual) = (Limits::default(), reminder::Limits::default());
        Self {
            apart: Duration::from_secs(10),
            late: Duration::from_secs(300),
            jobs: u32::try_from(limits.tenant).unwrap_or(u32::MAX),
            reminders: u32::try_from(usual.max_active).unwrap_or(u32::MAX),
            reminders_apart: usual.min_interval.unsigned_abs(),
            reminders_unanswered: usual.max_renewals,
        }
    }
}

impl Rules {
    #[must_use]
    pub fn allowed(&self) -> ScheduleLimits {
        ScheduleLimits { min_interval: signed(self.apart), max_lateness: signed(self.late) }
    }

    #[must_use]
    pub fn reminders(&self) -> reminder::Limits {
        reminder::Limits {
            max_active: usize::try_from(self.reminders).unwrap_or(usize::MAX),
            min_interval: signed(self.reminders_apart),
            max_renewals: self.reminders_unanswered,
            ..reminder::Limits::default()
        }
    }

    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            tenant: i64::from(self.jobs),
            reminders: i64::from(self.reminders),
            ..Limits::default()
        }
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_as_the_crates_have_it() {
        let usual = Rules::default();

        assert_eq!(usual.reminders(), reminder::Limits::default());
        assert_eq!(usual.limits(), Limits::default());
        assert_eq!(usual.allowed().min_interval, SignedDuration::from_secs(10));
    }
}
