//! What can be wrong with a job, and what to write instead.

use holdfast_types::{Fault, Kind};

/// Why a schedule, a job or a setting cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not of the shape that a job has; the text says where.
    #[error("the job cannot be read: {0}")]
    Unreadable(String),
    /// The expression cannot be read.
    #[error(
        "`{expr}` is not a cron expression ({why}): write minute, hour, day of the month, month \
         and weekday, as `0 9 * * 1-5`"
    )]
    Cron {
        /// What was given, shortened.
        expr: String,
        /// What is wrong with it.
        why: String,
    },
    /// The expression can be read, and no day ever fits it.
    #[error("`{0}` never comes: no day is in its month and of its number; choose another day")]
    Never(String),
    /// Nobody knows the zone.
    #[error("`{0}` is not a time zone: write a name of the tz database, as `Europe/Oslo` or `UTC`")]
    Zone(String),
    /// The moment is over.
    #[error("{at} is in the past (it is {now}): choose a time to come")]
    Past {
        /// What was asked for.
        at: jiff::Timestamp,
        /// The moment of asking.
        now: jiff::Timestamp,
    },
    /// A field's value is outside what it may be.
    #[error("{field} is {given}: it must be {must}")]
    Bounds {
        /// The field, as it is written.
        field: &'static str,
        /// Its value, or how long it is.
        given: String,
        /// What it may be.
        must: &'static str,
    },
    /// The main session takes system events only (spec CRN-006).
    #[error("main session must use systemEvent payload")]
    MainTakesEvents,
    /// An isolated session takes agent turns only (spec CRN-006).
    #[error("isolated session must use agentTurn payload")]
    IsolatedTakesTurns,
    /// An interval of a heartbeat cannot be read; `300 s` are used (spec HBT-015).
    #[error("`{0}` is not an interval, so 5m is used: write a number and s, m or h, as `5m`")]
    Interval(String),
    /// A time of day cannot be read.
    #[error("`{0}` is not a time of day: write HH:MM, as `08:30`; `24:00` may be an end")]
    TimeOfDay(String),
    /// A window that is as good as none.
    #[error("active hours begin and end at {0}: leave them out if every hour is active")]
    NoWindow(String),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// The most of a bad text that an error repeats, in characters.
const SHOWN: usize = 80;

/// As much of a text as an error repeats.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

/// An error about a field.
pub(crate) fn bounds(field: &'static str, given: impl ToString, must: &'static str) -> Error {
    Error::Bounds { field, given: given.to_string(), must }
}
