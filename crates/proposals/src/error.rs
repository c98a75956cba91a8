//! Errors of proposals.

use holdfast_types::{Fault, Kind, ProposalId};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no proposal `{0}`")]
    NotFound(ProposalId),

    #[error("{0}")]
    Invalid(String),

    /// The state or the base does not allow it; nothing was changed.
    #[error("{0}")]
    Conflict(String),

    #[error("{0} proposals of the agent wait for a decision, which is the most")]
    TooMany(i64),

    /// A stored value is not one that this version can read.
    #[error("stored {0} cannot be read")]
    Corrupt(&'static str),

    #[error(transparent)]
    Directory(#[from] holdfast_directory::Error),

    #[error(transparent)]
    Workspace(#[from] holdfast_workspace::Error),

    #[error(transparent)]
    Work(#[from] holdfast_work::Error),

    #[error("{}", holdfast_pg::summary(.0))]
    Store(#[from] sqlx::Error),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::NotFound(_) => Kind::NotFound,
            Self::Invalid(_) => Kind::Invalid,
            Self::Conflict(_) => Kind::Conflict,
            Self::TooMany(_) => Kind::Exhausted,
            Self::Corrupt(_) => Kind::Internal,
            Self::Directory(error) => error.kind(),
            Self::Workspace(error) => error.kind(),
            Self::Work(error) => error.kind(),
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
