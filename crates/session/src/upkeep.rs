//! Upkeep of the whole installation, or of one pool of runners, which one runner at a time does.

use holdfast_pg::Pools;

use crate::Sessions;

pub mod archive;
pub mod duties;
pub mod partial;
pub mod prune;
pub mod retention;

/// Upkeep of the tenants whose rows the login reaches, from [`Sessions::upkeep`].
#[derive(Debug, Clone, Copy)]
pub struct Upkeep<'a> {
    pools: &'a Pools,
    archive: Option<&'a archive::Archive>,
}

impl<'a> Upkeep<'a> {
    /// Archives what [`prune`](Self::prune) deletes.
    #[must_use]
    pub const fn archiving_to(self, archive: Option<&'a archive::Archive>) -> Self {
        Self { archive, ..self }
    }
}

impl Sessions {
    #[must_use]
    pub const fn upkeep(&self) -> Upkeep<'_> {
        Upkeep { pools: &self.pools, archive: None }
    }
}
