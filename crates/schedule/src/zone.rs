//! A time zone, by its name in the tz database.
//!
//! The database is the one that the program was built with. A machine's own may be older, newer or
//! missing, and two replicas must not differ about when nine o'clock is.

use std::{fmt, str::FromStr, sync::LazyLock};

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{Error, shown};

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The longest name of a zone.
const LONGEST: usize = 64;

/// A zone that is known.
#[derive(Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    /// The names of all zones.
    pub fn names() -> impl Iterator<Item = String> {
        ZONES.available().map(|name| name.to_string())
    }

    /// Its name, as it is spelt in the tz database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The zone itself.
    #[must_use]
    pub const fn rules(&self) -> &TimeZone {
        &self.zone
    }

    /// What clocks there show at a moment.
    #[must_use]
    pub fn clock(&self, at: Timestamp) -> DateTime {
        self.zone.to_datetime(at)
    }

    /// The first moment that is not before what a clock is to show.
    ///
    /// A time that is shown twice is the first of both; one that a clock skips is the moment of its
    /// skip. `None` is past the end of time (the year 9999).
    #[must_use]
    pub fn moment(&self, shown: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // By the clock's new setting the skip has not yet been.
                let earlier = after.to_timestamp(shown).ok()?;
                let skip = self.zone.following(earlier).find(|change| change.offset() == after)?;
                Some(skip.timestamp())
            }
        }
    }

    /// Both moments at which a clock shows this; they are the same, but where clocks are put back.
    #[must_use]
    pub fn moments(&self, shown: DateTime) -> Option<(Timestamp, Timestamp)> {
        let first = self.moment(shown)?;
        match self.zone.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Fold { after, .. } => Some((first, after.to_timestamp(shown).ok()?)),
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => {
                Some((first, first))
            }
        }
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl FromStr for Zone {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let unknown = || Error::Zone(shown(name));
        if name.len() > LONGEST {
            return Err(unknown());
        }
        let zone = ZONES.get(name).map_err(|_| unknown())?;
        // As the database spells it: `europe/oslo` is known as well.
        let name = zone.iana_name().ok_or_else(unknown)?.to_owned();
        Ok(Self { name, zone })
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oslo() -> Zone {
        "europe/oslo".parse().unwrap()
    }

    #[test]
    fn a_zone_is_known_by_its_name_and_by_no_path() {
        assert_eq!(oslo().name(), "Europe/Oslo");
        assert_eq!(serde_json::to_string(&oslo()).unwrap(), "\"Europe/Oslo\"");
        for bad in ["", "Mars/Base", "../../etc/passwd", "local", &"x".repeat(65)] {
            assert!(matches!(bad.parse::<Zone>(), Err(Error::Zone(_))), "{bad}");
        }
        assert!(Zone::names().count() > 400);
    }

    #[test]
    fn what_is_skipped_is_the_skip_and_what_is_repeated_is_its_first() {
        let moment = |shown: &str| oslo().moment(shown.parse().unwrap()).unwrap().to_string();

        assert_eq!(moment("2026-03-29T01:59:59"), "2026-03-29T00:59:59Z");
        assert_eq!(moment("2026-03-29T02:00:00"), "2026-03-29T01:00:00Z");
        assert_eq!(moment("2026-03-29T02:59:59"), "2026-03-29T01:00:00Z");
        assert_eq!(moment("2026-10-25T02:30:00"), "2026-10-25T00:30:00Z");
        let (first, second) = oslo().moments("2026-10-25T02:30:00".parse().unwrap()).unwrap();
        assert_eq!((second - first).get_seconds(), 3_600);
    }
}
