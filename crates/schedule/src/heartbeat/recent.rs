//! Recently delivered heartbeat answers, to suppress repetitions (spec HBT-013, C-12).
//!
//! Only hashes are kept. An answer is recorded after its delivery, so an answer that could not be
//! sent is not suppressed.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Time for which a delivered answer suppresses the same answer.
pub const RECENT_WINDOW: SignedDuration = SignedDuration::from_hours(24);

pub const MAX_RECENT_ANSWERS: usize = 100;

/// Returns the first 16 hex digits of the SHA-256 of the trimmed text.
#[must_use]
pub fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.trim());
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Digests of the answers recently delivered to one target, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecentAnswers(Vec<(i64, String)>);

impl RecentAnswers {
    /// Returns whether the text was delivered in the last 24 hours and is among the last hundred.
    #[must_use]
    pub fn contains(&self, text: &str, now: Timestamp) -> bool {
        let digest = digest(text);
        let since = since(now);
        self.0.iter().any(|(at, said)| *at > since && *said == digest)
    }

    /// Records a delivered text and removes expired entries.
    pub fn record(&mut self, text: &str, now: Timestamp) {
        let digest = digest(text);
        let since = since(now);
        self.0.retain(|(at, said)| *at > since && *said != digest);
        self.0.push((now.as_millisecond(), digest));
        let over = self.0.len().saturating_sub(MAX_RECENT_ANSWERS);
        self.0.drain(..over);
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(i64, String)> for RecentAnswers {
    /// Restores stored entries: milliseconds since 1970 and [`digest`]s.
    fn from_iter<I: IntoIterator<Item = (i64, String)>>(said: I) -> Self {
        Self(said.into_iter().collect())
    }
}

fn since(now: Timestamp) -> i64 {
    now.checked_sub(RECENT_WINDOW).unwrap_or(Timestamp::MIN).as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(hour: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + hour * 3_600).unwrap()
    }

    #[test]
    fn what_was_said_counts_for_a_day() {
        let mut recent = RecentAnswers::default();
        recent.record("The oven is on.", hour(0));

        assert!(recent.contains(" The oven is on.\n", hour(23)));
        assert!(!recent.contains("The oven is off.", hour(23)));
        assert!(!recent.contains("The oven is on.", hour(24)));
    }

    #[test]
    fn no_more_than_a_hundred_are_remembered_and_the_oldest_go_first() {
        let mut recent = RecentAnswers::default();
        for said in 0..101 {
            recent.record(&said.to_string(), hour(0));
        }

        assert_eq!(recent.len(), 100);
        assert!(!recent.contains("0", hour(1)));
        assert!(recent.contains("1", hour(1)) && recent.contains("100", hour(1)));
        recent.record("later", hour(30));
        assert_eq!(recent.len(), 1);
    }

    #[test]
    fn what_is_kept_says_nothing_of_the_text() {
        let mut recent = RecentAnswers::default();
        recent.record("secret", hour(0));

        let kept = serde_json::to_string(&recent).unwrap();

        assert_eq!(kept, r#"[[1767225600000,"2bb80d537b1da3e3"]]"#);
        assert_eq!(serde_json::from_str::<RecentAnswers>(&kept).unwrap(), recent);
    }
}
