//! What goes in and out of a tree.

use std::fmt;

use holdfast_types::{RunId, TreePath};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ContentHash, Error};

/// The most bytes of an idempotency key.
const LONGEST_KEY: usize = 256;
const LONGEST_AUTHOR: usize = 200;
const LONGEST_REASON: usize = 2_000;

/// A state of a tree. Each change makes the next one, from 1 up; 0 is the empty tree before the
/// first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Revision(i64);

impl Revision {
    /// The empty tree before the first change.
    pub const EMPTY: Self = Self(0);

    /// Its number.
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

/// A file as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Where it is.
    pub path: TreePath,
    /// Its bytes.
    pub size: u64,
    /// What it says.
    pub hash: ContentHash,
    /// The revision that changed it last.
    pub revision: Revision,
    /// When that was.
    pub changed_at: Timestamp,
}

/// A file.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// What it says.
    pub content: Vec<u8>,
    /// The same in 32 bytes: what an edit of it gives as its [`Base`].
    pub hash: ContentHash,
    /// The revision that changed it last.
    pub revision: Revision,
}

impl File {
    /// Its text; `None` if it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.content).ok()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a file says is nobody's business in a log.
        write!(f, "File({}, {} bytes, {})", self.revision, self.content.len(), self.hash)
    }
}

/// Who changes a tree, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// Who: a person's id, an agent's name, `holdfast`. 1 to 200 characters.
    pub author: String,
    /// In which turn, if it was an agent.
    pub run: Option<RunId>,
    /// Why, in a line, for whoever reads the history. Up to 2,000 characters.
    pub reason: String,
    /// The idempotency key: the same one again changes nothing and answers with the first
    /// revision. 1 to 256 bytes; it counts within the agent's tree, for as long as its history.
    pub key: Option<String>,
}

impl By {
    /// Somebody who changes it once, outside of a turn.
    #[must_use]
    pub fn author(author: &str, reason: &str) -> Self {
        Self { author: author.to_owned(), run: None, reason: reason.to_owned(), key: None }
    }

    /// The same with an idempotency key.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let author = self.author.chars().count();
        if !(1..=LONGEST_AUTHOR).contains(&author) || self.author.contains(char::is_control) {
            return Err(Error::Invalid(format!(
                "an author's name has 1 to {LONGEST_AUTHOR} characters and no control character, \
                 and this one {author}"
            )));
        }
        let reason = self.reason.chars().count();
        if reason > LONGEST_REASON || self.reason.contains('\0') {
            return Err(Error::Invalid(format!(
                "a reason has {LONGEST_REASON} characters at most and no NUL, and this one {reason}"
            )));
        }
        match self.key.as_deref() {
            Some(key) if !(1..=LONGEST_KEY).contains(&key.len()) || key.contains('\0') => {
                Err(Error::Invalid(format!(
                    "an idempotency key has 1 to {LONGEST_KEY} bytes and no NUL, and this one {}",
                    key.len()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// What a file must be for an edit to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// Whatever it is.
    Any,
    /// There must be none.
    Absent,
    /// It must say this: what the editor read.
    Hash(ContentHash),
}

/// One file's part of a change.
#[derive(Clone, PartialEq, Eq)]
pub enum Edit {
    /// The file is to say this.
    Put {
        /// Which file.
        path: TreePath,
        /// What it is to say: any bytes, or none.
        content: Vec<u8>,
        /// What it must be before.
        base: Base,
    },
    /// The file is to go.
    Delete {
        /// Which file.
        path: TreePath,
        /// What it must be before; with [`Base::Any`] it must only be there.
        base: Base,
    },
}

impl Edit {
    /// Which file.
    #[must_use]
    pub const fn path(&self) -> &TreePath {
        match self {
            Self::Put { path, .. } | Self::Delete { path, .. } => path,
        }
    }
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { path, content, base } => {
                write!(f, "Put({path:?}, {} bytes, {base:?})", content.len())
            }
            Self::Delete { path, base } => write!(f, "Delete({path:?}, {base:?})"),
        }
    }
}

/// What a change came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The tree as it is after the change; the newest one if there was nothing to change.
    pub revision: Revision,
    /// How many files it changed.
    pub changed: u32,
    /// Its key was known, and this is what came of it the first time.
    pub repeated: bool,
}

/// What a revision did to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Which file.
    pub path: TreePath,
    /// What it said before; `None` if it was not there.
    pub before: Option<Said>,
    /// What it said after; `None` if it was deleted.
    pub after: Option<Said>,
}

/// What a file says, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// Its content.
    pub hash: ContentHash,
    /// Its bytes.
    pub size: u64,
}

impl Said {
    pub(crate) fn stored(hash: Option<Vec<u8>>, size: Option<i64>) -> Result<Option<Self>, Error> {
        let Some((hash, size)) = hash.zip(size) else { return Ok(None) };
        Ok(Some(Self { hash: ContentHash::stored(&hash)?, size: unsigned(size) }))
    }
}

/// A number of bytes as the database keeps it; a check constraint keeps it from being negative.
pub(crate) fn unsigned(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

/// A number of bytes for the database. No content in memory has more than it takes.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

pub(crate) fn stored_path(path: &str) -> Result<TreePath, Error> {
    path.parse().map_err(|_invalid| Error::Corrupt { what: "path" })
}
