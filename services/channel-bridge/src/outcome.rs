//! Outcome of one attempt to send, and the delivery state that follows from it (spec CHN-022).
//!
//! An adapter reports what it knows; the channel's class and the number of attempts decide the
//! rest, only here.
//!
//! | outcome | plain | keyed | reconcilable |
//! |---|---|---|---|
//! | sent | sent | sent | sent |
//! | certainly not sent | retried later | retried later | retried later |
//! | refused | dead | dead | dead |
//! | unsure | unknown | retried with the same key while the platform remembers it, then unknown | the platform is asked before it is retried |
//! | unknown for good | unknown | unknown | unknown |

use std::time::Duration;

use holdfast_kit::Backoff;
use holdfast_session::SendResult;
use holdfast_types::DeliveryClass;

/// Minimum time after an unsure attempt before the platform is asked: it may still be at work on it.
const MIN_RECONCILE_DELAY: Duration = Duration::from_secs(5);

/// Maximum length of a stored reason, in characters.
const MAX_REASON_CHARS: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The platform has the message.
    Sent {
        /// Id of the message on the platform.
        platform_id: String,
    },
    /// The platform certainly has not the message: nothing left this machine, or it asked to retry.
    NotSent {
        reason: String,
        /// Delay that the platform asks for.
        after: Option<Duration>,
    },
    /// The platform refuses, and would refuse again.
    Refused { reason: String },
    /// Sent or not: the outcome is not known, or not yet.
    Unsure { reason: String },
    /// Sent or not, and nobody will be able to tell.
    Unknown { reason: String },
}

/// What a platform answers when it is asked for a message (class `Reconcilable`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciliation {
    /// It has the message.
    Sent { platform_id: String },
    /// It certainly has not got the message, and will not get it by the earlier attempt.
    NotSent,
    /// It cannot tell yet, or could not be asked: it is asked again later.
    NotYet { reason: String },
    /// It can never tell.
    CannotTell { reason: String },
}

impl Outcome {
    /// Outcome of a message that was certainly not sent, without a delay from the platform.
    #[must_use]
    pub fn not_sent(reason: impl Into<String>) -> Self {
        Self::NotSent { reason: reason.into(), after: None }
    }

    #[must_use]
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }

    #[must_use]
    pub fn unsure(reason: impl Into<String>) -> Self {
        Self::Unsure { reason: reason.into() }
    }
}

/// Retry policy of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Delays: each deviates by at most a tenth from the doubling, so that their sum is
    /// predictable.
    pub backoff: Backoff,
    /// Number of attempts after which the delivery is dead.
    pub tries: u32,
}

impl RetryPolicy {
    /// Delays of 400 ms doubling to 30 s, about `total` in all.
    #[must_use]
    pub fn lasting(total: Duration) -> Self {
        let backoff = Backoff::new(Duration::from_millis(400), Duration::from_secs(30));
        let mut waited = Duration::ZERO;
        let mut tries = 1;
        while waited < total {
            waited += backoff.cap(tries - 1);
            tries += 1;
        }
        Self { backoff, tries }
    }

    /// Returns the record for attempt number `attempt`, the first being 1. The attempts before the
    /// delivery was sent again by hand do not count. `unsure_for` is the time since the first
    /// attempt whose outcome is not known.
    #[must_use]
    pub fn settle(
        &self,
        class: DeliveryClass,
        (attempt, unsure_for): (u32, Duration),
        outcome: Outcome,
    ) -> SendResult {
        let is_last = attempt >= self.tries;
        match outcome {
            Outcome::Sent { platform_id } => SendResult::Sent { platform_id },
            Outcome::Refused { reason } => SendResult::Rejected { reason: shortened(reason) },
            Outcome::NotSent { reason, .. } if is_last => SendResult::Rejected {
                reason: shortened(format!("given up after {attempt} tries: {reason}")),
            },
            Outcome::NotSent { reason, after } => {
                // A random addition: deliveries that were told the same delay do not return all at
                // once.
                let told = after.map(|after| after + jitter(Duration::from_millis(500)));
                let after = told.unwrap_or_else(|| self.pause(attempt));
                SendResult::Retry { after, reason: shortened(reason) }
            }
            Outcome::Unknown { reason } => SendResult::Unknown { reason: shortened(reason) },
            Outcome::Unsure { reason } => {
                let after = match class {
                    _ if is_last => None,
                    DeliveryClass::Keyed { window } => {
                        Some(self.pause(attempt)).filter(|after| unsure_for + *after < window)
                    }
                    DeliveryClass::Reconcilable => {
                        Some(self.pause(attempt).max(MIN_RECONCILE_DELAY))
                    }
                    DeliveryClass::Plain => None,
                };
                match after {
                    Some(after) => SendResult::Unsure { after, reason: shortened(reason) },
                    None => SendResult::Unknown { reason: shortened(reason) },
                }
            }
        }
    }

