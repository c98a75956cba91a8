//! Parser for times of day, with their part of the day.

use jiff::civil::Time;

use super::cursor::Cursor;

/// Part of the day; decides between the 12-hour readings of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DayPart {
    Night,
    Morning,
    Noon,
    Afternoon,
    Evening,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockTime {
    pub(super) hour: i64,
    minute: i64,
    second: i64,
    /// Whether the text itself says which half of the day is meant.
    pub(super) is_sure: bool,
}

impl ClockTime {
    /// Returns the time of day with the given hour.
    pub(super) fn time(self, hour: i64) -> Option<Time> {
        let small = |number: i64| i8::try_from(number).ok();
        Time::new(small(hour)?, small(self.minute)?, small(self.second)?, 0).ok()
    }
}

impl DayPart {
    /// Returns the 24-hour value of a number in this part of the day; `None` if it is ambiguous or
    /// wrong.
    pub(super) const fn hour(self, number: i64) -> Option<i64> {
        match (self, number) {
            (Self::Night, 12) => Some(0),
            (Self::Night, 0..=6) | (Self::Morning, 0..=11) | (Self::Noon, 11..=13) => Some(number),
            (Self::Noon, 1..=2) => Some(number + 12),
            (Self::Afternoon, 1..=11) | (Self::Evening, 5..=11) => Some(number + 12),
            (Self::Afternoon, 12..=18) | (Self::Evening, 17..=23) => Some(number),
            _ => None,
        }
    }
}

pub(super) fn parse_day_part(text: &mut Cursor<'_>) -> Option<DayPart> {
    let chinese = [
        ("凌晨", DayPart::Night),
        ("清晨", DayPart::Morning),
        ("早上", DayPart::Morning),
        ("早晨", DayPart::Morning),
        ("上午", DayPart::Morning),
        ("中午", DayPart::Noon),
        ("下午", DayPart::Afternoon),
        ("傍晚", DayPart::Evening),
        ("晚上", DayPart::Evening),
    ];
    if let Some(part) = text.eat_any(&chinese) {
        return Some(part);
    }
    let _ = text.eat_words("in the");
    text.gap();
    match text.word()? {
        "morning" => Some(DayPart::Morning),
        "afternoon" => Some(DayPart::Afternoon),
        "evening" => Some(DayPart::Evening),
        _ => None,
    }
}

/// Parses a time. A number alone is accepted only if `may_be_bare`.
pub(super) fn parse_clock(text: &mut Cursor<'_>, may_be_bare: bool) -> Option<ClockTime> {
    let sure = |hour| ClockTime { hour, minute: 0, second: 0, is_sure: true };
    if text.eat_word("noon") {
        return Some(sure(12));
    }
    if text.eat_word("midnight") {
        return Some(sure(0));
    }
    let mut clock = ClockTime { is_sure: false, ..sure(text.number()?.0) };
    let mut is_bare = true;
    if text.eat(":") {
        is_bare = false;
        clock.minute = two_digits(text)?;
        if text.eat(":") {
            clock.second = two_digits(text)?;
        }
    } else if text.eat("点") || text.eat("时") {
        clock.minute = after_the_hour(text)?;
        return Some(clock);
    }
    let mut ahead = *text;
    ahead.gap();
    let halves = [("a.m.", 0), ("am", 0), ("p.m.", 12), ("pm", 12)];
    let half = ahead
        .eat_any(&halves)
        .filter(|_| !ahead.0.starts_with(|c: char| c.is_ascii_alphanumeric()));
    match half {
        Some(half) if (1..=12).contains(&clock.hour) => {
            *text = ahead;
            Some(ClockTime { hour: clock.hour % 12 + half, is_sure: true, ..clock })
        }
        Some(_) => None,
        None if is_bare && !may_be_bare => None,
        None => Some(clock),
    }
}

fn two_digits(text: &mut Cursor<'_>) -> Option<i64> {
    text.number().filter(|(_, digits)| *digits == 2).map(|(number, _)| number)
}

/// Parses what follows 点: 半, 一刻, 三刻, 30, 30分, 整, 钟, or nothing.
fn after_the_hour(text: &mut Cursor<'_>) -> Option<i64> {
    if text.eat("半") {
        return Some(30);
    }
    if text.eat("整") || text.eat("钟") {
        return Some(0);
    }
    let mut ahead = *text;
    let Some((number, _)) = ahead.number() else { return Some(0) };
    *text = ahead;
    if text.eat("刻") {
        return matches!(number, 1 | 3).then_some(number * 15);
    }
    text.eat("分");
    Some(number)
}
