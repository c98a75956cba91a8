//! Comparison of cron slots with an oracle that steps through every minute, in every zone of the tz
//! database, around the clock changes from 2020 to 2037.
//!
//! The oracle does not use `croner` or the zone's resolution of local times: it reads the zone's
//! offset minute by minute and remembers the latest local time shown. `HOLDFAST_TEST_ALL_SLOTS=1`
//! checks all changes with all expressions instead of a sample.

use crate::{schedule::Schedule, zone::Zone};
use jiff::{
    Timestamp,
    civil::{Date, date},
};

const EXPRESSIONS: &[&str] = &[
    "30 2 * * *",
    "0 0 * * *",
    "*/20 0-3 * * *",
    "*/17 * * * *",
    "0 2,14 * * *",
    "15 */2 * * *",
    "59 23 * * *",
    "0 9 * * 1-5",
    "45 1 1-15 * 0",
    "* 1 * * *",
    "1 0-23 * * *",
    "30 23 * * 6",
    "5 3 * 3,10 *",
    "* * * * *",
];

/// One field: matching numbers, and whether it is a bare star.
struct Field {
    fits: [bool; 60],
    is_star: bool,
}

impl Field {
    fn read(text: &str, least: usize, most: usize) -> Self {
        let mut fits = [false; 60];
        for part in text.split(',') {
            let (range, step) = part.split_once('/').unwrap_or((part, "1"));
            let (from, to) = match range.split_once('-') {
                Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
                None if range == "*" => (least, most),
                None => (range.parse().unwrap(), range.parse().unwrap()),
            };
            for number in (from..=to).step_by(step.parse().unwrap()) {
                fits[number] = true;
            }
        }
        Self { fits, is_star: text == "*" }
    }
}

/// Expression, parsed by the oracle.
struct Oracle {
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl Oracle {
    fn read(expr: &str) -> Self {
        let parts: Vec<&str> = expr.split(' ').collect();
        Self {
            minute: Field::read(parts[0], 0, 59),
            hour: Field::read(parts[1], 0, 23),
            day: Field::read(parts[2], 1, 31),
            month: Field::read(parts[3], 1, 12),
            weekday: Field::read(parts[4], 0, 6),
        }
    }

    fn has_day(&self, day: Date) -> bool {
        let number = |number: i8| usize::try_from(number).unwrap();
        let by_day = self.day.fits[number(day.day())];
        let by_weekday = self.weekday.fits[number(day.weekday().to_sunday_zero_offset())];
        let is_either = !self.day.is_star && !self.weekday.is_star;
        self.month.fits[number(day.month())]
            && if is_either { by_day || by_weekday } else { by_day && by_weekday }
    }

    /// Returns the slots among the local times shown, minute by minute; the first is the beginning.
    ///
    /// `shown` has local minutes since 1970.
    fn slots(&self, start: i64, shown: &[i64]) -> Vec<i64> {
        let every_hour = (0..24).all(|hour| self.hour.fits[hour]);
        let mut slots = Vec::new();
        let mut latest = shown[0];
        let mut today = (i64::MIN, false);
        let mut fits = |minute: i64| {
            let day = minute.div_euclid(1_440);
            if today.0 != day {
                let days = jiff::SignedDuration::from_hours(24 * day);
                today = (day, self.has_day(date(1970, 1, 1).checked_add(days).unwrap()));
            }
            let number = |of: i64| usize::try_from(of).unwrap();
            today.1
                && self.minute.fits[number(minute.rem_euclid(60))]
                && self.hour.fits[number(minute.rem_euclid(1_440) / 60)]
        };
        for (minute, &shows) in (start..).zip(shown).skip(1) {
            let is_slot = if every_hour {
                fits(shows)
            } else {
                // Skipped local times come due now; repeated ones do not fire again.
                (latest + 1..=shows).any(&mut fits)
            };
            if is_slot {
                slots.push(minute);
            }
            latest = latest.max(shows);
        }
        slots
    }
}

/// Returns a zone's local time for each minute of a range, in minutes since 1970.
fn clock(zone: &Zone, from: i64, to: i64) -> Vec<i64> {
    let offset = |minute: i64| {
        let at = Timestamp::from_second(minute * 60).unwrap();
        i64::from(zone.rules().to_offset(at).seconds())
    };
    (from..=to)
        .map(|minute| {
            let offset = offset(minute);
            assert_eq!(offset % 60, 0, "{zone}");
            minute + offset / 60
        })
        .collect()
}

fn check(zone: &Zone, expr: &str, from: i64, shown: &[i64]) {
    let schedule = Schedule::cron(expr, zone.clone()).unwrap();
    let to = from + i64::try_from(shown.len()).unwrap() - 1;

    let expected = Oracle::read(expr).slots(from, shown);

    let mut found = Vec::new();
    let mut now = Timestamp::from_second(from * 60).unwrap();
    while let Some(slot) = schedule.next_after(now).filter(|slot| slot.as_second() <= to * 60) {
        assert!(slot > now, "{zone} {expr}: {slot} comes after {now}");
        assert_eq!((slot.as_second() % 60, slot.subsec_nanosecond()), (0, 0), "{zone} {expr}");
        found.push(slot.as_second() / 60);
        now = slot;
    }
    let shown = |slots: &[i64]| -> Vec<String> {
        slots.iter().map(|slot| Timestamp::from_second(slot * 60).unwrap().to_string()).collect()
    };
    assert_eq!(shown(&found), shown(&expected), "{zone}: {expr}");
}

/// Returns the minutes of a zone's clock changes from 2020 to 2037.
fn changes(zone: &Zone) -> Vec<i64> {
    let from: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    let to: Timestamp = "2038-01-01T00:00:00Z".parse().unwrap();
    let following = zone.rules().following(from).map(|change| change.timestamp());
    following.take_while(|at| *at < to).map(|at| at.as_second() / 60).collect()
}

/// Deterministic numbers, so that failures can be reproduced.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn expression(&mut self) -> String {
        let minute = match self.roll(4) {
            0 => self.roll(60).to_string(),
            1 => format!("*/{}", 7 + self.roll(30)),
            2 => format!("{},{}", self.roll(30), 30 + self.roll(30)),
            _ => format!("{}-59/9", self.roll(20)),
        };
        let hour = match self.roll(4) {
            0 => self.roll(24).to_string(),
            1 => format!("{}-{}", self.roll(4), 4 + self.roll(20)),
            2 => format!("*/{}", 2 + self.roll(11)),
            _ => "*".to_owned(),
        };
        let day =
            if self.roll(3) == 0 { format!("{}-28", 1 + self.roll(20)) } else { "*".to_owned() };
        let weekday =
            if self.roll(3) == 0 { format!("0,{}", 1 + self.roll(6)) } else { "*".to_owned() };
        format!("{minute} {hour} {day} * {weekday}")
    }
}

