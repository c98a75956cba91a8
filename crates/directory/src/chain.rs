//! Named chains: sequences of agents' steps.

use holdfast_types::{Chain, SHIPPED_CHAIN_NAME};
use jiff::Timestamp;

use crate::{Error, tenant::check_name};

/// A chain of a tenant, or the built-in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedChain {
    pub name: String,
    pub chain: Chain,
    /// Whether this is the built-in chain; a tenant's chain of the same name replaces it.
    pub shipped: bool,
    /// Version, increased by each change; 0 for the built-in chain.
    pub version: i64,
    /// `None` for the built-in chain.
    pub updated_at: Option<Timestamp>,
}

impl NamedChain {
    pub(crate) fn shipped() -> Self {
        Self {
            name: SHIPPED_CHAIN_NAME.to_owned(),
            chain: Chain::shipped(),
            shipped: true,
            version: 0,
            updated_at: None,
        }
    }
}

pub(crate) fn check(name: &str, chain: &Chain) -> Result<(), Error> {
    check_name("chain", name)?;
    chain.check().map_err(Error::Invalid)
}
