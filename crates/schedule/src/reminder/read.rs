//! What a text says of a time, before anybody looks at a clock.

use jiff::{Timestamp, civil::Time};

use super::{
    clock::{Clock, Part, clock, part},
    cursor::Cursor,
    day::{Day, a_day},
    later::later,
    words::plain,
};

/// The longest text that is read, in bytes.
const LONGEST: usize = 200;

/// What a text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// A moment, wherever the person is.
    Moment(Timestamp),
    /// So much later.
    Later {
        /// So many days of the calendar.
        days: i64,
        /// So many seconds.
        seconds: i64,
    },
    /// A time of a day.
    At {
        /// The day, if one is named.
        day: Option<Day>,
        /// The time, if one is named.
        time: Option<Time>,
    },
}

/// Reads all of a text, or nothing.
pub(super) fn read(text: &str) -> Option<Read> {
    if text.len() > LONGEST {
        return None;
    }
    if let Ok(moment) = text.trim().parse() {
        return Some(Read::Moment(moment));
    }
    let plain: String = text.chars().map(plain).flat_map(char::to_lowercase).collect();
    let plain = plain.trim();
    later(Cursor(plain)).or_else(|| at(Cursor(plain)))
}

/// What was found of a day and a time.
#[derive(Default)]
struct Found {
    day: Option<Day>,
    part: Option<Part>,
    time: Option<Clock>,
}

/// A day, a part of it and a time, in any order, each once.
fn at(mut text: Cursor<'_>) -> Option<Read> {
    let mut found = Found::default();
    loop {
        text.gap();
        if text.is_done() {
            break;
        }
        let is_at = text.eat_word("at");
        text.gap();
        let mut ahead = text;
        if !is_at && day(&mut ahead, &mut found)? {
            text = ahead;
            continue;
        }
        let mut ahead = text;
        if let Some(part) = part(&mut ahead) {
            if found.part.replace(part).is_some() {
                return None;
            }
        } else {
            ahead = text;
            let may_be_bare = is_at || found.part.is_some();
            if found.time.replace(clock(&mut ahead, may_be_bare)?).is_some() {
                return None;
            }
        }
        text = ahead;
    }
    finish(found)
}

/// Reads a day, if the text goes on with one; `None` if that is one too many.
fn day(text: &mut Cursor<'_>, found: &mut Found) -> Option<bool> {
    let Some((day, part)) = a_day(text) else { return Some(false) };
    let is_second = found.day.replace(day).is_some();
    let has_two_parts = part.is_some() && found.part.is_some();
    found.part = part.or(found.part);
    if is_second || has_two_parts { None } else { Some(true) }
}

/// Puts the parts together.
fn finish(found: Found) -> Option<Read> {
    let Some(clock) = found.time else {
        return found.day.map(|day| Read::At { day: Some(day), time: None });
    };
    let is_midnight = found.part == Some(Part::Evening)
        && matches!((clock.hour, clock.is_sure), (12, false) | (0, true));
    if is_midnight {
        // The end of the evening is the beginning of the next day.
        let day = match found.day {
            None => None,
            Some(Day::Ahead(days)) => Some(Day::Ahead(days + 1)),
            Some(Day::Of(..) | Day::OfAnyYear(..) | Day::Weekday { .. }) => return None,
        };
        return clock.time(0).map(|time| Read::At { day, time: Some(time) });
    }
    let hour = match found.part {
        _ if clock.is_sure => clock.hour,
        None => clock.hour,
        Some(part) => part.hour(clock.hour)?,
    };
    clock.time(hour).map(|time| Read::At { day: found.day, time: Some(time) })
}
