//! Revision: the number of a state of a tree.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a state of a tree. Each change makes the next one, from 1 up; 0 is the empty tree
/// before the first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Revision(i64);

impl Revision {
    pub const EMPTY: Self = Self(0);

    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }

    pub(crate) const fn from_number(number: i64) -> Self {
        Self(number)
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl From<i64> for Revision {
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
