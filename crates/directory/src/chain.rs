//! Chains: who does what after whom.

use holdfast_types::{Chain, SHIPPED_CHAIN};
use jiff::Timestamp;

use crate::{Error, tenant::check_name};

/// A chain of a tenant, or the one that is shipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedChain {
    /// Its name.
    pub name: String,
    /// What it is.
    pub chain: Chain,
    /// It is shipped, and the tenant has none of that name.
    pub shipped: bool,
    /// Grows with each change; 0 of the shipped one.
    pub version: i64,
    /// When it last changed; `None` of the shipped one.
    pub updated_at: Option<Timestamp>,
}

impl NamedChain {
    pub(crate) fn shipped() -> Self {
        Self {
            name: SHIPPED_CHAIN.to_owned(),
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
