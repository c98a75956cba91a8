//! A customer of the platform.

use holdfast_types::TenantId;
use jiff::Timestamp;

use crate::Error;

/// Whether a tenant may do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantState {
    /// It may.
    Active,
    /// Its keys and channels are refused.
    Suspended,
}

impl TenantState {
    /// The word that the database and the API use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }

    /// The state that a word names.
    ///
    /// # Errors
    ///
    /// If it names none.
    pub fn parse(word: &str) -> Result<Self, Error> {
        match word {
            "active" => Ok(Self::Active),
            "suspended" => Ok(Self::Suspended),
            other => {
                let other: String = other.chars().take(80).collect();
                Err(Error::Invalid(format!(
                    "`{other}` is not a tenant's state: use active or suspended"
                )))
            }
        }
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its name, unique on the platform.
    pub name: String,
    /// Whether it may do anything.
    pub state: TenantState,
    /// Requests a minute that its keys may make together.
    pub rate: u32,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What is to change of a tenant; `None` leaves a field as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantChanges {
    /// Whether it may do anything.
    pub state: Option<TenantState>,
    /// Requests a minute.
    pub rate: Option<u32>,
}

/// Refuses what is no tenant's name.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let rest = |c: char| first(c) || c == '_' || c == '-';
    if (1..=64).contains(&name.len()) && name.starts_with(first) && name.chars().all(rest) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(Error::Invalid(format!(
        "`{shown}` is not a {what}'s name: write 1 to 64 of a-z, 0-9, `_` and `-`, a letter or \
         digit first"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_table_takes_is_a_name() {
        for name in ["a", "0", "acme-corp_2", &"x".repeat(64)] {
            assert!(check_name("tenant", name).is_ok(), "{name}");
        }
        for name in ["", "-a", "_a", "A", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(check_name("tenant", name).is_err(), "{name}");
        }
    }
}
