//! Limits on the number of reminders and on chains of renewals (spec REM-013).
//!
//! A reminder with `auto_continue` runs the agent, and the agent may set the next reminder: a habit
//! kept for months, or a loop that costs money each minute. The time between the reminders and the
//! user's messages between them tell the two apart.

use holdfast_types::{Fault, Kind};
use jiff::{SignedDuration, Timestamp};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum reminders of a user at the same time.
    pub max_active: usize,
    /// Minimum time from a reminder that fired to the one that its turn sets.
    pub min_interval: SignedDuration,
    /// Maximum reminders in a row that set the next one without a message from the user.
    pub max_renewals: u32,
    /// Maximum characters of a reminder's content.
    pub max_content_chars: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_active: 50,
            min_interval: SignedDuration::from_mins(5),
            max_renewals: 60,
            max_content_chars: 2_000,
        }
    }
}

/// Chain of a reminder that is set by another reminder's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// Number of reminders before the one that fired; the first has 0.
    pub chain: u32,
    /// Time at which the previous reminder fired.
    pub fired_at: Timestamp,
    /// Time of the user's last message; `None` if there is none.
    pub last_message_at: Option<Timestamp>,
}

/// Reminder to check against the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReminderCheck<'a> {
    pub content: &'a str,
    pub at: Timestamp,
    /// Number of the user's other active reminders.
    pub active: usize,
    pub renewal: Option<Renewal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("a reminder needs a content: say what it is about")]
    NoContent,
    #[error("the content is longer than {most} characters: say it in fewer")]
    TooLong { most: usize },
    #[error("there are {most} reminders already: cancel one first")]
    TooMany { most: usize },
    /// The limit on all jobs of the user or the tenant is reached.
    #[error(
        "there is no room for more jobs and reminders here: whoever runs this assistant must \
         remove some first"
    )]
    NoRoom,
    /// The time is too close to the reminder whose turn sets it.
    #[error("the next reminder must be at least {} minutes after this one", .least.as_mins())]
    TooSoon { least: SignedDuration },
    /// The chain of renewals is too long.
    #[error(
        "{most} reminders have followed each other unanswered: wait for the user to say something"
    )]
    Unanswered { most: u32 },
}

impl Fault for Refused {
    fn kind(&self) -> Kind {
        match self {
            Self::NoContent | Self::TooLong { .. } | Self::TooSoon { .. } => Kind::Invalid,
            Self::TooMany { .. } | Self::NoRoom | Self::Unanswered { .. } => Kind::Exhausted,
        }
    }
}

impl Limits {
    /// Checks the limits. Returns the reminder's position in its chain, to be stored with it.
    pub fn check(&self, asked: ReminderCheck<'_>) -> Result<u32, Refused> {
        if asked.content.trim().is_empty() {
            return Err(Refused::NoContent);
        }
        if asked.content.chars().count() > self.max_content_chars {
            return Err(Refused::TooLong { most: self.max_content_chars });
        }
        if asked.active >= self.max_active {
            return Err(Refused::TooMany { most: self.max_active });
        }
        let Some(renewal) = asked.renewal else { return Ok(0) };
        if asked.at.duration_since(renewal.fired_at) < self.min_interval {
            return Err(Refused::TooSoon { least: self.min_interval });
        }
        // A message after the last reminder, whatever it says, means that the user is aware of it.
        if renewal.last_message_at.is_some_and(|heard| heard > renewal.fired_at) {
            return Ok(0);
        }
        match renewal.chain.checked_add(1).filter(|chain| *chain <= self.max_renewals) {
            Some(chain) => Ok(chain),
            None => Err(Refused::Unanswered { most: self.max_renewals }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + minute * 60).unwrap()
    }

    fn asked(minute: i64, active: usize, renewal: Option<Renewal>) -> Result<u32, Refused> {
        Limits::default().check(ReminderCheck { content: "tea", at: at(minute), active, renewal })
    }

    #[test]
    fn a_person_has_no_more_than_fifty() {
        assert_eq!(asked(1, 49, None), Ok(0));
        assert_eq!(asked(1, 50, None), Err(Refused::TooMany { most: 50 }));
    }

    #[test]
    fn a_reminder_says_something_and_not_a_book() {
        let of = |content: &str| {
            Limits::default().check(ReminderCheck { content, at: at(1), active: 0, renewal: None })
        };

        assert_eq!(of(" \n"), Err(Refused::NoContent));
        assert_eq!(of(&"茶".repeat(2_000)), Ok(0));
        assert_eq!(of(&"茶".repeat(2_001)), Err(Refused::TooLong { most: 2_000 }));
    }

    #[test]
    fn a_chain_that_nobody_answers_ends() {
        let mut chain = asked(0, 0, None).unwrap();
        let mut ended = None;
        for fired in (5..1_000).step_by(5) {
            let renewal = Renewal { chain, fired_at: at(fired), last_message_at: Some(at(0)) };
            match asked(fired + 5, 0, Some(renewal)) {
                Ok(next) => chain = next,
                Err(refused) => ended = ended.or(Some(refused)),
            }
        }

        assert_eq!((ended, chain), (Some(Refused::Unanswered { most: 60 }), 60));
    }

    #[test]
    fn a_word_from_the_person_begins_the_chain_anew() {
        let renewal = |heard| Some(Renewal { chain: 60, fired_at: at(10), last_message_at: heard });

        assert_eq!(asked(20, 0, renewal(Some(at(11)))), Ok(0));
        assert_eq!(asked(20, 0, renewal(Some(at(9)))), Err(Refused::Unanswered { most: 60 }));
        assert_eq!(asked(20, 0, renewal(None)), Err(Refused::Unanswered { most: 60 }));
    }

    #[test]
    fn one_reminder_does_not_set_the_next_for_the_next_minute() {
        let renewal = Some(Renewal { chain: 0, fired_at: at(10), last_message_at: None });

        let refused = asked(14, 0, renewal).unwrap_err();

        assert_eq!(
            refused.to_string(),
            "the next reminder must be at least 5 minutes after this one"
        );
        assert_eq!(asked(15, 0, renewal), Ok(1));
    }
}
