//! Tests of times in natural language.

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
        ("凌晨2点", "2026-11-23 02:00:00"),
        ("晚上12点", "2026-11-23 00:00:00"),
        ("下午三點半", "2026-11-22 15:30:00"),
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
        ("in 3 days at 9:00", "2026-11-25 09:00:00"),
        ("this friday 9:00", "2026-11-27 09:00:00"),
        ("本周五9点", "past"),
        ("今晚12点", "2026-11-23 00:00:00"),
        ("tonight at midnight", "2026-11-23 00:00:00"),
        ("tomorrow at 9 in the morning", "2026-11-23 09:00:00"),
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
        "晚上1点",
        "morning",
        "in 3 hours at 9:00",
        "周五晚上12点",
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
    let told =
        |text: &str, now: &str| parse_time(text, now.parse().unwrap(), &zone).unwrap().to_string();

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
