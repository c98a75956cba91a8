//! Plans: named sets of limits that tenants have.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::check_name;
use crate::Error;

const MAX_DESCRIPTION_CHARS: usize = 500;
const MAX_PLATFORM_PROVIDERS: usize = 50;

/// Limits of a plan; `None` is the default of the installation, or no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanLimits {
    /// Calls per minute, of all callers of the tenant together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_minute: Option<u64>,
    /// Calls that are open at once in one gateway process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_calls: Option<u64>,
    /// Sessions, whatever their state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Sessions that are ready or running at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_runs: Option<u64>,
    /// Input and output tokens in a UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// Cost in a UTC month, in millionths of a US dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micros_per_month: Option<u64>,
    /// Bytes of the current files of all agents and of the tenant's shared files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_bytes: Option<u64>,
    /// Commands that agents begin in a UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands_per_day: Option<u64>,
}

/// A quantity that a plan limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitName {
    CallsPerMinute,
    ConcurrentCalls,
    Sessions,
    ParallelRuns,
    TokensPerDay,
    MicrosPerMonth,
    StorageBytes,
    CommandsPerDay,
}

impl LimitName {
    pub const ALL: [Self; 8] = [
        Self::CallsPerMinute,
        Self::ConcurrentCalls,
        Self::Sessions,
        Self::ParallelRuns,
        Self::TokensPerDay,
        Self::MicrosPerMonth,
        Self::StorageBytes,
        Self::CommandsPerDay,
    ];

    /// Name in the database, the API and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CallsPerMinute => "calls_per_minute",
            Self::ConcurrentCalls => "concurrent_calls",
            Self::Sessions => "sessions",
            Self::ParallelRuns => "parallel_runs",
            Self::TokensPerDay => "tokens_per_day",
            Self::MicrosPerMonth => "micros_per_month",
            Self::StorageBytes => "storage_bytes",
            Self::CommandsPerDay => "commands_per_day",
        }
    }

    /// Largest value that may be set.
    const fn max(self) -> u64 {
        match self {
            Self::CallsPerMinute => 2_147_483_647,
            Self::ConcurrentCalls | Self::ParallelRuns => 100_000,
            Self::Sessions => 1_000_000_000,
            Self::TokensPerDay
            | Self::MicrosPerMonth
            | Self::StorageBytes
            | Self::CommandsPerDay => 1_000_000_000_000_000,
        }
    }
}

impl PlanLimits {
    #[must_use]
    pub const fn get(&self, name: LimitName) -> Option<u64> {
        match name {
            LimitName::CallsPerMinute => self.calls_per_minute,
            LimitName::ConcurrentCalls => self.concurrent_calls,
            LimitName::Sessions => self.sessions,
            LimitName::ParallelRuns => self.parallel_runs,
            LimitName::TokensPerDay => self.tokens_per_day,
            LimitName::MicrosPerMonth => self.micros_per_month,
            LimitName::StorageBytes => self.storage_bytes,
            LimitName::CommandsPerDay => self.commands_per_day,
        }
    }

    fn check(&self) -> Result<(), Error> {
        for name in LimitName::ALL {
            if let Some(limit) = self.get(name)
                && !(1..=name.max()).contains(&limit)
            {
                return Err(Error::Invalid(format!(
                    "`{}` is 1 to {}, and this one is {limit}: leave it out for no limit, and \
                     suspend a tenant to allow it nothing",
                    name.as_str(),
                    name.max()
                )));
            }
        }
        Ok(())
    }
}

/// Description and limits of a new or changed plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewPlan {
    pub name: String,
    pub description: String,
    pub limits: PlanLimits,
    /// Providers of the installation whose keys its tenants may use.
    pub platform_providers: Vec<String>,
}

impl NewPlan {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name("plan", &self.name)?;
        if self.description.chars().count() > MAX_DESCRIPTION_CHARS {
            return Err(Error::Invalid(format!(
                "a plan's description has {MAX_DESCRIPTION_CHARS} characters at most: shorten it"
            )));
        }
        if self.platform_providers.len() > MAX_PLATFORM_PROVIDERS {
            return Err(Error::Invalid(format!(
                "a plan allows {MAX_PLATFORM_PROVIDERS} providers of the platform at most"
            )));
        }
        for provider in &self.platform_providers {
            check_name("provider", provider)?;
        }
        self.limits.check()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub name: String,
    pub description: String,
    pub limits: PlanLimits,
    /// Providers of the installation whose keys its tenants may use, by name.
    pub platform_providers: Vec<String>,
    pub updated_at: Timestamp,
    /// Number of tenants that have it.
    pub tenants: u64,
}

/// Whether a limit is nearly used up, or used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitLevel {
    Ok,
    /// At least 80 % is used.
    Warning,
    Exceeded,
}

impl LimitLevel {
    #[must_use]
    pub const fn of(used: u64, limit: u64) -> Self {
        if used >= limit {
            Self::Exceeded
        } else if used as u128 * 5 >= limit as u128 * 4 {
            Self::Warning
        } else {
            Self::Ok
        }
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Exceeded => "exceeded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_begins_at_four_fifths_and_ends_at_the_limit() {
        let levels = [79, 80, 99, 100, 101].map(|used| LimitLevel::of(used, 100));

        use LimitLevel::{Exceeded, Ok, Warning};
        assert_eq!(levels, [Ok, Warning, Warning, Exceeded, Exceeded]);
        assert_eq!(LimitLevel::of(0, 1), Ok);
    }

    #[test]
    fn a_limit_out_of_range_is_named() {
        let limits = PlanLimits { parallel_runs: Some(0), ..PlanLimits::default() };
        let told = limits.check().unwrap_err().to_string();

        assert!(told.contains("`parallel_runs` is 1 to 100000"), "{told}");
        assert!(PlanLimits::default().check().is_ok());
    }
}
