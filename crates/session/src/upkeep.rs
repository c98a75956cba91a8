//! Upkeep of the whole installation, which one runner at a time does.

use holdfast_pg::Pools;

use crate::Sessions;

pub mod duties;
pub mod partial;
pub mod prune;
pub mod retention;

/// Upkeep of the whole installation, from [`Sessions::upkeep`].
#[derive(Debug, Clone, Copy)]
pub struct Upkeep<'a> {
    pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn upkeep(&self) -> Upkeep<'_> {
        Upkeep { pools: &self.pools }
    }
}
