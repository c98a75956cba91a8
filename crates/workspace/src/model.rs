//! Arguments and results of the operations on a tree: files, edits, authors.

use std::fmt;

use holdfast_types::{RunId, SessionId, TreePath};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ContentHash, Error, Revision};

/// In bytes.
const MAX_KEY_BYTES: usize = 256;
const MAX_AUTHOR_CHARS: usize = 200;
const MAX_REASON_CHARS: usize = 2_000;

/// Entry of a file list, without the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    pub path: TreePath,
    /// Size of the content, in bytes.
    pub size: u64,
    pub hash: ContentHash,
    /// Revision that last changed the file.
    pub revision: Revision,
    pub changed_at: Timestamp,
}

#[derive(Clone, PartialEq, Eq)]
pub struct File {
    pub content: Vec<u8>,
    /// Hash of the content; the [`Base`] of an edit of this version.
    pub hash: ContentHash,
    /// Revision that last changed the file.
    pub revision: Revision,
    /// The content may have text from outside.
    pub outside: bool,
}

impl File {
    /// Content as text; `None` if it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.content).ok()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Contents must not appear in logs.
        write!(f, "File({}, {} bytes, {})", self.revision, self.content.len(), self.hash)
    }
}

/// Author, reason and idempotency key of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeAuthor {
    /// A person's id, an agent's name, or `holdfast`. 1 to 200 characters.
    pub author: String,
    /// Run of the turn, if an agent makes the change.
    pub run: Option<RunId>,
    /// One line for the history, up to 2,000 characters.
    pub reason: String,
    /// Idempotency key, 1 to 256 bytes. A repeated key changes nothing and returns the first
    /// outcome. Unique within the agent's tree, for as long as its history.
    pub key: Option<String>,
    /// The new contents may have text from outside. A file keeps this until a person changes it.
    pub outside: bool,
    /// Step of a behaviour that makes the change.
    pub step: Option<ChangeStep>,
}

/// Step of a behaviour, as the history of a tree names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeStep {
    pub session: SessionId,
    /// Name of the behaviour with its parameters.
    pub behavior: String,
    pub step: u32,
    /// Code of the todo that the step works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
}

impl ChangeAuthor {
    /// Author of a change outside of a turn, without a key.
    #[must_use]
    pub fn new(author: &str, reason: &str) -> Self {
        let (author, reason) = (author.to_owned(), reason.to_owned());
        Self { author, run: None, reason, key: None, outside: false, step: None }
    }

    /// Says whether the new contents may have text from outside.
    #[must_use]
    pub fn from_outside(self, outside: bool) -> Self {
        Self { outside, ..self }
    }

    #[must_use]
    pub fn in_step(self, step: Option<ChangeStep>) -> Self {
        Self { step, ..self }
    }

    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let author = self.author.chars().count();
        if !(1..=MAX_AUTHOR_CHARS).contains(&author) || self.author.contains(char::is_control) {
            return Err(Error::Invalid(format!(
                "an author's name has 1 to {MAX_AUTHOR_CHARS} characters and no control character, \
                 and this one {author}"
            )));
        }
        let reason = self.reason.chars().count();
        if reason > MAX_REASON_CHARS || self.reason.contains('\0') {
            return Err(Error::Invalid(format!(
                "a reason has {MAX_REASON_CHARS} characters at most and no NUL, and this one {reason}"
            )));
        }
        match self.key.as_deref() {
            Some(key) if !(1..=MAX_KEY_BYTES).contains(&key.len()) || key.contains('\0') => {
                Err(Error::Invalid(format!(
                    "an idempotency key has 1 to {MAX_KEY_BYTES} bytes and no NUL, and this one {}",
                    key.len()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Required state of a file before an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    Any,
    /// There must be no such file.
    Absent,
    /// The file must have this content, which the edit's author read.
    Hash(ContentHash),
}

#[derive(Clone, PartialEq, Eq)]
pub enum Edit {
    Put {
        path: TreePath,
        content: Vec<u8>,
        base: Base,
    },
    Delete {
        path: TreePath,
        /// With [`Base::Any`] the file must exist.
        base: Base,
    },
}

impl Edit {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitOutcome {
    /// Revision that the change made; the newest one if there was nothing to change.
    pub revision: Revision,
    pub changed: u32,
    /// Whether the change was made before: this is the first outcome of its key, or [`seed`] found
    /// a tree that was written to.
    ///
    /// [`seed`]: crate::Workspaces::seed
    pub repeated: bool,
}

/// Change of a file by a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub path: TreePath,
    /// `None` if the revision created the file.
    pub before: Option<ContentRef>,
    /// `None` if the revision deleted the file.
    pub after: Option<ContentRef>,
}

/// Hash and size of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRef {
    pub hash: ContentHash,
    /// Size of the content, in bytes.
    pub size: u64,
}

impl ContentRef {
    pub(crate) fn from_stored(
        hash: Option<Vec<u8>>,
        size: Option<i64>,
    ) -> Result<Option<Self>, Error> {
        let Some((hash, size)) = hash.zip(size) else { return Ok(None) };
        Ok(Some(Self { hash: ContentHash::stored(&hash)?, size: bytes_from_db(size) }))
    }
}

/// Converts a byte count from the database, where a check constraint excludes negative values.
pub(crate) fn bytes_from_db(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

/// Converts a byte count for the database; contents in memory always fit.
pub(crate) fn bytes_to_db(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

pub(crate) fn parse_stored_path(path: &str) -> Result<TreePath, Error> {
    path.parse().map_err(|_invalid| Error::Corrupt { what: "path" })
}
