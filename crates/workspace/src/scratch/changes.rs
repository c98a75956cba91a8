//! What a command did to its folder.

use std::fmt;

use crate::Edit;

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// As edits of what it was given, in the order of their paths.
    pub edits: Vec<Edit>,
    /// What it left that cannot be in a tree, for it to be told. A file that something of the kind
    /// has replaced is not deleted.
    pub strays: Vec<Stray>,
}

/// Something that cannot be in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Where it is, for people to read.
    pub path: String,
    /// What it is.
    pub kind: StrayKind,
}

/// Why something cannot be in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrayKind {
    /// It is a symbolic link, wherever it points.
    Link,
    /// It is a pipe, a socket or a device.
    Special,
    /// Its name is no [`TreePath`](holdfast_types::TreePath).
    Name,
    /// It has more bytes than a file may have, or than there is room for with the others.
    Large,
    /// Its permissions keep even its owner out.
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
