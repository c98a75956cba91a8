//! The moment that a person means (spec REM-002), on the clocks of their zone.
//!
//! | written | means |
//! |---|---|
//! | `09:30`, `9:30 pm`, `下午3点半` | today, or tomorrow if that is over |
//! | `2026-12-24 18:00`, `12月24日18点` | that day; without a year, the next such day |
//! | `2026-12-24T17:00:00Z` | that moment, wherever the person is |
//! | `tomorrow 9:00`, `friday at 5pm`, `后天早上8点`, `下周一9点` | that day |
//! | `in 20 minutes`, `1h 30m`, `20分钟后`, `一个半小时后` | so much later |

use holdfast_types::{Fault, Kind};
use jiff::{
    Timestamp, ToSpan as _,
    civil::{Date, Time, Weekday},
};

use super::{
    day::Day,
    read::{Read, read},
};
use crate::{error::shown, zone::Zone};

/// How far ahead a reminder may be, in days: ten years.
const FARTHEST_DAYS: i64 = 3_660;

/// Why a time cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// It cannot be read.
    #[error("`{0}` is not a time")]
    Unreadable(String),
    /// It names a day and no time of it.
    #[error("`{0}` names no time of the day")]
    NoTime(String),
    /// It is over.
    #[error("{at} is in the past (it is {now})")]
    Past {
        /// What was asked for.
        at: Timestamp,
        /// The moment of asking.
        now: Timestamp,
    },
    /// It is more than ten years ahead.
    #[error("`{0}` is more than ten years ahead")]
    TooFar(String),
}

impl Fault for TimeError {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// The moment that a text means, which is after `now`.
///
/// A time that the zone's clocks skip is the moment of the skip; of one that they repeat it is the
/// first that is still to come.
///
/// # Errors
///
/// If the text is no time, or one that is over.
pub fn parse_time(text: &str, now: Timestamp, zone: &Zone) -> Result<Timestamp, TimeError> {
    let unreadable = || TimeError::Unreadable(shown(text));
    let too_far = || TimeError::TooFar(shown(text));
    let today = zone.clock(now).date();
    let at = match read(text).ok_or_else(unreadable)? {
        Read::Moment(at) => at,
        Read::Later { days, seconds } => {
            if days > FARTHEST_DAYS || seconds > FARTHEST_DAYS * 86_400 {
                return Err(too_far());
            }
            // A day later is the same time of another day, whatever the clocks do between.
            let clock = zone.clock(now).checked_add(days.days()).map_err(|_| too_far())?;
            let from = if days == 0 { now } else { zone.moment(clock).ok_or_else(too_far)? };
            from.checked_add(seconds.seconds()).map_err(|_| too_far())?
        }
        Read::At { day: Some(_), time: None } => return Err(TimeError::NoTime(shown(text))),
        Read::At { day: None, time: None } => return Err(unreadable()),
        Read::At { day: None, time: Some(time) } => match upcoming(today, time, now, zone) {
            Some(at) => at,
            None => {
                let tomorrow = today.checked_add(1.day()).map_err(|_| too_far())?;
                upcoming(tomorrow, time, now, zone).ok_or_else(too_far)?
            }
        },
        Read::At { day: Some(day), time: Some(time) } => {
            on_day(day, today, time, now, zone).ok_or_else(unreadable)?
        }
    };
    if at <= now {
        return Err(TimeError::Past { at, now });
    }
    let days = at.duration_since(now).as_hours() / 24;
    if days > FARTHEST_DAYS { Err(too_far()) } else { Ok(at) }
}

/// The first moment after `now` at which a clock shows this on that day.
fn upcoming(day: Date, time: Time, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
    let (first, second) = zone.moments(day.to_datetime(time))?;
    [first, second].into_iter().find(|at| *at > now)
}

/// The moment on a day that was named; one that is over if there is none to come.
fn on_day(day: Day, today: Date, time: Time, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
    let at =
        |day: Date| upcoming(day, time, now, zone).or_else(|| zone.moment(day.to_datetime(time)));
    let is_to_come = |at: &Timestamp| *at > now;
    match day {
        Day::Ahead(days) => at(today.checked_add(days.days()).ok()?),
        Day::Of(year, month, day) => at(Date::new(year, month, day).ok()?),
        // 29 February may be eight years off.
        Day::OfAnyYear(month, day) => (0..=8)
            .filter_map(|years| Date::new(today.year() + years, month, day).ok())
            .filter_map(at)
            .find(is_to_come),
        Day::Weekday { day, weeks: None } => {
            let ahead = i64::from(today.weekday().until(day));
            let this = at(today.checked_add(ahead.days()).ok()?)?;
            if is_to_come(&this) {
                Some(this)
            } else {
                at(today.checked_add((ahead + 7).days()).ok()?)
            }
        }
        Day::Weekday { day, weeks: Some(weeks) } => {
            // Weeks begin on Mondays.
            let into = i64::from(Weekday::Monday.until(today.weekday()));
            let ahead = i64::from(Weekday::Monday.until(day)) - into + 7 * weeks;
            at(today.checked_add(ahead.days()).ok()?)
        }
    }
}

#[cfg(test)]
mod tests;