    fn pause(&self, attempt: u32) -> Duration {
        let cap = self.backoff.cap(attempt.saturating_sub(1));
        cap.mul_f64(0.9) + jitter(cap / 5)
    }
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(rand::random())
}

fn shortened(reason: String) -> String {
    match reason.char_indices().nth(MAX_REASON_CHARS) {
        Some((at, _)) => format!("{} …", &reason[..at]),
        None => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const KEYED: DeliveryClass = DeliveryClass::Keyed { window: HOUR };
    const FIRST: (u32, Duration) = (1, Duration::ZERO);

    #[test]
    fn a_key_is_used_only_while_the_platform_remembers_it() {
        let retry = RetryPolicy::lasting(HOUR);
        let settle = |unsure_for| retry.settle(KEYED, (2, unsure_for), Outcome::unsure("lost"));

        assert!(matches!(settle(HOUR / 2), SendResult::Unsure { .. }));
        assert!(matches!(settle(HOUR), SendResult::Unknown { .. }));
    }

    #[test]
    fn what_is_sent_or_refused_is_final() {
        let retry = RetryPolicy::lasting(HOUR);
        let sent = Outcome::Sent { platform_id: "7".into() };

        assert!(matches!(retry.settle(DeliveryClass::Plain, FIRST, sent),
            SendResult::Sent { platform_id } if platform_id == "7"));
        assert!(matches!(retry.settle(KEYED, FIRST, Outcome::refused("no")),
            SendResult::Rejected { reason } if reason == "no"));
    }

    #[test]
    fn what_nobody_knows_is_sent_again_only_where_that_is_safe() {
        let retry = RetryPolicy::lasting(HOUR);
        let settle = |class| retry.settle(class, FIRST, Outcome::unsure("lost"));

        assert!(matches!(settle(DeliveryClass::Plain), SendResult::Unknown { .. }));
        assert!(matches!(settle(KEYED), SendResult::Unsure { .. }));
        let asked = settle(DeliveryClass::Reconcilable);
        assert!(matches!(asked, SendResult::Unsure { after, .. } if after >= MIN_RECONCILE_DELAY));
    }

    #[test]
    fn what_was_surely_not_sent_is_tried_for_about_an_hour() {
        let retry = RetryPolicy::lasting(HOUR);
        let mut waited = Duration::ZERO;
        let mut attempt = 1;
        let last = loop {
            match retry.settle(
                DeliveryClass::Plain,
                (attempt, Duration::ZERO),
                Outcome::not_sent("no route"),
            ) {
                SendResult::Retry { after, .. } => waited += after,
                last => break last,
            }
            attempt += 1;
        };

        assert!(matches!(last, SendResult::Rejected { reason } if reason.contains("no route")));
        assert!((HOUR * 9 / 10..HOUR * 12 / 10).contains(&waited), "{waited:?}");
    }

    #[test]
    fn the_first_waits_are_short_and_none_is_past_its_most() {
        let retry = RetryPolicy::lasting(HOUR);

        assert!(retry.pause(1) <= Duration::from_millis(440));
        assert!(retry.pause(1) >= Duration::from_millis(360));
        assert!(retry.pause(60) <= Duration::from_secs(33));
    }

    #[test]
    fn a_platform_that_says_when_is_not_asked_before() {
        let after = Some(Duration::from_secs(40));
        let outcome = Outcome::NotSent { reason: "429".into(), after };

        let sent = RetryPolicy::lasting(HOUR).settle(DeliveryClass::Plain, FIRST, outcome);

        let SendResult::Retry { after, .. } = sent else { panic!("{sent:?}") };
        assert!(after >= Duration::from_secs(40) && after <= Duration::from_millis(40_500));
    }

    #[test]
    fn a_keyed_one_whose_last_try_is_unsure_is_not_called_dead() {
        let retry = RetryPolicy::lasting(Duration::from_secs(1));

        let last = retry.settle(KEYED, (retry.tries, Duration::ZERO), Outcome::unsure("500"));

        assert!(matches!(last, SendResult::Unknown { .. }));
    }

    #[test]
    fn a_long_reason_is_shortened_between_characters() {
        let SendResult::Rejected { reason } = RetryPolicy::lasting(HOUR).settle(
            DeliveryClass::Plain,
            FIRST,
            Outcome::refused("é".repeat(999)),
        ) else {
            panic!("not refused")
        };

        assert_eq!(reason.chars().count(), MAX_REASON_CHARS + 2);
    }
}
