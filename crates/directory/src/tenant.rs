//! Tenants of the installation.

pub(crate) mod event;
pub(crate) mod event_webhook;
pub(crate) mod plan;

use holdfast_types::TenantId;
use jiff::Timestamp;

use crate::{Error, LimitName, PlanLimits, Product};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantState {
    Active,
    /// Keys and channels of the tenant are refused.
    Suspended,
    /// As suspended, and everything of the tenant is being deleted. There is no way back.
    Deleting,
}

impl TenantState {
    /// Returns the name that the database and the API use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Deleting => "deleting",
        }
    }

    /// Parses a state that a tenant can be given.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an unknown state.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    /// Name, unique in the installation.
    pub name: String,
    pub state: TenantState,
    /// Requests per minute that all keys of the tenant share.
    pub rate: u32,
    pub product: Product,
    /// Name of its plan.
    pub plan: Option<String>,
    /// Limits of its plan that are in effect.
    pub limits: PlanLimits,
    /// Names of limits that the tenant has of its own, whatever its plan says.
    pub own_limits: Vec<String>,
    /// When it is suspended by itself.
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// Changes of a tenant; `None` keeps the value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantChanges {
    pub state: Option<TenantState>,
    /// Requests per minute that all keys of the tenant share.
    pub rate: Option<u32>,
    /// Replaces the product as a whole.
    pub product: Option<Product>,
    /// Name of its plan; `Some(None)` takes it away.
    pub plan: Option<Option<String>>,
    /// Limits that the tenant has of its own from now on, besides `rate`.
    pub own_limits: Vec<LimitName>,
    /// Own limits that follow the plan again.
    pub follow_plan: Vec<LimitName>,
    /// When it is suspended by itself; `Some(None)` is never.
    pub expires_at: Option<Option<Timestamp>>,
}

impl TenantChanges {
    pub(crate) fn changes_limits(&self) -> bool {
        self.plan.is_some()
            || self.rate.is_some()
            || !self.own_limits.is_empty()
            || !self.follow_plan.is_empty()
    }
}

/// Checks the form of a name.
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
