//! Errors of the operations on a tree.

use std::io;

use holdfast_types::{Fault, InvalidPath, Kind, TreePath};

use crate::{BranchState, Revision};

/// Change that another author made to a file after the edit's author read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// The edit requires that there is no such file.
    Created,
    /// The content differs from the edit's base.
    Changed,
    Deleted,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file differs from the edit's base. Nothing was changed.
    #[error(
        "`{path}` was {} by {author} in revision {revision}, after you last read it: read it again, then decide",
        match clash { Clash::Created => "created", Clash::Changed => "changed", Clash::Deleted => "deleted" }
    )]
    Clash {
        path: TreePath,
        clash: Clash,
        author: String,
        /// Revision that changed the file.
        revision: Revision,
    },

    /// Files were changed differently in a branch and in its agent's tree. Nothing was merged.
    #[error(
        "{} changed on both sides since the copy was made{}: nothing was merged. read both, write \
         each as it is to be, then merge with them in `except`",
        named(paths),
        match more { 0 => String::new(), more => format!(", and {more} more") }
    )]
    Conflicts {
        /// The first 20 conflicts, ordered by path.
        paths: Vec<TreePath>,
        /// Number of conflicts that are not in `paths`.
        more: usize,
    },

    /// A branch is not open and cannot be changed.
    #[error(
        "the copy of the files that this worked on {}: nothing more is changed in it",
        match .0 {
            BranchState::Open => "is open",
            BranchState::Merged => "was merged",
            BranchState::Discarded => "was discarded",
            BranchState::Gone => "is gone",
        }
    )]
    Closed(BranchState),

    #[error(
        "{limit} copies of these files wait to be merged, which is the most: merge or discard some"
    )]
    TooManyBranches { limit: i64 },

    #[error("`{folder}` cannot be a file and a folder, and `{file}` is in it: take another name")]
    Folder {
        /// Path that would be both.
        folder: String,
        file: String,
    },

    /// The idempotency key was used for another change.
    #[error("idempotency key `{0}` was already used for another change: use a new key")]
    KeyReused(String),

    #[error("there is no revision {revision}: the newest is {head}")]
    NoRevision {
        revision: Revision,
        /// Newest revision of the tree.
        head: Revision,
    },

    /// No such file, folder or branch.
    #[error("there is no {what} `{name}`")]
    NotFound {
        /// Kind of thing, such as `file`.
        what: &'static str,
        name: String,
    },

    #[error(
        "`{path}` has {bytes} bytes, {} more than a file may have ({limit}): split it, or keep less",
        bytes - limit
    )]
    FileTooLarge { path: TreePath, bytes: u64, limit: u64 },

    #[error(
        "the files would have {bytes} bytes together, {over} more than the {limit} that they may: delete what is not needed first"
    )]
    TreeTooLarge { bytes: i64, limit: i64, over: i64 },

    #[error(
        "the files of all agents here would have {bytes} bytes together, and the tenant's plan \
         allows {limit}: delete what is not needed first, or ask whoever runs the installation for \
         another plan"
    )]
    StorageFull { bytes: i64, limit: i64 },

    #[error(
        "there would be {files} files, and {limit} is the most: delete what is not needed first"
    )]
    TooManyFiles { files: i64, limit: u32 },

    /// An entry of an archive is refused. Nothing was imported.
    #[error("entry `{entry}` of the archive {problem}")]
    Archive {
        /// Path in the archive, shortened to 80 characters, without control characters.
        entry: String,
        /// The problem, and how to fix it.
        problem: String,
    },

    /// An archive cannot be read. Nothing was imported.
    #[error("the archive cannot be read: it must be a whole `.tar` or `.tar.gz`")]
    Unreadable(#[source] io::Error),

    /// The request is invalid and cannot succeed when repeated.
    #[error("{0}")]
    Invalid(String),

    #[error(transparent)]
    Path(#[from] InvalidPath),

    /// An operation on the runner's disk failed.
    #[error("cannot {what} on the runner's disk")]
    Disk {
        /// Operation, as a verb phrase.
        what: &'static str,
        #[source]
        source: io::Error,
    },

    /// A stored value cannot be read by this version.
    #[error("stored {what} cannot be read")]
    Corrupt { what: &'static str },

    /// The database failed for a reason other than the request.
    #[error("{}", holdfast_pg::summary(.0))]
    Store(#[from] sqlx::Error),
}

fn named(paths: &[TreePath]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
    paths.join(", ")
}

impl Error {
    pub(crate) fn not_found(what: &'static str, name: impl ToString) -> Self {
        Self::NotFound { what, name: name.to_string() }
    }

    pub(crate) fn disk(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { what, source }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Clash { .. }
            | Self::Conflicts { .. }
            | Self::KeyReused(_)
            | Self::Folder { .. } => Kind::Conflict,
            Self::NotFound { .. } | Self::NoRevision { .. } => Kind::NotFound,
            Self::FileTooLarge { .. }
            | Self::Closed(_)
            | Self::Archive { .. }
            | Self::Unreadable(_)
            | Self::Invalid(_)
            | Self::Path(_) => Kind::Invalid,
            // A repetition helps only after something was deleted.
            Self::TreeTooLarge { .. }
            | Self::StorageFull { .. }
            | Self::TooManyFiles { .. }
            | Self::TooManyBranches { .. } => Kind::Exhausted,
            // The disk of another runner may work.
            Self::Disk { .. } => Kind::Unavailable,
            Self::Corrupt { .. } => Kind::Internal,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::StorageFull { .. } => "STORAGE_LIMIT_REACHED",
            other => other.kind().reason(),
        }
    }
}
