//! State of a branch.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchState {
    /// The subagent works on it, or its patch waits to be merged.
    Open,
    Merged,
    Discarded,
    /// The files are deleted; only the row is left.
    Gone,
}

impl BranchState {
    /// Parses a stored state; returns `None` if this version does not know it.
    pub(crate) fn parse(stored: Option<&str>) -> Option<Self> {
        match stored {
            None => Some(Self::Open),
            Some("merged") => Some(Self::Merged),
            Some("discarded") => Some(Self::Discarded),
            Some("gone") => Some(Self::Gone),
            Some(_) => None,
        }
    }
}
