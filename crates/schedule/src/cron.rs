//! Cron expressions in a time zone (decision 0028).
//!
//! `croner` parses an expression and walks the calendar without any zone. This module decides about
//! local times that a clock change skips or repeats:
//!
//! | the expression | skipped | repeated |
//! |---|---|---|
//! | names hours of the day (`30 2 * * *`, `0 */2 * * *`) | fires at the moment of the skip, once | fires the first time only |
//! | matches every hour (`*/15 * * * *`) | does not fire: no clock showed that time | fires each time |

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{
    SignedDuration, Timestamp, ToSpan as _,
    civil::{DateTime, date},
};

use crate::{
    error::{Error, shown},
    zone::Zone,
};

/// Maximum length of an expression, in bytes.
const MAX_EXPR_BYTES: usize = 200;

const SECONDS_PER_DAY: u32 = 86_400;

/// Supported shorthands. Without this check an unknown one would be parsed as a field.
const SHORTHANDS: [&str; 6] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@hourly"];

#[derive(Debug, Clone)]
pub struct Expr {
    cron: Cron,
    /// Whether the expression matches every hour of the day.
    every_hour: bool,
}

impl Expr {
    /// Parses an expression: five fields, six with seconds in front, or a shorthand such as
    /// `@daily`.
    ///
    /// # Errors
    ///
    /// [`Error::Cron`] if the syntax is wrong; [`Error::Never`] if no day ever matches.
    pub fn parse(expr: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Cron { expr: shown(expr), why };
        if expr.len() > MAX_EXPR_BYTES {
            return Err(wrong(format!("{} bytes, and {MAX_EXPR_BYTES} are the most", expr.len())));
        }
        let trimmed = expr.trim();
        if trimmed.contains('@') && !SHORTHANDS.contains(&trimmed.to_ascii_lowercase().as_str()) {
            return Err(wrong(format!("the shorthands are {}", SHORTHANDS.join(", "))));
        }
        let parser =
            CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(trimmed).map_err(|source| {
            let why = source.to_string();
            wrong(why.trim_end_matches('.').to_owned())
        })?;
        let every_hour = (0..24).all(|hour| cron.pattern.hour_match(hour).unwrap_or(false));
        let expr = Self { cron, every_hour };
        if expr.has_matching_day() { Ok(expr) } else { Err(Error::Never(shown(trimmed))) }
    }

    /// Returns the minimum time between two slots, by the time-of-day fields alone.
    #[must_use]
    pub fn min_gap(&self) -> SignedDuration {
        let (hours, minutes, seconds) = self.times();
        let mut least = SECONDS_PER_DAY;
        let (mut first, mut last) = (None, None);
        for hour in hours {
            for minute in &minutes {
                for second in &seconds {
                    let at = hour * 3_600 + minute * 60 + second;
                    least = last.map_or(least, |last: u32| least.min(at - last));
                    first = first.or(Some(at));
                    last = Some(at);
                }
            }
        }
        // From the last slot of a day to the first of the next.
        if let (Some(first), Some(last)) = (first, last) {
            least = least.min(SECONDS_PER_DAY + first - last);
        }
        SignedDuration::from_secs(i64::from(least))
    }

