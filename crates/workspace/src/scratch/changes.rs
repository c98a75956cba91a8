//! Changes that a command made in its scratch folder.

use std::fmt;

use crate::Edit;

/// Changes that a command made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Edits based on the files that the command was given, ordered by path.
    pub edits: Vec<Edit>,
    /// Things that cannot be stored in a tree, to be reported to the agent. A file that was
    /// replaced by one of them is not deleted from the tree.
    pub strays: Vec<Stray>,
}

/// Thing that cannot be stored in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Path for people to read; control characters are replaced.
    pub path: String,
    pub kind: StrayKind,
}

/// Reason why a thing cannot be stored in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrayKind {
    Link,
    Special,
    /// The path is not a valid [`TreePath`](holdfast_types::TreePath).
    Name,
    /// Larger than a file may be, or than the room that is left in the tree.
    Large,
    /// The permissions deny access even to its owner.
    Closed,
}

impl fmt::Display for StrayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "a link: put the file itself in its place",
            Self::Special => "a pipe, a socket or a device: leave it out",
            Self::Name => "a name that no file may have: rename it",
            Self::Large => "too large: split it, or keep less",
            Self::Closed => "closed by its permissions: let its owner read it",
        })
    }
}
