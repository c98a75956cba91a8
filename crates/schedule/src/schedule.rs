//! Schedules: once, at an interval, or by a cron expression (spec CRN-001, 013, 014).
//!
//! A slot is a moment in UTC, in whole milliseconds. Slots are strictly increasing and depend on
//! the schedule only.

#[cfg(test)]
mod oracle;

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    cron::Expr,
    error::{Error, bounds},
    zone::Zone,
};

/// Maximum interval in milliseconds: 366 days.
const MAX_EVERY_MS: i64 = 366 * 24 * 3_600_000;

/// Last supported moment in milliseconds since 1970: the end of the year 2999.
const MAX_TIMESTAMP_MS: i64 = 32_503_679_999_999;

/// Default interval of a job, in milliseconds (spec CRN-003).
pub const DEFAULT_EVERY_MS: i64 = 3_600_000;

/// Default interval of a timer, in milliseconds (spec HBT-021).
const DEFAULT_TIMER_MS: i64 = 180_000;

/// Serialized form of a schedule.
///
/// Fields of another kind are refused; times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum ScheduleJson {
    At {
        #[serde(alias = "atMs")]
        at_ms: i64,
    },
    Every {
        #[serde(alias = "everyMs")]
        every_ms: i64,
        #[serde(alias = "anchorMs", default, skip_serializing_if = "Option::is_none")]
        anchor_ms: Option<i64>,
    },
    Cron {
        expr: String,
        #[serde(default)]
        tz: Zone,
    },
}

#[derive(Clone)]
pub struct Schedule {
    written: ScheduleJson,
    when: CompiledSchedule,
}

#[derive(Clone)]
enum CompiledSchedule {
    At(Timestamp),
    Every { every: SignedDuration, anchor: Option<Timestamp> },
    Cron { expr: Box<Expr>, zone: Zone },
}

impl Schedule {
    /// Creates a one-time schedule, in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// If the moment is not in the years 1970 to 2999.
    pub fn at(at_ms: i64) -> Result<Self, Error> {
        Self::checked(ScheduleJson::At { at_ms })
    }

    /// Creates an interval schedule, counted from an anchor; without one, from 1970 (see
    /// [`anchored`](Self::anchored)).
    ///
    /// # Errors
    ///
    /// If the interval is not between 1 ms and 366 days.
    pub fn every(every_ms: i64, anchor_ms: Option<i64>) -> Result<Self, Error> {
        Self::checked(ScheduleJson::Every { every_ms, anchor_ms })
    }

    /// Creates a cron schedule in a time zone.
    ///
    /// # Errors
    ///
    /// If the expression is invalid or never matches.
    pub fn cron(expr: &str, tz: Zone) -> Result<Self, Error> {
        Self::checked(ScheduleJson::Cron { expr: expr.to_owned(), tz })
    }

    /// Returns the default schedule: every hour.
    #[must_use]
    pub fn usual() -> Self {
        Self::interval(DEFAULT_EVERY_MS)
    }

    /// Returns the default schedule of a timer: every 3 minutes.
    #[must_use]
    pub(crate) fn usual_of_timer() -> Self {
        Self::interval(DEFAULT_TIMER_MS)
    }

    fn interval(every_ms: i64) -> Self {
        Self {
            written: ScheduleJson::Every { every_ms, anchor_ms: None },
            when: CompiledSchedule::Every {
                every: SignedDuration::from_millis(every_ms),
                anchor: None,
            },
        }
    }

    fn checked(written: ScheduleJson) -> Result<Self, Error> {
        let when = match &written {
            ScheduleJson::At { at_ms } => CompiledSchedule::At(moment("at_ms", *at_ms)?),
            ScheduleJson::Every { every_ms, anchor_ms } => {
                if !(1..=MAX_EVERY_MS).contains(every_ms) {
                    let must = "a number of milliseconds from 1 to 31622400000 (366 days)";
                    return Err(bounds("every_ms", every_ms, must));
                }
                CompiledSchedule::Every {
                    every: SignedDuration::from_millis(*every_ms),
                    anchor: anchor_ms.map(|at| moment("anchor_ms", at)).transpose()?,
                }
            }
            ScheduleJson::Cron { expr, tz } => {
                CompiledSchedule::Cron { expr: Box::new(Expr::parse(expr)?), zone: tz.clone() }
            }
        };
        Ok(Self { written, when })
    }

    /// Sets the anchor of an interval that has none. Added jobs get this, so that they first run
    /// one interval later.
    #[must_use]
    pub fn anchored(mut self, at: Timestamp) -> Self {
        if let (
            ScheduleJson::Every { anchor_ms: anchor_ms @ None, .. },
            CompiledSchedule::Every { anchor, .. },
        ) = (&mut self.written, &mut self.when)
        {
            *anchor_ms = Some(at.as_millisecond());
            *anchor = Timestamp::from_millisecond(at.as_millisecond()).ok();
        }
        self
    }