    /// Returns the hours, minutes and seconds that match.
    fn times(&self) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let pattern = &self.cron.pattern;
        (
            (0..24).filter(|hour| pattern.hour_match(*hour).unwrap_or(false)).collect(),
            (0..60).filter(|minute| pattern.minute_match(*minute).unwrap_or(false)).collect(),
            (0..60).filter(|second| pattern.second_match(*second).unwrap_or(false)).collect(),
        )
    }

    /// Returns whether any day matches.
    ///
    /// Within forty years each month begins on each weekday with each of its lengths, so an
    /// expression that matches no day in them never matches. `croner` itself would search until the
    /// year 5000.
    fn has_matching_day(&self) -> bool {
        let (hours, minutes, seconds) = self.times();
        let number = |of: &[u32]| of.first().and_then(|first| i8::try_from(*first).ok());
        let (Some(hour), Some(minute), Some(second)) =
            (number(&hours), number(&minutes), number(&seconds))
        else {
            return false;
        };
        date(2000, 1, 1).series(1.day()).take_while(|day| day.year() < 2040).any(|day| {
            self.cron.is_time_matching(&day.at(hour, minute, second, 0)).unwrap_or(false)
        })
    }

    /// Returns the first slot after `now`; `None` if there is none.
    #[must_use]
    pub fn next_after(&self, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
        // Slots are whole seconds, so a slot after the beginning of this second is also after
        // `now`.
        let now = Timestamp::from_second(
            now.as_second().saturating_sub(i64::from(now.subsec_nanosecond() < 0)),
        )
        .ok()?;
        if self.every_hour { self.next_moment(now, zone) } else { self.next_local_time(now, zone) }
    }

    /// Expressions that name hours: each local time that matches gives one slot.
    fn next_local_time(&self, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut clock = zone.clock(now);
        loop {
            clock = self.shown_after(clock)?;
            let slot = zone.moment(clock)?;
            // Not after `now` if the clock repeats this time, or skipped it right up to `now`.
            if slot > now {
                return Some(slot);
            }
        }
    }

    /// Expressions that match every hour: each moment whose local time matches is a slot.
    fn next_moment(&self, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut from = now;
        loop {
            // Until the next offset change, local time only moves forward.
            let offset = zone.rules().to_offset(from);
            let change = zone.rules().following(from).next().map(|change| change.timestamp());
            let slot = self
                .shown_after(offset.to_datetime(from))
                .and_then(|shown| offset.to_timestamp(shown).ok());
            match (slot, change) {
                (Some(slot), Some(change)) if slot >= change => {}
                (Some(slot), _) => return Some(slot),
                (None, _) => return None,
            }
            let change = change?;
            // The moment of the change may itself be a slot, by the local time after it.
            let shown = zone.clock(change);
            if self.cron.is_time_matching(&shown).unwrap_or(false) {
                return Some(change);
            }
            from = change;
        }
    }

    fn shown_after(&self, clock: DateTime) -> Option<DateTime> {
        self.cron.find_next_occurrence(&clock, false).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slots(expr: &str, zone: &str, from: &str, many: usize) -> Vec<String> {
        let (expr, zone): (_, Zone) = (Expr::parse(expr).unwrap(), zone.parse().unwrap());
        let mut now: Timestamp = from.parse().unwrap();
        let mut found = Vec::new();
        while found.len() < many {
            now = expr.next_after(now, &zone).unwrap();
            found.push(now.strftime("%m-%dT%H:%M").to_string());
        }
        found
    }

    #[test]
    fn nine_in_the_morning_is_nine_on_the_zones_clocks() {
        let found = slots("0 9 * * *", "Europe/Oslo", "2026-03-27T12:00:00Z", 3);

        assert_eq!(found, ["03-28T08:00", "03-29T07:00", "03-30T07:00"]);
    }

    #[test]
    fn a_named_time_in_the_gap_runs_after_it_and_once() {
        let from = "2026-03-28T12:00:00Z";

        assert_eq!(slots("30 2 * * *", "Europe/Oslo", from, 2), ["03-29T01:00", "03-30T00:30"]);
        assert_eq!(slots("*/20 2 * * *", "Europe/Oslo", from, 2), ["03-29T01:00", "03-30T00:00"]);
        assert_eq!(
            slots("0 2,14 * * *", "Europe/Oslo", from, 3),
            ["03-28T13:00", "03-29T01:00", "03-29T12:00"]
        );
    }

    #[test]
    fn a_named_time_that_is_repeated_runs_the_first_time_only() {
        let from = "2026-10-24T12:00:00Z";

        assert_eq!(slots("30 2 * * *", "Europe/Oslo", from, 2), ["10-25T00:30", "10-26T01:30"]);
        assert_eq!(
            slots("0 1-3 * * *", "Europe/Oslo", from, 4),
            ["10-24T23:00", "10-25T00:00", "10-25T02:00", "10-26T00:00"]
        );
    }

    #[test]
    fn every_hour_goes_by_the_passing_of_time() {
        assert_eq!(
            slots("30 * * * *", "Europe/Oslo", "2026-03-29T00:00:00Z", 3),
            ["03-29T00:30", "03-29T01:30", "03-29T02:30"]
        );
        assert_eq!(
            slots("*/30 0-23 * * *", "Europe/Oslo", "2026-10-25T00:00:00Z", 4),
            ["10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"]
        );
    }

    #[test]
    fn a_gap_of_three_hours_and_one_over_midnight_lose_no_run() {
        // Casey put its clocks from 00:01 to 03:01 on 4 October 2020.
        assert_eq!(
            slots("0 1 * * *", "Antarctica/Casey", "2020-10-03T12:00:00Z", 2),
            ["10-03T16:01", "10-04T14:00"]
        );
        // Ittoqqortoormiit goes from 23:00 on a Saturday to midnight.
        assert_eq!(
            slots("30 23 * * 6", "America/Scoresbysund", "2027-03-27T12:00:00Z", 1),
            ["03-28T01:00"]
        );
    }

    #[test]
    fn a_fraction_of_a_second_neither_repeats_nor_loses_a_slot() {
        let expr = Expr::parse("* * * * *").unwrap();
        for (now, next) in [
            ("2026-01-01T00:00:59.999Z", "2026-01-01T00:01:00Z"),
            ("2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"),
            ("2026-01-01T00:01:00.001Z", "2026-01-01T00:02:00Z"),
            ("1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z"),
        ] {
            let now: Timestamp = now.parse().unwrap();
            assert_eq!(expr.next_after(now, &Zone::utc()).unwrap().to_string(), next);
        }
    }

    #[test]
    fn the_least_distance_of_slots_is_found_wherever_it_is_in_the_day() {
        for (expr, seconds) in [
            ("0 9 * * *", 86_400),
            ("0,1 9 * * *", 60),
            ("*/20 * * * *", 1_200),
            ("0 9,17 1 1 *", 28_800),
            ("0,50 0,23 * * *", 600),
            ("30 * * * * *", 60),
            ("5,7 0 0 * * *", 2),
            ("* * * * * *", 1),
        ] {
            let closest = Expr::parse(expr).unwrap().min_gap();
            assert_eq!(closest.as_secs(), seconds, "{expr}");
        }
    }

    #[test]
    fn what_cannot_be_read_or_never_comes_says_what_to_write() {
        for bad in ["", "* * * *", "61 * * * *", "@reboot", "0 9 * * 1-5 2030 x", "ä * * * *"] {
            let error = Expr::parse(bad).unwrap_err();
            assert!(matches!(error, Error::Cron { .. }), "{bad}: {error}");
        }
        assert!(matches!(Expr::parse(&"0,".repeat(200)), Err(Error::Cron { .. })));
        assert_eq!(Expr::parse("0 0 30 2 *").unwrap_err(), Error::Never("0 0 30 2 *".to_owned()));
        assert!(Expr::parse("0 0 29 2 *").is_ok());
        for rare in
            ["0 0 29 2 *", "0 0 L 2 *", "0 0 29 2 +1", "0 0 * 2 1#5", "@daily", "30 0 9 L * *"]
        {
            assert!(Expr::parse(rare).is_ok(), "{rare}");
        }
    }

    proptest! {
        #[test]
        fn no_expression_is_too_odd(
            text in "((\\*|[0-9]{1,2}|\\*/[0-9]{1,2}|[0-9]-[0-9]{1,2}|L|[0-6]#[1-6]|15W|MON|\\+1|[0-9],9) ){3,6}\\PC{0,3}",
            now in 1_577_836_800_i64..2_145_916_800,
        ) {
            let now = Timestamp::from_second(now).unwrap();
            if let Ok(expr) = Expr::parse(&text) {
                let next = expr.next_after(now, &"America/St_Johns".parse().unwrap());
                prop_assert!(next.is_some_and(|next| next > now), "{text}");
            }
        }
    }
}
