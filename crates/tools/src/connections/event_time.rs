//! Times and dates, as a model and as iCalendar write them.

use jiff::{Timestamp, ToSpan as _, civil, tz::TimeZone};

use super::ics::Line;

/// Start or end of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventTime {
    At(Timestamp),
    Day(civil::Date),
}

impl EventTime {
    /// Parses a model's text: RFC 3339, a date, or a local time in a zone.
    pub(super) fn parse(name: &str, said: &str, zone: Option<&str>) -> Result<Self, String> {
        let said = said.trim();
        if let Ok(moment) = said.parse::<Timestamp>() {
            return Ok(Self::At(moment));
        }
        if said.len() <= 10
            && let Ok(day) = said.parse::<civil::Date>()
        {
            return Ok(Self::Day(day));
        }
        let shown: String = said.chars().take(40).collect();
        let Ok(local) = said.parse::<civil::DateTime>() else {
            return Err(format!(
                "`{name}` is `{shown}`: write `2026-12-01T09:00:00+01:00`, or `2026-12-01` for a \
                 whole day"
            ));
        };
        let Some(zone) = zone else {
            return Err(format!(
                "`{name}` is `{shown}`, and it is not clear where: add an offset, or give \
                 `time_zone`"
            ));
        };
        let moment = self::find_zone(zone)?.to_zoned(local).map_err(|error| error.to_string())?;
        Ok(Self::At(moment.timestamp()))
    }

    /// Start as a point in time; a day starts at midnight in the zone.
    pub(super) fn start(self, zone: &TimeZone) -> Result<Timestamp, String> {
        match self {
            Self::At(moment) => Ok(moment),
            Self::Day(day) => {
                let zoned = day.to_zoned(zone.clone()).map_err(|error| error.to_string())?;
                Ok(zoned.timestamp())
            }
        }
    }

    /// Default end: after an hour, or after the day.
    pub(super) fn default_end(self) -> Result<Self, String> {
        match self {
            Self::At(moment) => moment.checked_add(1.hour()).map(Self::At),
            Self::Day(day) => day.checked_add(1.day()).map(Self::Day),
        }
        .map_err(|error| error.to_string())
    }

    /// Whether it is before the other.
    ///
    /// # Errors
    ///
    /// If one is a time and the other a whole day.
    pub(super) fn is_before(self, other: Self) -> Result<bool, String> {
        match (self, other) {
            (Self::At(one), Self::At(other)) => Ok(one < other),
            (Self::Day(one), Self::Day(other)) => Ok(one < other),
            (Self::At(_), Self::Day(_)) | (Self::Day(_), Self::At(_)) => {
                Err("`start` and `end` must both be moments, or both be days".to_owned())
            }
        }
    }

    /// Parameters and value of an iCalendar line.
    pub(super) fn line(self) -> (&'static str, String) {
        match self {
            Self::At(moment) => ("", format_utc(moment)),
            Self::Day(day) => (";VALUE=DATE", day.strftime("%Y%m%d").to_string()),
        }
    }
}

/// Formats a time for iCalendar and CalDAV.
pub(super) fn format_utc(moment: Timestamp) -> String {
    moment.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Finds a time zone by its IANA name.
pub(super) fn find_zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        let shown: String = name.chars().take(60).collect();
        format!("`{shown}` is not a time zone: write an IANA name, as `Europe/Berlin`")
    })
}

/// Formats a line's time for the model: in the requested zone, if its own is known.
pub(super) fn format_for_model(line: &Line, wanted: &TimeZone) -> String {
    let value = line.value();
    if let Ok(day) = civil::Date::strptime("%Y%m%d", value) {
        return day.to_string();
    }
    let local = civil::DateTime::strptime("%Y%m%dT%H%M%S", value.trim_end_matches('Z'));
    let Ok(local) = local else { return value.chars().take(40).collect() };
    let zone = match (value.ends_with('Z'), line.param("TZID")) {
        (true, _) => Some(TimeZone::UTC),
        (false, Some(named)) => TimeZone::get(named).ok(),
        (false, None) => None,
    };
    match zone.and_then(|zone| zone.to_zoned(local).ok()) {
        Some(zoned) => {
            zoned.with_time_zone(wanted.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        }
        // The zone is known only to the author's program, or it is a floating time.
        None => match line.param("TZID") {
            Some(named) => format!("{local} ({named})"),
            None => local.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::ics::Ics;

    fn parse(said: &str, zone: Option<&str>) -> Result<String, String> {
        EventTime::parse("start", said, zone).map(|when| {
            let (params, value) = when.line();
            format!("{params}:{value}")
        })
    }

    #[test]
    fn moments_and_days_are_read_as_a_model_says_them() {
        for (said, zone, line) in [
            ("2026-12-01T09:00:00+01:00", None, ":20261201T080000Z"),
            ("2026-12-01T09:00:00Z", Some("Asia/Tokyo"), ":20261201T090000Z"),
            ("2026-12-01T09:00", Some("Europe/Berlin"), ":20261201T080000Z"),
            ("2026-07-01 09:00:00", Some("Europe/Berlin"), ":20260701T070000Z"),
            ("2026-12-01", None, ";VALUE=DATE:20261201"),
        ] {
            assert_eq!(parse(said, zone).as_deref(), Ok(line), "{said}");
        }
        assert!(parse("2026-12-01T09:00", None).unwrap_err().contains("not clear where"));
        assert!(parse("tomorrow", None).unwrap_err().contains("`start` is `tomorrow`"));
        assert!(parse("2026-12-01T09:00", Some("Mars")).unwrap_err().contains("not a time zone"));
    }

    #[test]
    fn times_are_shown_in_the_wanted_zone() {
        let berlin = find_zone("Europe/Berlin").unwrap();
        for (params, value, told) in [
            ("", "20261201T080000Z", "2026-12-01T09:00:00+01:00"),
            (";TZID=America/New_York", "20261201T030000", "2026-12-01T09:00:00+01:00"),
            (";TZID=My Zone", "20261201T090000", "2026-12-01T09:00:00 (My Zone)"),
            (";VALUE=DATE", "20261201", "2026-12-01"),
            ("", "20261201T090000", "2026-12-01T09:00:00"),
            ("", "soon", "soon"),
        ] {
            let ics = Ics::event(&[("DTSTART", params, value.to_owned())]);
            let event = ics.main_event().unwrap();
            assert_eq!(format_for_model(ics.get(&event, "DTSTART").unwrap(), &berlin), told);
        }
    }
}
