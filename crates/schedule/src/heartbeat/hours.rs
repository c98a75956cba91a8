//! Active hours of a heartbeat (spec HBT-002).

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    error::{Error, shown},
    zone::Zone,
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HoursZone {
    /// The user's zone if it is known, else the tenant's.
    #[default]
    User,
    Local,
    Named(Zone),
}

/// Time zones that the settings refer to.
#[derive(Debug, Clone, Default)]
pub struct Zones {
    /// Zone of the user; `None` if unknown.
    pub user: Option<Zone>,
    pub local: Zone,
}

/// Daily time window. If the end is before the start, the window extends past midnight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveHours {
    /// Start, such as `08:00`.
    pub start: String,
    /// End, exclusive, such as `22:00` or `24:00`.
    pub end: String,
    #[serde(default)]
    pub timezone: HoursZone,
}

impl ActiveHours {
    /// Validates the window.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn check(&self) -> Result<(), Error> {
        self.window().map(drop)
    }

    /// Returns whether a moment is within the window.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn is_active(&self, now: Timestamp, zones: &Zones) -> Result<bool, Error> {
        let (start, end) = self.window()?;
        let zone = match &self.timezone {
            HoursZone::User => zones.user.as_ref().unwrap_or(&zones.local),
            HoursZone::Local => &zones.local,
            HoursZone::Named(zone) => zone,
        };
        let clock = zone.clock(now);
        let minute = i32::from(clock.hour()) * 60 + i32::from(clock.minute());
        Ok(match start < end {
            true => (start..end).contains(&minute),
            false => minute >= start || minute < end,
        })
    }

    /// Returns start and end in minutes since midnight.
    fn window(&self) -> Result<(i32, i32), Error> {
        let (start, end) = (minutes(&self.start)?, minutes(&self.end)?);
        // `24:00` is valid as an end only.
        if start == MIDNIGHT {
            return Err(Error::TimeOfDay(shown(&self.start)));
        }
        if start == end {
            return Err(Error::NoWindow(shown(&self.start)));
        }
        Ok((start, end))
    }
}

const MIDNIGHT: i32 = 24 * 60;

fn minutes(text: &str) -> Result<i32, Error> {
    let wrong = || Error::TimeOfDay(shown(text));
    let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => digits.parse::<i32>().map_err(|_| wrong()),
        false => Err(wrong()),
    };
    let (hour, minute) = text.trim().split_once(':').ok_or_else(wrong)?;
    if !(1..=2).contains(&hour.len()) || minute.len() != 2 {
        return Err(wrong());
    }
    match (number(hour)?, number(minute)?) {
        (24, 0) => Ok(MIDNIGHT),
        (hour @ 0..24, minute @ 0..60) => Ok(hour * 60 + minute),
        _ => Err(wrong()),
    }
}

impl fmt::Display for HoursZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Local => "local",
            Self::Named(zone) => zone.name(),
        })
    }
}

impl FromStr for HoursZone {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "user" | "" => Ok(Self::User),
            "local" => Ok(Self::Local),
            name => name.parse().map(Self::Named),
        }
    }
}

impl Serialize for HoursZone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HoursZone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(start: &str, end: &str, timezone: &str) -> ActiveHours {
        let json = serde_json::json!({"start": start, "end": end, "timezone": timezone});
        serde_json::from_value(json).unwrap()
    }

    fn are_active(hours: &ActiveHours, now: &str) -> bool {
        let zones = Zones {
            user: Some("Asia/Tokyo".parse().unwrap()),
            local: "Europe/Oslo".parse().unwrap(),
        };
        hours.is_active(now.parse().unwrap(), &zones).unwrap()
    }

    #[test]
    fn a_window_has_its_beginning_and_not_its_end() {
        let day = hours("08:00", "22:00", "UTC");
        let whole = hours("00:00", "24:00", "UTC");

        for (time, is_in) in
            [("07:59:59", false), ("08:00:00", true), ("21:59:59", true), ("22:00:00", false)]
        {
            assert_eq!(are_active(&day, &format!("2026-01-01T{time}Z")), is_in, "{time}");
            assert!(are_active(&whole, &format!("2026-01-01T{time}Z")));
        }
        assert!(are_active(&whole, "2026-01-01T23:59:59.999Z"));
    }

    #[test]
    fn a_window_may_go_over_midnight() {
        let night = hours("22:30", "06:00", "UTC");

        for (time, is_in) in [
            ("22:29", false),
            ("22:30", true),
            ("23:59", true),
            ("00:00", true),
            ("05:59", true),
            ("06:00", false),
        ] {
            assert_eq!(are_active(&night, &format!("2026-01-01T{time}:00Z")), is_in, "{time}");
        }
    }

    #[test]
    fn the_clocks_are_the_users_the_tenants_or_a_zones() {
        // Nine in Tokyo, one in Oslo, midnight in UTC.
        let now = "2026-01-01T00:00:00Z";

        assert!(are_active(&hours("09:00", "10:00", "user"), now));
        assert!(are_active(&hours("01:00", "02:00", "local"), now));
        assert!(are_active(&hours("19:00", "20:00", "America/New_York"), now));
        let unknown = Zones { user: None, local: "Europe/Oslo".parse().unwrap() };
        assert!(hours("01:00", "02:00", "user").is_active(now.parse().unwrap(), &unknown).unwrap());
        assert!(serde_json::from_str::<HoursZone>("\"Moon\"").is_err());
    }

    #[test]
    fn an_hour_that_clocks_skip_is_not_there_and_one_that_they_repeat_is_there_twice() {
        let two = hours("02:00", "03:00", "Europe/Oslo");

        assert!(!are_active(&two, "2026-03-29T00:59:59Z"));
        assert!(!are_active(&two, "2026-03-29T01:00:00Z"));
        assert!(are_active(&two, "2026-10-25T00:30:00Z"));
        assert!(are_active(&two, "2026-10-25T01:30:00Z"));
        assert!(!are_active(&two, "2026-10-25T02:00:00Z"));
    }

    #[test]
    fn what_is_no_window_says_what_to_write() {
        for (start, end) in [
            ("8", "22:00"),
            ("08:00", "22"),
            ("08:0", "22:00"),
            ("08:00", "24:01"),
            ("25:00", "22:00"),
            ("+8:00", "22:00"),
            ("24:00", "06:00"),
            ("08:00", "08:00"),
            ("08:60", "22:00"),
        ] {
            let error = hours(start, end, "UTC").check().unwrap_err();
            assert!(
                matches!(error, Error::TimeOfDay(_) | Error::NoWindow(_)),
                "{start} {end}: {error}"
            );
        }
    }
}
