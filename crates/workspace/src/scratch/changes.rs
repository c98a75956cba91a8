//! Changes that a command made in its scratch folder.

use std::fmt;

use super::path_view::ScratchView;
use crate::Edit;

/// Changes that a command made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScratchChanges {
    /// Edits based on the files that the command was given, ordered by path.
    pub edits: Vec<Edit>,
    /// Things that cannot be stored in a tree, to be reported to the agent. A file that was
    /// replaced by one of them is not deleted from the tree.
    pub unstorable: Vec<UnstorableEntry>,
}

impl ScratchChanges {
    /// Moves the edits whose paths are not valid in the tree to the unstorable entries.
    pub(super) fn without_unstorable(mut self, view: &ScratchView) -> Self {
        let unstorable = self.edits.extract_if(.., |edit| !view.is_storable(edit.path()));
        let kind = UnstorableReason::InvalidName;
        let unstorable =
            unstorable.map(|edit| UnstorableEntry { path: edit.path().to_string(), kind });
        self.unstorable.extend(unstorable);
        self
    }
}

/// Thing that cannot be stored in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnstorableEntry {
    /// Path for people to read; control characters are replaced.
    pub path: String,
    pub kind: UnstorableReason,
}

/// Reason why a thing cannot be stored in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnstorableReason {
    Link,
    Special,
    /// The path is not a valid [`TreePath`](holdfast_types::TreePath).
    InvalidName,
    /// Larger than a file may be, or than the room that is left in the tree.
    Large,
    /// The permissions deny access even to its owner.
    Unreadable,
}

impl fmt::Display for UnstorableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "a link: put the file itself in its place",
            Self::Special => "a pipe, a socket or a device: leave it out",
            Self::InvalidName => "a name that no file may have: rename it",
            Self::Large => "too large: split it, or keep less",
            Self::Unreadable => "closed by its permissions: let its owner read it",
        })
    }
}
