//! What a text says of a time, before anybody looks at a clock.

use jiff::{
    Timestamp,
    civil::{Time, Weekday},
};

use super::{
    cursor::Cursor,
    words::{Unit, number, plain, unit, weekday, weekday_of_number},
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

/// A day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Day {
    /// So many days from today.
    Ahead(i64),
    /// A date.
    Of(i16, i8, i8),
    /// A month and a day.
    OfAnyYear(i8, i8),
    /// A weekday: the next there is, or that of a week so many weeks from this.
    Weekday {
        /// Which.
        day: Weekday,
        /// Of which week.
        weeks: Option<i64>,
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

/// `in 20 minutes`, `一个半小时后`.
fn later(mut text: Cursor<'_>) -> Option<Read> {
    let (mut days, mut seconds, mut some) = (0, 0, false);
    text.eat_word("in");
    loop {
        text.gap();
        if some {
            text.eat_word("and");
            text.gap();
        }
        let mut ahead = text;
        let Some((halves, unit)) = amount(&mut ahead, some) else { break };
        text = ahead;
        match unit {
            Unit::Seconds(each) => seconds += halves * each / 2,
            Unit::Days(each) if halves % 2 == 0 => days += halves / 2 * each,
            Unit::Days(each) => seconds += halves * each * 43_200,
        }
        some = true;
    }
    text.gap();
    if !text.eat_words("from now") && !text.eat_word("later") {
        let _ = text.eat("以后") || text.eat("之后") || text.eat("后");
    }
    (some && text.is_done()).then_some(Read::Later { days, seconds })
}

/// A number of halves and what they are halves of.
fn amount(text: &mut Cursor<'_>, is_second: bool) -> Option<(i64, Unit)> {
    text.gap();
    if text.eat_word("half") {
        text.gap();
        let _ = text.eat_word("an") || text.eat_word("a");
        return a_unit(text).map(|unit| (1, unit));
    }
    if text.eat("半") {
        text.eat("个");
        return a_unit(text).map(|unit| (1, unit));
    }
    let whole = count(text)?;
    text.eat("个");
    let half = i64::from(text.eat("半"));
    let unit = a_unit(text)?;
    let mut ahead = *text;
    let is_half = !is_second && ahead.eat_words("and a half");
    if is_half {
        *text = ahead;
    }
    Some((whole * 2 + half + i64::from(is_half), unit))
}

fn count(text: &mut Cursor<'_>) -> Option<i64> {
    if let Some((number, _)) = text.number() {
        return Some(number);
    }
    number(text.word()?)
}

fn a_unit(text: &mut Cursor<'_>) -> Option<Unit> {
    text.gap();
    let chinese = [
        ("分钟", Unit::Seconds(60)),
        ("分", Unit::Seconds(60)),
        ("刻钟", Unit::Seconds(900)),
        ("小时", Unit::Seconds(3_600)),
        ("钟头", Unit::Seconds(3_600)),
        ("秒钟", Unit::Seconds(1)),
        ("秒", Unit::Seconds(1)),
        ("天", Unit::Days(1)),
        ("日", Unit::Days(1)),
        ("周", Unit::Days(7)),
        ("星期", Unit::Days(7)),
        ("礼拜", Unit::Days(7)),
    ];
    text.eat_any(&chinese).or_else(|| unit(text.word()?))
}

/// A part of a day, which says which half of it a number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Night,
    Morning,
    Noon,
    Afternoon,
    Evening,
}

/// What was found of a day and a time.
#[derive(Default)]
struct Found {
    day: Option<Day>,
    part: Option<Part>,
    time: Option<Clock>,
}

/// A time as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clock {
    hour: i64,
    minute: i64,
    second: i64,
    /// Whether it says by itself which half of the day it means.
    is_sure: bool,
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

fn a_day(text: &mut Cursor<'_>) -> Option<(Day, Option<Part>)> {
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
        ("明早", (1, Some(Part::Morning))),
        ("明晚", (1, Some(Part::Evening))),
        ("今天", (0, None)),
        ("今日", (0, None)),
        ("今早", (0, Some(Part::Morning))),
        ("今晚", (0, Some(Part::Evening))),
    ];
    if let Some((days, part)) = text.eat_any(&chinese) {
        return Some((Day::Ahead(days), part));
    }
    if let Some(day) = a_weekday(text) {
        return Some((day, None));
    }
    let mut ahead = *text;
    match ahead.word() {
        Some(word) => {
            let day = match word {
                "today" => (Day::Ahead(0), None),
                "tonight" => (Day::Ahead(0), Some(Part::Evening)),
                "tomorrow" => (Day::Ahead(1), None),
                "in" => (days_later(&mut ahead)?, None),
                _ => return None,
            };
            *text = ahead;
            Some(day)
        }
        None => a_date(text).map(|day| (day, None)),
    }
}

