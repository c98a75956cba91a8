//! Why something could not be done with a tree.

use std::io;

use holdfast_types::{Fault, InvalidPath, Kind, TreePath};

use crate::{BranchState, Revision};

/// What somebody else did to a file meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// It was made, and the edit wanted none to be there.
    Created,
    /// It says something else than the edit was made for.
    Changed,
    /// It is not there any more.
    Deleted,
}

/// Every way in which a tree says no.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is not as the edit took it to be. Nothing of the change was made.
    #[error(
        "`{path}` was {} by {author} in revision {revision}, after you last read it: read it again, then decide",
        match clash { Clash::Created => "created", Clash::Changed => "changed", Clash::Deleted => "deleted" }
    )]
    Clash {
        /// Which file.
        path: TreePath,
        /// What was done to it.
        clash: Clash,
        /// Who did it.
        author: String,
        /// With which revision.
        revision: Revision,
    },

    /// Files that a branch changed were changed otherwise in its agent's tree since. Nothing of the
    /// patch was taken over.
    #[error(
        "{} changed on both sides since the copy was made{}: nothing was merged. read both, write \
         each as it is to be, then merge with them in `except`",
        named(paths),
        match more { 0 => String::new(), more => format!(", and {more} more") }
    )]
    Conflicts {
        /// The first of them.
        paths: Vec<TreePath>,
        /// How many more there are.
        more: usize,
    },

    /// Nothing is changed in a branch any more.
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

    /// An agent has as many branches as it may.
    #[error(
        "{limit} copies of these files wait to be merged, which is the most: merge or discard some"
    )]
    TooManyBranches {
        /// How many it may have.
        limit: i64,
    },

    /// A path would be a file and a folder at once.
    #[error("`{folder}` cannot be a file and a folder, and `{file}` is in it: take another name")]
    Folder {
        /// What would be both.
        folder: String,
        /// What is in it.
        file: String,
    },

    /// The key came with another change before.
    #[error("idempotency key `{0}` was already used for another change: use a new key")]
    KeyReused(String),

    /// A tree has no such revision.
    #[error("there is no revision {revision}: the newest is {head}")]
    NoRevision {
        /// Which was asked for.
        revision: Revision,
        /// The newest.
        head: Revision,
    },

    /// There is no such file or folder.
    #[error("there is no {what} `{name}`")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// By which name.
        name: String,
    },

    /// A file has too many bytes.
    #[error(
        "`{path}` has {bytes} bytes, {} more than a file may have ({limit}): split it, or keep less",
        bytes - limit
    )]
    FileTooLarge {
        /// Which file.
        path: TreePath,
        /// Its bytes.
        bytes: u64,
        /// The bytes that it may have.
        limit: u64,
    },

    /// A tree would have too many bytes.
    #[error(
        "the files would have {bytes} bytes together, {over} more than the {limit} that they may: delete what is not needed first"
    )]
    TreeTooLarge {
        /// What it would have.
        bytes: i64,
        /// What it may.
        limit: i64,
        /// How much too much that is.
        over: i64,
    },

    /// A tree would have too many files.
    #[error(
        "there would be {files} files, and {limit} is the most: delete what is not needed first"
    )]
    TooManyFiles {
        /// What it would have.
        files: i64,
        /// What it may.
        limit: u32,
    },

    /// An entry of an archive cannot be taken; nothing of the archive was.
    #[error("entry `{entry}` of the archive {problem}")]
    Archive {
        /// Its path, as the archive writes it, shortened.
        entry: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },

    /// An archive cannot be read; nothing of it was taken.
    #[error("the archive cannot be read: it must be a whole `.tar` or `.tar.gz`")]
    Unreadable(#[source] io::Error),

    /// It can never succeed as written.
    #[error("{0}")]
    Invalid(String),

    /// A path is not one.
    #[error(transparent)]
    Path(#[from] InvalidPath),

    /// The runner's disk did not do what was asked.
    #[error("cannot {what} on the runner's disk")]
    Disk {
        /// What was asked.
        what: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },

    /// What is stored is not what this version can read.
    #[error("stored {what} cannot be read")]
    Corrupt {
        /// What.
        what: &'static str,
    },

    /// The database failed in a way that says nothing about the request.
    #[error("the workspace store failed")]
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
            // Asking again helps once something was deleted, and no sooner.
            Self::TreeTooLarge { .. }
            | Self::TooManyFiles { .. }
            | Self::TooManyBranches { .. } => Kind::Exhausted,
            // A disk that is full or gone here may be well on another runner.
            Self::Disk { .. } => Kind::Unavailable,
            Self::Corrupt { .. } => Kind::Internal,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
