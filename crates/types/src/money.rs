//! Amounts of a wallet's currency.

use std::{fmt, str::FromStr};

const MICROS_PER_UNIT: u64 = 1_000_000;
const MAX_DECIMALS: usize = 6;

/// An amount, in millionths of the currency's unit. Written as a decimal number, such as `1.50`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(u64);

/// Error for a text that is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an amount is a decimal number with at most {MAX_DECIMALS} decimals, as in `1.50`")]
pub struct InvalidAmount;

impl Money {
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }
}

impl FromStr for Money {
    type Err = InvalidAmount;

    fn from_str(text: &str) -> Result<Self, InvalidAmount> {
        let (whole, decimals) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > MAX_DECIMALS {
            return Err(InvalidAmount);
        }
        let whole: u64 = whole.parse().map_err(|_| InvalidAmount)?;
        let part: u64 = format!("{decimals:0<6}").parse().map_err(|_| InvalidAmount)?;
        let micros = whole.checked_mul(MICROS_PER_UNIT).and_then(|whole| whole.checked_add(part));
        // Amounts are stored in signed columns.
        micros.filter(|micros| i64::try_from(*micros).is_ok()).map(Self).ok_or(InvalidAmount)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0 % MICROS_PER_UNIT);
        let shown = decimals.trim_end_matches('0');
        write!(f, "{}.{shown:0<2}", self.0 / MICROS_PER_UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_exactly_and_shown_with_two_decimals_at_least() {
        for (text, micros, shown) in [
            ("0", 0, "0.00"),
            ("1.5", 1_500_000, "1.50"),
            (" 12 ", 12_000_000, "12.00"),
            ("0.000001", 1, "0.000001"),
            ("9223372036854.775807", 9_223_372_036_854_775_807, "9223372036854.775807"),
        ] {
            let money: Money = text.parse().unwrap();
            assert_eq!((money.micros(), money.to_string().as_str()), (micros, shown));
        }
    }

    #[test]
    fn what_is_no_plain_amount_is_refused() {
        for text in [
            "",
            "-1",
            "1.",
            ".5",
            "1,5",
            "1e3",
            "0.0000001",
            "9223372036854.775808",
            "NaN",
            "1 000",
        ] {
            assert_eq!(text.parse::<Money>(), Err(InvalidAmount), "{text}");
        }
    }
}
