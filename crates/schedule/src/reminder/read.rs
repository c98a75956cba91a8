//! Parser for a reminder's time, independent of the current time.

use jiff::{Timestamp, civil::Time};

use super::{
    clock::{ClockTime, DayPart, parse_clock, parse_day_part},
    cursor::Cursor,
    day::{Day, parse_day},
    duration::parse_duration,
    words::plain,
};

/// Maximum length of a parsed text, in bytes.
const MAX_TEXT_BYTES: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParsedTime {
    /// Moment with a UTC offset.
    Moment(Timestamp),
    Later {
        /// Calendar days, which may be longer or shorter than 24 hours.
        days: i64,
        seconds: i64,
    },
    At {
        /// `None` if the text names no day.
        day: Option<Day>,
        /// `None` if the text names no time.
        time: Option<Time>,
    },
}

/// Parses the whole text; `None` if any part is not understood.
pub(super) fn read(text: &str) -> Option<ParsedTime> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    if let Ok(moment) = text.trim().parse() {
        return Some(ParsedTime::Moment(moment));
    }
    let plain: String = text.chars().map(plain).flat_map(char::to_lowercase).collect();
    let plain = plain.trim();
    parse_duration(Cursor(plain)).or_else(|| at(Cursor(plain)))
}

/// Parts of a day and time found so far.
#[derive(Default)]
struct ParsedParts {
    day: Option<Day>,
    part: Option<DayPart>,
    time: Option<ClockTime>,
}

/// Parses a day, a part of the day and a time, in any order, each at most once.
fn at(mut text: Cursor<'_>) -> Option<ParsedTime> {
    let mut found = ParsedParts::default();
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
        if let Some(part) = parse_day_part(&mut ahead) {
            if found.part.replace(part).is_some() {
                return None;
            }
        } else {
            ahead = text;
            let may_be_bare = is_at || found.part.is_some();
            if found.time.replace(parse_clock(&mut ahead, may_be_bare)?).is_some() {
                return None;
            }
        }
        text = ahead;
    }
    finish(found)
}

/// Parses a day if there is one at the cursor; `None` if it is the second.
fn day(text: &mut Cursor<'_>, found: &mut ParsedParts) -> Option<bool> {
    let Some((day, part)) = parse_day(text) else { return Some(false) };
    let is_second = found.day.replace(day).is_some();
    let has_two_parts = part.is_some() && found.part.is_some();
    found.part = part.or(found.part);
    if is_second || has_two_parts { None } else { Some(true) }
}

/// Combines the parts.
fn finish(found: ParsedParts) -> Option<ParsedTime> {
    let Some(clock) = found.time else {
        return found.day.map(|day| ParsedTime::At { day: Some(day), time: None });
    };
    let is_midnight = found.part == Some(DayPart::Evening)
        && matches!((clock.hour, clock.is_sure), (12, false) | (0, true));
    if is_midnight {
        // Midnight of an evening is the beginning of the next day.
        let day = match found.day {
            None => None,
            Some(Day::Ahead(days)) => Some(Day::Ahead(days + 1)),
            Some(Day::Date(..) | Day::DateInAnyYear(..) | Day::Weekday { .. }) => return None,
        };
        return clock.time(0).map(|time| ParsedTime::At { day, time: Some(time) });
    }
    let hour = match found.part {
        _ if clock.is_sure => clock.hour,
        None => clock.hour,
        Some(part) => part.hour(clock.hour)?,
    };
    clock.time(hour).map(|time| ParsedTime::At { day: found.day, time: Some(time) })
}
