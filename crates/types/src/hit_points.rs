//! Hit points: what the work of an agent costs it, and how it recovers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes of tool inputs and results that cost `per_io_milli`.
const IO_UNIT_BYTES: u64 = 65_536;

const MAX_HIT_POINTS: u32 = 1_000_000_000;

/// Hit points of an agent. With the defaults, a day of normal work uses up about the maximum, and a
/// day of rest restores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HitPointSettings {
    /// Hit points of a rested agent.
    pub max: u32,
    /// Hit points below which the agent begins no turn.
    pub floor: u32,
    /// Thousandths of a hit point for each token of a model's input and output.
    pub per_token_milli: u32,
    /// Thousandths of a hit point for each call with an effect on the outside world.
    pub per_action_milli: u32,
    /// Thousandths of a hit point for each result of a tool.
    pub per_tool_milli: u32,
    /// Thousandths of a hit point for 64 KiB of inputs and results of tools.
    pub per_io_milli: u32,
    /// Thousandths of a hit point that the agent recovers in a second.
    pub recovery_milli: u32,
}

impl Default for HitPointSettings {
    fn default() -> Self {
        Self {
            max: 10_000,
            floor: 100,
            per_token_milli: 1,
            per_action_milli: 2_000,
            per_tool_milli: 500,
            per_io_milli: 500,
            recovery_milli: 120,
        }
    }
}

/// Amounts of work that cost hit points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkAmounts {
    pub tokens: u64,
    /// Calls with an effect on the outside world.
    pub actions: u64,
    /// Results of tools.
    pub tool_results: u64,
    /// Bytes of inputs and results of tools.
    pub io_bytes: u64,
}

impl HitPointSettings {
    /// Explains what is wrong with the settings.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MAX_HIT_POINTS).contains(&self.max) {
            return Err(format!("`max` is 1 to {MAX_HIT_POINTS}, and this one is {}", self.max));
        }
        if self.floor >= self.max {
            return Err(format!(
                "`floor` is below `max`, {}, and this one is {}",
                self.max, self.floor
            ));
        }
        if self.recovery_milli == 0 {
            return Err(
                "`recovery_milli` is 1 or more: an agent below the floor has to recover".to_owned()
            );
        }
        Ok(())
    }

    /// Cost of work, in thousandths of a hit point.
    #[must_use]
    pub fn cost_milli(&self, work: &WorkAmounts) -> u64 {
        let part = |amount: u64, rate: u32| amount.saturating_mul(rate.into());
        part(work.tokens, self.per_token_milli)
            .saturating_add(part(work.actions, self.per_action_milli))
            .saturating_add(part(work.tool_results, self.per_tool_milli))
            .saturating_add(part(work.io_bytes, self.per_io_milli) / IO_UNIT_BYTES)
    }

    #[must_use]
    pub fn max_milli(&self) -> u64 {
        u64::from(self.max) * 1_000
    }

    #[must_use]
    pub fn floor_milli(&self) -> u64 {
        u64::from(self.floor) * 1_000
    }

    /// Time until an agent with this level has recovered to the floor; zero if it has.
    #[must_use]
    pub fn rest(&self, level_milli: u64) -> Duration {
        let missing = self.floor_milli().saturating_sub(level_milli);
        Duration::from_secs(missing.div_ceil(u64::from(self.recovery_milli.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_maximum_is_a_day_of_normal_work_and_recovers_in_a_day() {
        let settings = HitPointSettings::default();
        // 200 turns with 40,000 tokens and three calls each, of which one acts.
        let day = WorkAmounts {
            tokens: 200 * 40_000,
            actions: 200,
            tool_results: 600,
            io_bytes: 600 * 8_192,
        };
        let cost = settings.cost_milli(&day);
        assert!((8_000_000..=10_000_000).contains(&cost), "{cost}");
        let recovered = u64::from(settings.recovery_milli) * 86_400;
        assert!((10_000_000..=11_000_000).contains(&recovered), "{recovered}");
    }

    #[test]
    fn each_kind_of_work_has_its_rate() {
        let settings = HitPointSettings {
            per_token_milli: 1,
            per_action_milli: 10,
            per_tool_milli: 100,
            per_io_milli: 1_000,
            ..HitPointSettings::default()
        };
        let work = WorkAmounts { tokens: 5, actions: 4, tool_results: 3, io_bytes: 2 * 65_536 };
        assert_eq!(settings.cost_milli(&work), 5 + 40 + 300 + 2_000);
        let huge = WorkAmounts { tokens: u64::MAX, ..work };
        assert_eq!(settings.cost_milli(&huge), u64::MAX);
    }

    #[test]
    fn settings_that_never_recover_are_refused() {
        let settings = HitPointSettings::default();
        assert_eq!(settings.check(), Ok(()));
        for wrong in [
            HitPointSettings { max: 0, ..settings },
            HitPointSettings { floor: settings.max, ..settings },
            HitPointSettings { recovery_milli: 0, ..settings },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert_eq!(settings.rest(100_000), Duration::ZERO);
        assert_eq!(settings.rest(99_880), Duration::from_secs(1));
    }
}