    /// Returns the kind: `at`, `every` or `cron`.
    #[must_use]
    pub const fn kind_name(&self) -> &'static str {
        match self.when {
            CompiledSchedule::At(_) => "at",
            CompiledSchedule::Every { .. } => "every",
            CompiledSchedule::Cron { .. } => "cron",
        }
    }

    /// Returns the zone of a cron schedule.
    #[must_use]
    pub const fn zone(&self) -> Option<&Zone> {
        match &self.when {
            CompiledSchedule::Cron { zone, .. } => Some(zone),
            CompiledSchedule::At(_) | CompiledSchedule::Every { .. } => None,
        }
    }

    /// Returns whether there is at most one slot.
    #[must_use]
    pub const fn is_once(&self) -> bool {
        matches!(self.when, CompiledSchedule::At(_))
    }

    /// Refuses a schedule whose slots are closer than `floor`, or whose only slot is further in the
    /// past than `late`.
    ///
    /// # Errors
    ///
    /// [`Error::Past`], or [`Error::Bounds`] with what to write instead.
    pub fn check(
        &self,
        now: Timestamp,
        floor: SignedDuration,
        late: SignedDuration,
    ) -> Result<(), Error> {
        match &self.when {
            CompiledSchedule::At(at) if now.duration_since(*at) > late => {
                Err(Error::Past { at: *at, now })
            }
            CompiledSchedule::At(_) => Ok(()),
            CompiledSchedule::Every { every, .. } if *every < floor => Err(bounds(
                "every_ms",
                every.as_millis(),
                "as long as the least interval, or longer",
            )),
            CompiledSchedule::Every { .. } => Ok(()),
            CompiledSchedule::Cron { expr, .. } if expr.min_gap() < floor => {
                let must = "of times as far apart as the least interval, or farther";
                Err(bounds("expr", self.to_string(), must))
            }
            CompiledSchedule::Cron { .. } => Ok(()),
        }
    }

    /// Returns the first slot after `now`; `None` if there is none.
    #[must_use]
    pub fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.when {
            CompiledSchedule::At(at) => (*at > now).then_some(*at),
            CompiledSchedule::Every { every, anchor } => next_of_grid(now, *every, *anchor),
            CompiledSchedule::Cron { expr, zone } => expr.next_after(now, zone),
        }
    }

    /// Returns the last slot after `after` and not after `until`.
    #[must_use]
    pub fn last_within(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let first = self.next_after(after).filter(|first| *first <= until)?;
        // Binary search. Invariant: a slot in range follows `low`, none follows `high`.
        let (mut low, mut high) = (after.as_millisecond(), until.as_millisecond());
        let mut last = first;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let slot = self.next_after(Timestamp::from_millisecond(middle).ok()?);
            match slot.filter(|slot| *slot <= until) {
                Some(slot) => (low, last) = (middle.max(slot.as_millisecond() - 1), slot),
                None => high = middle,
            }
        }
        Some(last)
    }
}

fn moment(field: &'static str, ms: i64) -> Result<Timestamp, Error> {
    let wrong = || bounds(field, ms, "milliseconds since 1970, until the year 2999");
    if !(0..=MAX_TIMESTAMP_MS).contains(&ms) {
        return Err(wrong());
    }
    Timestamp::from_millisecond(ms).map_err(|_| wrong())
}

/// `anchor + (floor((now - anchor) / every) + 1) · every` (C-16); before the anchor, the anchor.
fn next_of_grid(
    now: Timestamp,
    every: SignedDuration,
    anchor: Option<Timestamp>,
) -> Option<Timestamp> {
    let anchor = anchor.unwrap_or(Timestamp::UNIX_EPOCH);
    if now < anchor {
        return Some(anchor);
    }
    let every = every.as_millis();
    let passed = now.duration_since(anchor).as_millis() / every;
    let after = i64::try_from((passed + 1).checked_mul(every)?).ok()?;
    Timestamp::from_millisecond(anchor.as_millisecond().checked_add(after)?).ok()
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.when {
            CompiledSchedule::At(at) => write!(f, "at {at}"),
            CompiledSchedule::Every { every, .. } => write!(f, "every {every:#}"),
            CompiledSchedule::Cron { zone, .. } => match &self.written {
                ScheduleJson::Cron { expr, .. } => write!(f, "{expr} ({zone})"),
                ScheduleJson::At { .. } | ScheduleJson::Every { .. } => write!(f, "({zone})"),
            },
        }
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for Schedule {}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::checked(ScheduleJson::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
