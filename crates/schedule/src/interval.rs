//! Intervals in text form: a number and a unit (spec HBT-015).

use jiff::SignedDuration;

use crate::error::{Error, shown};

/// Interval used in place of an invalid one.
pub const DEFAULT_INTERVAL: SignedDuration = SignedDuration::from_secs(300);

/// Maximum interval in seconds: 366 days.
const MAX_INTERVAL_SECONDS: i64 = 366 * 24 * 3_600;

/// Parses an interval such as `30s`, `5m` or `1h`.
///
/// # Errors
///
/// [`Error::Interval`] if the text is empty, malformed or more than 366 days. Callers report it to
/// the author and use [`DEFAULT_INTERVAL`].
pub fn parse_interval(text: &str) -> Result<SignedDuration, Error> {
    let wrong = || Error::Interval(shown(text));
    let trimmed = text.trim();
    let unit = match trimmed.chars().last().ok_or_else(wrong)?.to_ascii_lowercase() {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        _ => return Err(wrong()),
    };
    let number = &trimmed[..trimmed.len() - 1];
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let seconds = number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit));
    match seconds {
        Some(seconds) if (1..=MAX_INTERVAL_SECONDS).contains(&seconds) => {
            Ok(SignedDuration::from_secs(seconds))
        }
        Some(_) | None => Err(wrong()),
    }
}

/// Parses an interval, or returns the default one together with the error.
#[must_use]
pub fn interval_or_default(text: &str) -> (SignedDuration, Option<Error>) {
    match parse_interval(text) {
        Ok(interval) => (interval, None),
        Err(error) => (DEFAULT_INTERVAL, Some(error)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_and_a_unit_are_an_interval() {
        for (text, seconds) in [("30s", 30), ("5m", 300), (" 1h ", 3_600), ("90M", 5_400)] {
            assert_eq!(interval_or_default(text), (SignedDuration::from_secs(seconds), None));
        }
    }

    #[test]
    fn anything_else_is_five_minutes_and_said() {
        for text in [
            "",
            "m",
            "0m",
            "-5m",
            "+5m",
            "5",
            "5d",
            "1.5h",
            "5 m",
            "9999999999999999h",
            "五m",
            "8785h",
        ] {
            let (interval, error) = interval_or_default(text);
            assert_eq!(interval, DEFAULT_INTERVAL, "{text}");
            assert!(error.unwrap().to_string().contains("so 5m is used"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC{0,12}") {
            let (interval, _) = interval_or_default(&text);
            prop_assert!(interval > SignedDuration::ZERO);
        }
    }
}
