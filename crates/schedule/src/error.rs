//! Errors in schedules, jobs and heartbeat settings; each message says what to write instead.

use holdfast_types::{Fault, Kind};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The JSON does not have a job's structure; the text says where.
    #[error("the job cannot be read: {0}")]
    Unreadable(String),
    #[error(
        "`{expr}` is not a cron expression ({why}): write minute, hour, day of the month, month \
         and weekday, as `0 9 * * 1-5`"
    )]
    Cron { expr: String, why: String },
    /// The expression is valid, but no day ever matches.
    #[error("`{0}` never comes: no day is in its month and of its number; choose another day")]
    Never(String),
    #[error("`{0}` is not a time zone: write a name of the tz database, as `Europe/Oslo` or `UTC`")]
    Zone(String),
    #[error("{at} is in the past (it is {now}): choose a time to come")]
    Past { at: jiff::Timestamp, now: jiff::Timestamp },
    #[error("{field} is {given}: it must be {must}")]
    Bounds {
        /// Name of the field as callers write it.
        field: &'static str,
        /// The value or its length.
        given: String,
        must: &'static str,
    },
    /// The main session accepts system events only (spec CRN-006).
    #[error("main session must use systemEvent payload")]
    MainTakesEvents,
    /// An isolated session accepts agent turns only (spec CRN-006).
    #[error("isolated session must use agentTurn payload")]
    IsolatedTakesTurns,
    /// A heartbeat's interval is invalid; `300 s` is used instead (spec HBT-015).
    #[error("`{0}` is not an interval, so 5m is used: write a number and s, m or h, as `5m`")]
    Interval(String),
    #[error("`{0}` is not a time of day: write HH:MM, as `08:30`; `24:00` may be an end")]
    TimeOfDay(String),
    /// Active hours with the same begin and end.
    #[error("active hours begin and end at {0}: leave them out if every hour is active")]
    NoWindow(String),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// Maximum characters of an invalid text that an error repeats.
const MAX_SHOWN_CHARS: usize = 80;

/// Returns the beginning of a text without control characters, for use in errors.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()
}

pub(crate) fn bounds(field: &'static str, given: impl ToString, must: &'static str) -> Error {
    Error::Bounds { field, given: given.to_string(), must }
}
