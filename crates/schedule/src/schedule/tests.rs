//! Tests of schedules: slots and serialization.

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn read(json: &str) -> Result<Schedule, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn a_schedule_is_written_as_the_seed_writes_it() {
    for json in [
        r#"{"kind":"at","at_ms":1767225600000}"#,
        r#"{"kind":"every","every_ms":60000,"anchor_ms":5}"#,
        r#"{"kind":"every","every_ms":60000}"#,
        r#"{"kind":"cron","expr":"0 9 * * 1-5","tz":"Europe/Oslo"}"#,
    ] {
        assert_eq!(serde_json::to_string(&read(json).unwrap()).unwrap(), json);
    }
    let told = read(r#"{"kind":"cron","expr":"@daily"}"#).unwrap();
    assert_eq!(told, Schedule::cron("@daily", Zone::utc()).unwrap());
    assert_eq!(read(r#"{"kind":"every","everyMs":5}"#).unwrap().to_string(), "every 5ms");
}

#[test]
fn what_belongs_to_no_schedule_or_to_another_kind_is_refused() {
    for (json, why) in [
        (r#"{"kind":"at","at_ms":1,"tz":"UTC"}"#, "unknown field `tz`"),
        (r#"{"kind":"every","every_ms":1,"expr":"* * * * *"}"#, "unknown field `expr`"),
        (r#"{"kind":"cron","expr":"* * * * *","every_ms":1}"#, "unknown field `every_ms`"),
        (r#"{"kind":"at"}"#, "missing field `at_ms`"),
        (r#"{"kind":"sometimes"}"#, "unknown variant `sometimes`"),
        (r#"{"kind":"every","every_ms":0}"#, "every_ms is 0: it must be a number"),
        (r#"{"kind":"every","every_ms":-5}"#, "every_ms is -5: it must be a number"),
        (r#"{"kind":"at","at_ms":-1}"#, "at_ms is -1: it must be milliseconds since 1970"),
        (r#"{"kind":"cron","expr":"x"}"#, "`x` is not a cron expression"),
        (r#"{"kind":"cron","expr":"* * * * *","tz":"Oslo"}"#, "`Oslo` is not a time zone"),
    ] {
        let error = read(json).unwrap_err();
        assert!(error.contains(why), "{json}: {error}");
    }
}

#[test]
fn an_interval_is_counted_from_its_anchor_and_does_not_drift() {
    let every =
        Schedule::every(600_000, Some(at("2026-01-01T00:03:00Z").as_millisecond())).unwrap();

    for (now, next) in [
        ("2025-12-31T00:00:00Z", "2026-01-01T00:03:00Z"),
        ("2026-01-01T00:03:00Z", "2026-01-01T00:13:00Z"),
        ("2026-01-01T00:12:59.999999Z", "2026-01-01T00:13:00Z"),
        ("2026-01-01T00:13:07Z", "2026-01-01T00:23:00Z"),
    ] {
        assert_eq!(every.next_after(at(now)).unwrap(), at(next), "after {now}");
    }
}

#[test]
fn a_job_without_an_anchor_first_runs_one_interval_after_it_was_added() {
    let added = at("2026-01-01T00:03:21.5Z");

    let usual = Schedule::usual().anchored(added);

    assert_eq!(usual.next_after(added).unwrap(), at("2026-01-01T01:03:21.5Z"));
    assert_eq!(usual.clone().anchored(at("2026-02-01T00:00:00Z")), usual);
}

#[test]
fn a_moment_has_one_slot_and_one_long_past_is_refused() {
    let once = Schedule::at(at("2026-01-01T00:00:00Z").as_millisecond()).unwrap();
    let late = SignedDuration::from_mins(10);

    assert!(once.is_once());
    assert_eq!(once.next_after(at("2025-12-31T23:59:59Z")), Some(at("2026-01-01T00:00:00Z")));
    assert_eq!(once.next_after(at("2026-01-01T00:00:00Z")), None);
    assert!(once.check(at("2026-01-01T00:09:00Z"), SignedDuration::ZERO, late).is_ok());
    let error = once.check(at("2026-01-01T00:11:00Z"), SignedDuration::ZERO, late).unwrap_err();
    assert!(error.to_string().contains("choose a time to come"), "{error}");
}

#[test]
fn slots_closer_than_the_floor_are_refused() {
    let (now, late) = (at("2026-01-01T00:00:00Z"), SignedDuration::ZERO);
    let floor = SignedDuration::from_secs(60);

    for (json, is_fine) in [
        (r#"{"kind":"every","every_ms":59999}"#, false),
        (r#"{"kind":"every","every_ms":60000}"#, true),
        (r#"{"kind":"cron","expr":"*/30 * * * * *"}"#, false),
        (r#"{"kind":"cron","expr":"* * * * *"}"#, true),
        (r#"{"kind":"cron","expr":"0 0 9 1 1 *"}"#, true),
        (r#"{"kind":"cron","expr":"0,59 0 9 1 1 *"}"#, false),
    ] {
        assert_eq!(read(json).unwrap().check(now, floor, late).is_ok(), is_fine, "{json}");
    }
}

proptest! {
    #[test]
    fn an_interval_is_the_formula_of_the_decision(
        every in 1_i64..1_000_000_000, anchor in 0_i64..2_000_000_000_000, ahead in 0_i64..1_000_000_000_000,
    ) {
        let schedule = Schedule::every(every, Some(anchor)).unwrap();
        let now = anchor + ahead;

        let next = schedule.next_after(Timestamp::from_millisecond(now).unwrap()).unwrap();

        prop_assert_eq!(next.as_millisecond(), anchor + ((now - anchor).div_euclid(every) + 1) * every);
    }

    #[test]
    fn the_last_slot_within_a_stretch_is_the_last_that_one_finds_by_walking(
        from in 1_700_000_000_000_i64..1_900_000_000_000, length in 1_i64..200_000_000,
        which in 0_usize..4,
    ) {
        let schedules = [
            Schedule::every(7_000_003, Some(1_600_000_000_123)).unwrap(),
            Schedule::cron("17 */5 * * *", "Europe/Oslo".parse().unwrap()).unwrap(),
            Schedule::cron("0 3 * * 1", Zone::utc()).unwrap(),
            Schedule::at(1_800_000_000_000).unwrap(),
        ];
        let schedule = &schedules[which];
        let (after, until) = (
            Timestamp::from_millisecond(from).unwrap(),
            Timestamp::from_millisecond(from + length).unwrap(),
        );

        let mut walked = None;
        let mut now = after;
        while let Some(slot) = schedule.next_after(now).filter(|slot| *slot <= until) {
            (walked, now) = (Some(slot), slot);
        }

        prop_assert_eq!(schedule.last_within(after, until), walked);
    }
}
