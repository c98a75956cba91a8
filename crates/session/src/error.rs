//! Why a verb of the protocol was refused.

use std::time::Duration;

use holdfast_types::{Fault, Kind};

/// Every way in which the protocol says no.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The same source and key came with another request.
    #[error("idempotency key `{0}` was already used for another request: use a new key")]
    RequestReused(String),

    /// The session has as many messages waiting as it may.
    #[error("{waiting} messages wait in this session already, and {limit} is the most: try again in {} s", retry_after.as_secs())]
    SessionFull {
        /// Messages that wait.
        waiting: i64,
        /// Messages that may.
        limit: i64,
        /// When to try again.
        retry_after: Duration,
    },

    /// The idempotency key has no bytes, or too many.
    #[error("an idempotency key is 1 to 256 bytes long, and this one has {0}")]
    IdemKey(usize),

    /// The session is another runner's now.
    #[error("the session was lost to another runner: epoch {held} is not the current one")]
    Fenced {
        /// The fence that the caller held.
        held: i64,
    },

    /// The journal does not end where the writer takes it to end: an earlier write of this claim,
    /// whose answer was lost, was made after all. [`load`](crate::Sessions::load) shows it.
    #[error("the journal moved since it was read: read the session again")]
    Overtaken,

    /// There is no such thing in this tenant.
    #[error("there is no {what} `{name}`")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// By which name.
        name: String,
    },

    /// It cannot be done to a thing in its state.
    #[error("{0}")]
    Conflict(String),

    /// What is stored is not what this version can read.
    #[error("stored {what} cannot be read")]
    Corrupt {
        /// What.
        what: &'static str,
        /// How so.
        #[source]
        source: serde_json::Error,
    },

    /// The database failed in a way that says nothing about the request.
    #[error("the session store failed")]
    Store(#[from] sqlx::Error),
}

impl Error {
    /// Whether the session is lost: stop, and write nothing more.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. })
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::RequestReused(_) | Self::Fenced { .. } | Self::Conflict(_) => Kind::Conflict,
            Self::SessionFull { .. } => Kind::Exhausted,
            Self::IdemKey(_) => Kind::Invalid,
            Self::NotFound { .. } => Kind::NotFound,
            Self::Corrupt { .. } => Kind::Internal,
            Self::Overtaken => Kind::Unavailable,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
