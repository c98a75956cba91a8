//! Parser for the moment of a reminder (spec REM-002), in the user's time zone.
//!
//! | written | means |
//! |---|---|
//! | `09:30`, `9:30 pm`, `下午3点半` | today, or tomorrow if that time has passed |
//! | `2026-12-24 18:00`, `12月24日18点` | that day; without a year, the next such day |
//! | `2026-12-24T17:00:00Z` | that moment, in any zone |
//! | `tomorrow 9:00`, `friday at 5pm`, `后天早上8点`, `下周一9点` | that day |
//! | `in 20 minutes`, `1h 30m`, `20分钟后`, `一个半小时后` | that much later |

use holdfast_types::{Fault, Kind};
use jiff::{
    Timestamp, ToSpan as _,
    civil::{Date, Time, Weekday},
};

use super::{
    day::Day,
    read::{ParsedTime, read},
};
use crate::{error::shown, zone::Zone};

/// Maximum days ahead: ten years.
const MAX_DAYS_AHEAD: i64 = 3_660;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("`{0}` is not a time")]
    Unreadable(String),
    /// The text names a day but no time of day.
    #[error("`{0}` names no time of the day")]
    NoTime(String),
    #[error("{at} is in the past (it is {now})")]
    Past { at: Timestamp, now: Timestamp },
    #[error("`{0}` is more than ten years ahead")]
    TooFar(String),
}

impl Fault for TimeError {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// Returns the moment that a text means; it is always after `now`.
///
/// A local time that a clock change skips is the moment of the change; of one that is repeated, the
/// first that is still to come is used.
///
/// # Errors
///
/// One of [`TimeError`] if the text is not a time, or a time in the past or too far ahead.
pub fn parse_time(text: &str, now: Timestamp, zone: &Zone) -> Result<Timestamp, TimeError> {
    let unreadable = || TimeError::Unreadable(shown(text));
    let too_far = || TimeError::TooFar(shown(text));
    let today = zone.clock(now).date();
    let at = match read(text).ok_or_else(unreadable)? {
        ParsedTime::Moment(at) => at,
        ParsedTime::Later { days, seconds } => {
            if days > MAX_DAYS_AHEAD || seconds > MAX_DAYS_AHEAD * 86_400 {
                return Err(too_far());
            }
            // Adding days keeps the local time, even across clock changes.
            let clock = zone.clock(now).checked_add(days.days()).map_err(|_| too_far())?;
            let from = if days == 0 { now } else { zone.moment(clock).ok_or_else(too_far)? };
            from.checked_add(seconds.seconds()).map_err(|_| too_far())?
        }
        ParsedTime::At { day: Some(_), time: None } => return Err(TimeError::NoTime(shown(text))),
        ParsedTime::At { day: None, time: None } => return Err(unreadable()),
        ParsedTime::At { day: None, time: Some(time) } => match upcoming(today, time, now, zone) {
            Some(at) => at,
            None => {
                let tomorrow = today.checked_add(1.day()).map_err(|_| too_far())?;
                upcoming(tomorrow, time, now, zone).ok_or_else(too_far)?
            }
        },
        ParsedTime::At { day: Some(day), time: Some(time) } => {
            on_day(day, today, time, now, zone).ok_or_else(unreadable)?
        }
    };
    if at <= now {
        return Err(TimeError::Past { at, now });
    }
    let days = at.duration_since(now).as_hours() / 24;
    if days > MAX_DAYS_AHEAD { Err(too_far()) } else { Ok(at) }
}

/// Returns the first moment after `now` with this local time.
fn upcoming(day: Date, time: Time, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
    let (first, second) = zone.moments(day.to_datetime(time))?;
    [first, second].into_iter().find(|at| *at > now)
}

/// Returns the moment on a named day; one in the past if the day has no later one.
fn on_day(day: Day, today: Date, time: Time, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
    let at =
        |day: Date| upcoming(day, time, now, zone).or_else(|| zone.moment(day.to_datetime(time)));
    let is_to_come = |at: &Timestamp| *at > now;
    match day {
        Day::Ahead(days) => at(today.checked_add(days.days()).ok()?),
        Day::Date(year, month, day) => at(Date::new(year, month, day).ok()?),
        // The next 29 February may be eight years away.
        Day::DateInAnyYear(month, day) => (0..=8)
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
            let into = i64::from(Weekday::Monday.until(today.weekday()));
            let ahead = i64::from(Weekday::Monday.until(day)) - into + 7 * weeks;
            at(today.checked_add(ahead.days()).ok()?)
        }
    }
}

#[cfg(test)]
mod tests;