/// Checks every fourth zone, from `which` on: the tests run in parallel, and none takes too long.
fn quarter(which: usize) {
    let all = std::env::var_os("HOLDFAST_TEST_ALL_SLOTS").is_some();
    let mut zones = 0;
    let mut checked = 0;
    for (at, name) in Zone::names().enumerate().skip(which).step_by(4) {
        let zone: Zone = name.parse().unwrap_or_else(|error| panic!("{error}"));
        let mut dice = Dice(u64::try_from(at).unwrap());
        let changes = changes(&zone);
        // A period without changes, and some of the changes: different ones in each zone.
        let ordinary = 26_300_000 + i64::try_from(dice.roll(9_000_000)).unwrap();
        let share = if all { changes.len() } else { changes.len().min(2) };
        let first = usize::try_from(dice.roll(64)).unwrap();
        let some = (0..share).map(|which| changes[(first + which * 7) % changes.len()]);
        for (nth, minute) in some.chain([ordinary]).enumerate() {
            let from = minute - 180;
            let shown = clock(&zone, from, minute + 27 * 60);
            let expressions: Vec<&str> = match all {
                true => EXPRESSIONS.to_vec(),
                false => (0..2)
                    .map(|more| EXPRESSIONS[(at + nth * 5 + more * 7) % EXPRESSIONS.len()])
                    .collect(),
            };
            for expr in expressions {
                check(&zone, expr, from, &shown);
            }
            check(&zone, &dice.expression(), from, &shown);
            checked += 1;
        }
        zones += 1;
    }
    assert!(zones > 100 && checked > zones, "{zones} zones, {checked} stretches");
}

#[test]
fn slots_are_where_a_clock_has_them_in_a_quarter_of_all_zones() {
    quarter(0);
}

#[test]
fn slots_are_where_a_clock_has_them_in_a_second_quarter_of_all_zones() {
    quarter(1);
}

#[test]
fn slots_are_where_a_clock_has_them_in_a_third_quarter_of_all_zones() {
    quarter(2);
}

#[test]
fn slots_are_where_a_clock_has_them_in_the_last_quarter_of_all_zones() {
    quarter(3);
}
