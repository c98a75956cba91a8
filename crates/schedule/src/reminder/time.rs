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

use super::read::{Day, Read, read};
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sunday, 22 November 2026, 14:20:30 in Shanghai.
    const NOW: &str = "2026-11-22T06:20:30Z";

    fn told(text: &str) -> String {
        let zone: Zone = "Asia/Shanghai".parse().unwrap();
        match parse_time(text, NOW.parse().unwrap(), &zone) {
            Ok(at) => zone.clock(at).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            Err(TimeError::Unreadable(_)) => "?".to_owned(),
            Err(TimeError::NoTime(_)) => "no time".to_owned(),
            Err(TimeError::Past { .. }) => "past".to_owned(),
            Err(TimeError::TooFar(_)) => "too far".to_owned(),
        }
    }

    #[track_caller]
    fn all(cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            assert_eq!(told(text), *expected, "{text}");
        }
    }

    #[test]
    fn a_time_of_day_is_today_or_tomorrow_if_it_is_over() {
        all(&[
            ("14:21", "2026-11-22 14:21:00"),
            ("14:20", "2026-11-23 14:20:00"),
            ("9:05", "2026-11-23 09:05:00"),
            (" 23：30 ", "2026-11-22 23:30:00"),
            ("18:00:15", "2026-11-22 18:00:15"),
            ("at 9pm", "2026-11-22 21:00:00"),
            ("9:30 PM", "2026-11-22 21:30:00"),
            ("12am", "2026-11-23 00:00:00"),
            ("12 p.m.", "2026-11-23 12:00:00"),
            ("noon", "2026-11-23 12:00:00"),
            ("midnight", "2026-11-23 00:00:00"),
            ("下午3点半", "2026-11-22 15:30:00"),
            ("晚上八点", "2026-11-22 20:00:00"),
            ("十一点三刻", "2026-11-23 11:45:00"),
            ("20点05分", "2026-11-22 20:05:00"),
        ]);
    }

    #[test]
    fn a_date_and_a_time_are_that_day() {
        all(&[
            ("2026-11-22 14:21", "2026-11-22 14:21:00"),
            ("2026-12-24T18:00", "2026-12-24 18:00:00"),
            ("2026/12/24 18:00:01", "2026-12-24 18:00:01"),
            ("2026-12-24 at 6 pm", "2026-12-24 18:00:00"),
            ("2026-12-24T18:00:00Z", "2026-12-25 02:00:00"),
            ("2026-12-24T18:00:00+01:00", "2026-12-25 01:00:00"),
            ("2027年1月2日 9点", "2027-01-02 09:00:00"),
            ("12月24日18点30分", "2026-12-24 18:30:00"),
            ("1月2号早上9点", "2027-01-02 09:00:00"),
            ("2月29日 9:00", "2028-02-29 09:00:00"),
            ("2026-11-22 14:20", "past"),
            ("2020-01-01 00:00", "past"),
            ("2026-13-01 00:00", "?"),
            ("2026-02-30 09:00", "?"),
            ("2999-01-01 09:00", "too far"),
        ]);
    }

    #[test]
    fn a_day_may_be_named_by_its_distance_or_its_weekday() {
        all(&[
            ("tomorrow 9:00", "2026-11-23 09:00:00"),
            ("Tomorrow at 9am", "2026-11-23 09:00:00"),
            ("9am tomorrow", "2026-11-23 09:00:00"),
            ("today 18:00", "2026-11-22 18:00:00"),
            ("tonight at 8", "2026-11-22 20:00:00"),
            ("tomorrow evening at 8", "2026-11-23 20:00:00"),
            ("the day after tomorrow at noon", "2026-11-24 12:00:00"),
            ("friday at 5pm", "2026-11-27 17:00:00"),
            ("on Sunday 15:00", "2026-11-22 15:00:00"),
            ("sunday 9:00", "2026-11-29 09:00:00"),
            ("next monday 9:00", "2026-11-23 09:00:00"),
            ("next friday 9:00", "2026-11-27 09:00:00"),
            ("明天9点", "2026-11-23 09:00:00"),
            ("明天上午九点半", "2026-11-23 09:30:00"),
            ("明早8点", "2026-11-23 08:00:00"),
            ("今晚8点", "2026-11-22 20:00:00"),
            ("后天 14:30", "2026-11-24 14:30:00"),
            ("大后天中午12点", "2026-11-25 12:00:00"),
            ("周五下午5点", "2026-11-27 17:00:00"),
            ("下周一9点", "2026-11-23 09:00:00"),
            ("下星期天早上十点", "2026-11-29 10:00:00"),
            ("3天后9点", "2026-11-25 09:00:00"),
            ("today 9:00", "past"),
            ("今天上午9点", "past"),
            ("tomorrow", "no time"),
            ("明天", "no time"),
        ]);
    }

    #[test]
    fn so_much_later_is_counted_from_now() {
        all(&[
            ("in 20 minutes", "2026-11-22 14:40:30"),
            ("20 minutes", "2026-11-22 14:40:30"),
            ("in an hour", "2026-11-22 15:20:30"),
            ("in half an hour", "2026-11-22 14:50:30"),
            ("in 1 hour and 30 minutes", "2026-11-22 15:50:30"),
            ("1h 30m", "2026-11-22 15:50:30"),
            ("90s", "2026-11-22 14:22:00"),
            ("two hours from now", "2026-11-22 16:20:30"),
            ("45 minutes later", "2026-11-22 15:05:30"),
            ("in 3 days", "2026-11-25 14:20:30"),
            ("in 2 weeks", "2026-12-06 14:20:30"),
            ("20分钟后", "2026-11-22 14:40:30"),
            ("二十分钟以后", "2026-11-22 14:40:30"),
            ("半小时后", "2026-11-22 14:50:30"),
            ("一个小时之后", "2026-11-22 15:20:30"),
            ("一个半小时后", "2026-11-22 15:50:30"),
            ("两小时30分钟后", "2026-11-22 16:50:30"),
            ("1小时后", "2026-11-22 15:20:30"),
            ("30秒后", "2026-11-22 14:21:00"),
            ("3天后", "2026-11-25 14:20:30"),
            ("两周后", "2026-12-06 14:20:30"),
            ("in 20000 days", "too far"),
            ("in 0 minutes", "past"),
        ]);
    }

    #[test]
    fn what_is_no_time_is_not_guessed_at() {
        for text in [
            "",
            "soon",
            "25:00",
            "12:60",
            "9",
            "13pm",
            "0am",
            "in minutes",
            "in 5",
            "明天25点",
            "点",
            "半",
            "every day at 9",
            "9:00 10:00",
            "tomorrow friday 9:00",
            "-5 minutes",
            "九",
            "20分钟前",
            "2026-12-24T18:00:00X",
            "9:00 call",
            "in 99999999999999999999 minutes",
            &"9".repeat(200),
        ] {
            assert_eq!(told(text), "?", "{text}");
        }
    }

    #[test]
    fn a_repeated_time_is_the_first_that_is_to_come_and_a_skipped_one_the_skip() {
        let zone: Zone = "Europe/Oslo".parse().unwrap();
        let told = |text: &str, now: &str| {
            parse_time(text, now.parse().unwrap(), &zone).unwrap().to_string()
        };

        assert_eq!(told("02:30", "2026-10-25T00:10:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(told("02:30", "2026-10-25T00:40:00Z"), "2026-10-25T01:30:00Z");
        assert_eq!(told("02:30", "2026-10-25T01:40:00Z"), "2026-10-26T01:30:00Z");
        assert_eq!(told("02:30", "2026-03-29T00:10:00Z"), "2026-03-29T01:00:00Z");
        assert_eq!(told("in 1 day", "2026-03-28T12:00:00Z"), "2026-03-29T11:00:00Z");
        assert_eq!(told("in 24 hours", "2026-03-28T12:00:00Z"), "2026-03-29T12:00:00Z");
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd_and_what_is_read_is_to_come(
            text in "(in |[0-9]{1,4}|[ :/年月日点半分钟后明天下周一amp-]|tomorrow|hour|\\PC){0,12}",
            now in 1_577_836_800_i64..2_145_916_800,
        ) {
            let now = Timestamp::from_second(now).unwrap();
            if let Ok(at) = parse_time(&text, now, &"America/New_York".parse().unwrap()) {
                prop_assert!(at > now, "{text}");
            }
        }
    }
}
