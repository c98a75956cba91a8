//! Daily budgets of tenants and agents.

use holdfast_types::AgentId;

use crate::Error;

/// Limits for one UTC day, for the whole tenant or for one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Agent that the budget limits; `None` is the whole tenant.
    pub agent: Option<AgentId>,
    /// Maximum number of input and output tokens; `None` sets no limit.
    pub tokens: Option<u64>,
    /// Maximum cost in millionths of a US dollar; `None` sets no limit.
    pub micros: Option<u64>,
}

impl Budget {
    /// Refuses a budget without a limit, or with a limit out of range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.tokens.is_none() && self.micros.is_none() {
            return Err(Error::Invalid(
                "a budget limits tokens or money: say how much of either, or unset it".to_owned(),
            ));
        }
        let fits = |amount: Option<u64>| {
            amount.is_none_or(|amount| (1..=1_000_000_000_000_000).contains(&amount))
        };
        if fits(self.tokens) && fits(self.micros) {
            return Ok(());
        }
        Err(Error::Invalid(
            "a budget is 1 to 1000000000000000 tokens, or millionths of a US dollar".to_owned(),
        ))
    }
}
