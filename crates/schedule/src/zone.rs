//! Time zone, by its name in the tz database.
//!
//! The database is compiled into the program. A machine's own may be older, newer or missing, and
//! two replicas must not disagree about local times.

use std::{fmt, str::FromStr, sync::LazyLock};

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{Error, shown};

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Maximum length of a zone's name, in bytes.
const MAX_NAME_BYTES: usize = 64;

#[derive(Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    #[cfg(test)]
    pub fn names() -> impl Iterator<Item = String> {
        ZONES.available().map(|name| name.to_string())
    }

    /// Returns the name with the spelling of the tz database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub const fn rules(&self) -> &TimeZone {
        &self.zone
    }

    /// Returns the local time at a moment.
    #[must_use]
    pub fn clock(&self, at: Timestamp) -> DateTime {
        self.zone.to_datetime(at)
    }

    /// Returns the moment at which a local time is shown.
    ///
    /// For a repeated local time this is the first moment; for a skipped one, the moment of the
    /// clock change. `None` if it is past the year 9999.
    #[must_use]
    pub fn moment(&self, shown: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // With the offset after the change, the result lies before the change.
                let earlier = after.to_timestamp(shown).ok()?;
                let skip = self.zone.following(earlier).find(|change| change.offset() == after)?;
                Some(skip.timestamp())
            }
        }
    }

    /// Returns both moments of a local time; they differ only for a repeated local time.
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
        if name.len() > MAX_NAME_BYTES {
            return Err(unknown());
        }
        let zone = ZONES.get(name).map_err(|_| unknown())?;
        // Spelling of the database: `europe/oslo` is accepted too.
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