fn a_weekday(text: &mut Cursor<'_>) -> Option<Day> {
    let mut ahead = *text;
    let mut weeks = None;
    if ahead.eat_word("next") {
        weeks = Some(1);
    } else if ahead.eat_word("this") {
        weeks = Some(0);
    } else {
        weeks = ahead.eat_any(&[("下下", 2), ("下", 1), ("本", 0), ("这", 0)]).or(weeks);
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

/// `3 days`, after `in`.
fn days_later(text: &mut Cursor<'_>) -> Option<Day> {
    text.gap();
    let number = count(text)?;
    match a_unit(text)? {
        Unit::Days(each) => Some(Day::Ahead(number * each)),
        Unit::Seconds(_) => None,
    }
}

/// `2026-12-24`, `12月24日`, `3天后`.
fn a_date(text: &mut Cursor<'_>) -> Option<Day> {
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
        Day::Of(i16::try_from(first).ok()?, month, day)
    } else if digits == 4 && ahead.eat("年") {
        ahead.gap();
        let (month, day) = month_and_day(ahead.number()?.0, &mut ahead)?;
        Day::Of(i16::try_from(first).ok()?, month, day)
    } else if ahead.0.starts_with('月') {
        let (month, day) = month_and_day(first, &mut ahead)?;
        Day::OfAnyYear(month, day)
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

fn part(text: &mut Cursor<'_>) -> Option<Part> {
    let chinese = [
        ("凌晨", Part::Night),
        ("清晨", Part::Morning),
        ("早上", Part::Morning),
        ("早晨", Part::Morning),
        ("上午", Part::Morning),
        ("中午", Part::Noon),
        ("下午", Part::Afternoon),
        ("傍晚", Part::Evening),
        ("晚上", Part::Evening),
    ];
    if let Some(part) = text.eat_any(&chinese) {
        return Some(part);
    }
    let _ = text.eat_words("in the");
    text.gap();
    match text.word()? {
        "morning" => Some(Part::Morning),
        "afternoon" => Some(Part::Afternoon),
        "evening" => Some(Part::Evening),
        _ => None,
    }
}

fn clock(text: &mut Cursor<'_>, may_be_bare: bool) -> Option<Clock> {
    let sure = |hour| Clock { hour, minute: 0, second: 0, is_sure: true };
    if text.eat_word("noon") {
        return Some(sure(12));
    }
    if text.eat_word("midnight") {
        return Some(sure(0));
    }
    let mut clock = Clock { is_sure: false, ..sure(text.number()?.0) };
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
            Some(Clock { hour: clock.hour % 12 + half, is_sure: true, ..clock })
        }
        Some(_) => None,
        None if is_bare && !may_be_bare => None,
        None => Some(clock),
    }
}

fn two_digits(text: &mut Cursor<'_>) -> Option<i64> {
    text.number().filter(|(_, digits)| *digits == 2).map(|(number, _)| number)
}

/// What follows 点: 半, 一刻, 三刻, 30, 30分, 整, 钟, or nothing.
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
        return time(0, clock).map(|time| Read::At { day, time: Some(time) });
    }
    let hour = match found.part {
        _ if clock.is_sure => clock.hour,
        None => clock.hour,
        Some(part) => part.hour(clock.hour)?,
    };
    time(hour, clock).map(|time| Read::At { day: found.day, time: Some(time) })
}

fn time(hour: i64, clock: Clock) -> Option<Time> {
    let small = |number: i64| i8::try_from(number).ok();
    Time::new(small(hour)?, small(clock.minute)?, small(clock.second)?, 0).ok()
}

impl Part {
    /// The hour that a number means in this part of the day; none where nobody could be sure.
    const fn hour(self, number: i64) -> Option<i64> {
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
