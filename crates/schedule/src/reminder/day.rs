//! Parser for days: by distance, weekday or date.

use jiff::civil::Weekday;

use super::{
    clock::DayPart,
    cursor::Cursor,
    duration::{parse_count, parse_unit},
    words::{Unit, weekday, weekday_of_number},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Day {
    /// Number of days from today.
    Ahead(i64),
    Date(i16, i8, i8),
    /// Month and day without a year.
    DateInAnyYear(i8, i8),
    /// Weekday: the next one, or that of the week `weeks` weeks from this one.
    Weekday {
        day: Weekday,
        weeks: Option<i64>,
    },
}

/// Parses a day, and the part of the day that its name implies.
pub(super) fn parse_day(text: &mut Cursor<'_>) -> Option<(Day, Option<DayPart>)> {
    let _ = text.eat_word("on") || text.eat_word("the");
    text.gap();
    if text.eat_words("day after tomorrow") {
        return Some((Day::Ahead(2), None));
    }
    let chinese = [
        ("大后天", (3, None)),
        ("后天", (2, None)),
        ("明天", (1, None)),
        ("明日", (1, None)),
        ("明早", (1, Some(DayPart::Morning))),
        ("明晚", (1, Some(DayPart::Evening))),
        ("今天", (0, None)),
        ("今日", (0, None)),
        ("今早", (0, Some(DayPart::Morning))),
        ("今晚", (0, Some(DayPart::Evening))),
    ];
    if let Some((days, part)) = text.eat_any(&chinese) {
        return Some((Day::Ahead(days), part));
    }
    if let Some(day) = parse_weekday(text) {
        return Some((day, None));
    }
    let mut ahead = *text;
    match ahead.word() {
        Some(word) => {
            let day = match word {
                "today" => (Day::Ahead(0), None),
                "tonight" => (Day::Ahead(0), Some(DayPart::Evening)),
                "tomorrow" => (Day::Ahead(1), None),
                "in" => (days_later(&mut ahead)?, None),
                _ => return None,
            };
            *text = ahead;
            Some(day)
        }
        None => parse_date(text).map(|day| (day, None)),
    }
}

fn parse_weekday(text: &mut Cursor<'_>) -> Option<Day> {
    let mut ahead = *text;
    let mut weeks = None;
    if ahead.eat_word("next") {
        weeks = Some(1);
    } else if !ahead.eat_word("this") {
        weeks = ahead.eat_any(&[("下下", 2), ("下", 1), ("本", 0), ("这", 0)]);
    }
    ahead.eat("个");
    ahead.gap();
    let day = if ahead.eat("星期") || ahead.eat("礼拜") || ahead.eat("周") {
        weekday_of_number(ahead.sign()?)?
    } else {
        weekday(ahead.word()?)?
    };
    *text = ahead;
    Some(Day::Weekday { day, weeks })
}

/// Parses `3 days`, after `in`.
fn days_later(text: &mut Cursor<'_>) -> Option<Day> {
    text.gap();
    let number = parse_count(text)?;
    match parse_unit(text)? {
        Unit::Days(each) => Some(Day::Ahead(number * each)),
        Unit::Seconds(_) => None,
    }
}

/// Parses `2026-12-24`, `12月24日`, `3天后`.
fn parse_date(text: &mut Cursor<'_>) -> Option<Day> {
    let mut ahead = *text;
    let (first, digits) = ahead.number()?;
    let small = |number: (i64, usize)| i8::try_from(number.0).ok();
    let day = if digits == 4 && (ahead.0.starts_with('-') || ahead.0.starts_with('/')) {
        let between = ahead.sign()?;
        let month = small(ahead.number()?)?;
        if ahead.sign()? != between {
            return None;
        }
        let day = small(ahead.number()?)?;
        // `2026-12-24T18:00`
        if ahead.0.starts_with('t') {
            ahead.sign();
        }
        Day::Date(i16::try_from(first).ok()?, month, day)
    } else if digits == 4 && ahead.eat("年") {
        ahead.gap();
        let (month, day) = month_and_day(ahead.number()?.0, &mut ahead)?;
        Day::Date(i16::try_from(first).ok()?, month, day)
    } else if ahead.0.starts_with('月') {
        let (month, day) = month_and_day(first, &mut ahead)?;
        Day::DateInAnyYear(month, day)
    } else {
        let each = ahead.eat_any(&[("天", 1), ("周", 7), ("个星期", 7), ("星期", 7)])?;
        if !(ahead.eat("以后") || ahead.eat("之后") || ahead.eat("后")) {
            return None;
        }
        Day::Ahead(first * each)
    };
    *text = ahead;
    Some(day)
}

fn month_and_day(month: i64, text: &mut Cursor<'_>) -> Option<(i8, i8)> {
    if !text.eat("月") {
        return None;
    }
    let day = text.number()?.0;
    if !text.eat("日") && !text.eat("号") {
        return None;
    }
    Some((i8::try_from(month).ok()?, i8::try_from(day).ok()?))
}
