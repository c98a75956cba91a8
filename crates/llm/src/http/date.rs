//! Dates in HTTP headers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Parses a `Retry-After` header: seconds, or a date. A past date is a delay of zero.
pub(crate) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    parse(value).map(|at| at.duration_since(now).unwrap_or_default())
}

/// Parses the common form: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn parse(text: &str) -> Option<SystemTime> {
    let (_, rest) = text.split_once(", ")?;
    let parts: [&str; 5] = rest.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let [day, month, year, time, "GMT"] = parts else { return None };
    let month = MONTHS.iter().position(|name| *name == month)?;
    let time: Option<Vec<u64>> = time.split(':').map(|part| number(part, 2)).collect();
    let [hour, minute, second]: [u64; 3] = time?.try_into().ok()?;
    let (day, year) = (number(day, 2)?, number(year, 4)?);
    if !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days =
        days_before_year(year) - days_before_year(1970) + days_before_month(month, year) + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Days from the year 1 to the beginning of a year.
const fn days_before_year(year: u64) -> u64 {
    let past = year - 1;
    past * 365 + past / 4 - past / 100 + past / 400
}

fn days_before_month(month: usize, year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    lengths.iter().take(month).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn dates_are_read_as_the_standard_writes_them() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000),
            ("Fri, 31 Dec 2100 23:59:59 GMT", 4_133_980_799),
        ] {
            assert_eq!(parse(text), Some(at(seconds)), "{text}");
        }
    }

    #[test]
    fn a_wait_is_given_in_seconds_or_as_a_date() {
        let now = at(784_111_770);

        assert_eq!(retry_after("20", now), Some(Duration::from_secs(20)));
        assert_eq!(retry_after("0.5", now), Some(Duration::from_millis(500)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:00:00 GMT", now), Some(Duration::ZERO));
        for wrong in ["", "-1", "soon", "NaN", "Sun, 06 Nov 1994 08:49:37 CET"] {
            assert_eq!(retry_after(wrong, now), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in ".{0,60}|[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{0,9} GMT") {
            let _ = retry_after(&text, UNIX_EPOCH);
        }
    }
}
