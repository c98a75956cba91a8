//! Errors of the store of todos, worklogs, tasks and the ledger.

use holdfast_types::{Fault, Kind};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("an operation id has 1 to 256 bytes, not {0}")]
    InvalidOperationId(usize),

    #[error("there is no todo `{0}`")]
    NotFound(String),

    #[error("{0}")]
    Refused(String),

    /// A stored value is not one that this version can read.
    #[error("stored {0} cannot be read")]
    Corrupt(&'static str),

    #[error("{}", holdfast_pg::summary(.0))]
    Store(#[from] sqlx::Error),
}

impl Error {
    pub(crate) fn not_found(code: &str) -> Self {
        // Codes come from callers and may be huge.
        Self::NotFound(code.chars().take(80).collect())
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::InvalidOperationId(_) | Self::Refused(_) => Kind::Invalid,
            Self::NotFound(_) => Kind::NotFound,
            Self::Corrupt(_) => Kind::Internal,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
