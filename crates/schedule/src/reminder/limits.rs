//! How many reminders there may be, and for how long they may renew themselves (spec REM-013).
//!
//! A reminder with `auto_continue` has the agent think, and the agent may set the next one: a habit
//! that is kept up for months, or a loop that costs money each minute. What tells them apart is how
//! far apart they are, and whether the person says anything between them.

use holdfast_types::{Fault, Kind};
use jiff::{SignedDuration, Timestamp};

/// What is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most reminders that a person has at once.
    pub most_active: usize,
    /// The least time from a reminder that fired to the one that it sets.
    pub least_between: SignedDuration,
    /// The most reminders that each set the next, without a word from the person between them.
    pub most_renewals: u32,
    /// The longest content, in characters.
    pub most_content: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most_active: 50,
            least_between: SignedDuration::from_mins(5),
            most_renewals: 60,
            most_content: 2_000,
        }
    }
}

/// That a reminder is set by a turn that a reminder began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// How many reminders led to it, one after the other; the first is 0.
    pub chain: u32,
    /// When the one before it fired.
    pub fired: Timestamp,
    /// When the person last said something, if ever.
    pub heard: Option<Timestamp>,
}

/// A reminder that is to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// What it is about.
    pub content: &'a str,
    /// When it is for.
    pub at: Timestamp,
    /// How many the person has already, without the one that this replaces.
    pub active: usize,
    /// What led to it.
    pub renewal: Option<Renewal>,
}

/// Why a reminder is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is about nothing.
    #[error("a reminder needs a content: say what it is about")]
    NoContent,
    /// It says too much.
    #[error("the content is longer than {most} characters: say it in fewer")]
    TooLong {
        /// The most.
        most: usize,
    },
    /// There are too many.
    #[error("there are {most} reminders already: cancel one first")]
    TooMany {
        /// The most.
        most: usize,
    },
    /// There is no room, whoever's reminders these are.
    #[error(
        "there is no room for more jobs and reminders here: whoever runs this assistant must \
         remove some first"
    )]
    NoRoom,
    /// It comes too soon after the one that sets it.
    #[error("the next reminder must be at least {} minutes after this one", .least.as_mins())]
    TooSoon {
        /// The least.
        least: SignedDuration,
    },
    /// It has renewed itself often enough.
    #[error(
        "{most} reminders have followed each other unanswered: wait for the user to say something"
    )]
    Unanswered {
        /// The most.
        most: u32,
    },
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
    /// Whether a reminder may be set, and which of its chain it is: to be stored with it.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn check(&self, asked: Asked<'_>) -> Result<u32, Refused> {
        if asked.content.trim().is_empty() {
            return Err(Refused::NoContent);
        }
        if asked.content.chars().count() > self.most_content {
            return Err(Refused::TooLong { most: self.most_content });
        }
        if asked.active >= self.most_active {
            return Err(Refused::TooMany { most: self.most_active });
        }
        let Some(renewal) = asked.renewal else { return Ok(0) };
        if asked.at.duration_since(renewal.fired) < self.least_between {
            return Err(Refused::TooSoon { least: self.least_between });
        }
        // The person was there after the last one fired: whatever they said, they know of it.
        if renewal.heard.is_some_and(|heard| heard > renewal.fired) {
            return Ok(0);
        }
        match renewal.chain.checked_add(1).filter(|chain| *chain <= self.most_renewals) {
            Some(chain) => Ok(chain),
            None => Err(Refused::Unanswered { most: self.most_renewals }),
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
        Limits::default().check(Asked { content: "tea", at: at(minute), active, renewal })
    }

    #[test]
    fn a_person_has_no_more_than_fifty() {
        assert_eq!(asked(1, 49, None), Ok(0));
        assert_eq!(asked(1, 50, None), Err(Refused::TooMany { most: 50 }));
    }

    #[test]
    fn a_reminder_says_something_and_not_a_book() {
        let of = |content: &str| {
            Limits::default().check(Asked { content, at: at(1), active: 0, renewal: None })
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
            let renewal = Renewal { chain, fired: at(fired), heard: Some(at(0)) };
            match asked(fired + 5, 0, Some(renewal)) {
                Ok(next) => chain = next,
                Err(refused) => ended = ended.or(Some(refused)),
            }
        }

        assert_eq!((ended, chain), (Some(Refused::Unanswered { most: 60 }), 60));
    }

    #[test]
    fn a_word_from_the_person_begins_the_chain_anew() {
        let renewal = |heard| Some(Renewal { chain: 60, fired: at(10), heard });

        assert_eq!(asked(20, 0, renewal(Some(at(11)))), Ok(0));
        assert_eq!(asked(20, 0, renewal(Some(at(9)))), Err(Refused::Unanswered { most: 60 }));
        assert_eq!(asked(20, 0, renewal(None)), Err(Refused::Unanswered { most: 60 }));
    }

    #[test]
    fn one_reminder_does_not_set_the_next_for_the_next_minute() {
        let renewal = Some(Renewal { chain: 0, fired: at(10), heard: None });

        let refused = asked(14, 0, renewal).unwrap_err();

        assert_eq!(
            refused.to_string(),
            "the next reminder must be at least 5 minutes after this one"
        );
        assert_eq!(asked(15, 0, renewal), Ok(1));
    }
}
