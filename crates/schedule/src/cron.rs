//! Cron expressions, on the clocks of a zone (decision 0028).
//!
//! `croner` reads an expression and walks the calendar; it never sees a zone. What becomes of times
//! that a clock skips or repeats is decided here:
//!
//! | the expression | skipped | repeated |
//! |---|---|---|
//! | names hours of the day (`30 2 * * *`, `0 */2 * * *`) | at the moment of the skip, once | the first time only |
//! | means every hour (`*/15 * * * *`) | not at all: no clock showed it | each time |

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{
    Timestamp,
    civil::{DateTime, date},
};

use crate::{
    error::{Error, shown},
    zone::Zone,
};

/// The longest expression, in bytes.
const LONGEST: usize = 200;

/// The shorthands; an unknown one would otherwise be read as a field.
const NICKNAMES: [&str; 6] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@hourly"];

/// An expression that was read.
#[derive(Debug, Clone)]
pub struct Expr {
    cron: Cron,
    /// Whether each hour of a day fits.
    every_hour: bool,
}

impl Expr {
    /// Reads an expression: five fields, six with seconds in front, or a shorthand as `@daily`.
    ///
    /// # Errors
    ///
    /// [`Error::Cron`] says what is wrong with it; [`Error::Never`] that no day fits it.
    pub fn parse(expr: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Cron { expr: shown(expr), why };
        if expr.len() > LONGEST {
            return Err(wrong(format!("{} bytes, and {LONGEST} are the most", expr.len())));
        }
        let trimmed = expr.trim();
        if trimmed.contains('@') && !NICKNAMES.contains(&trimmed.to_ascii_lowercase().as_str()) {
            return Err(wrong(format!("the shorthands are {}", NICKNAMES.join(", "))));
        }
        let parser =
            CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(trimmed).map_err(|source| {
            let why = source.to_string();
            wrong(why.trim_end_matches('.').to_owned())
        })?;
        let every_hour = (0..24).all(|hour| cron.pattern.hour_match(hour).unwrap_or(false));
        let expr = Self { cron, every_hour };
        match expr.shown_after(date(2000, 1, 1).at(0, 0, 0, 0)) {
            Some(_) => Ok(expr),
            None => Err(Error::Never(shown(trimmed))),
        }
    }

    /// The first slot after a moment; `None` once there is none.
    #[must_use]
    pub fn next_after(&self, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
        // Slots are whole seconds: what is after the beginning of this second is after `now`, too.
        let now = Timestamp::from_second(
            now.as_second().saturating_sub(i64::from(now.subsec_nanosecond() < 0)),
        )
        .ok()?;
        if self.every_hour { self.by_passing(now, zone) } else { self.by_naming(now, zone) }
    }

    /// For hours that are named: each time a clock could show is one slot.
    fn by_naming(&self, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut clock = zone.clock(now);
        loop {
            clock = self.shown_after(clock)?;
            let slot = zone.moment(clock)?;
            // Not so where a clock repeats, and where it skipped to `now`.
            if slot > now {
                return Some(slot);
            }
        }
    }

    /// For every hour: each moment at which a clock shows what fits is one slot.
    fn by_passing(&self, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut from = now;
        loop {
            // Up to the next change a clock only goes forward.
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
            // The moment of the change may be a slot itself, by what the clock shows after it.
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
mod oracle;

#[cfg(test)]
mod tests {
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
    fn what_cannot_be_read_or_never_comes_says_what_to_write() {
        for bad in ["", "* * * *", "61 * * * *", "@reboot", "0 9 * * 1-5 2030 x", "ä * * * *"] {
            let error = Expr::parse(bad).unwrap_err();
            assert!(matches!(error, Error::Cron { .. }), "{bad}: {error}");
        }
        assert!(matches!(Expr::parse(&"0,".repeat(200)), Err(Error::Cron { .. })));
        assert_eq!(Expr::parse("0 0 30 2 *").unwrap_err(), Error::Never("0 0 30 2 *".to_owned()));
        assert!(Expr::parse("0 0 29 2 *").is_ok());
        assert!(Expr::parse("@daily").is_ok());
        assert!(Expr::parse("30 0 9 L * *").is_ok());
    }
}
