//! What may be used in a day.

use holdfast_types::AgentId;

use crate::Error;

/// What may be used in a day of UTC, by the whole tenant or by one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// By which agent; `None` is the whole tenant.
    pub agent: Option<AgentId>,
    /// Tokens read and written; `None` is any number.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar; `None` is any amount.
    pub micros: Option<u64>,
}

impl Budget {
    /// Refuses one that limits nothing, or everything.
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
