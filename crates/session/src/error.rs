//! Errors of the session protocol.

use std::{path::PathBuf, time::Duration};

use holdfast_types::{Fault, Kind, SessionId};

/// Every way in which the protocol says no.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The same source and key were used for another request.
    #[error("idempotency key `{0}` was already used for another request: use a new key")]
    RequestReused(String),

    /// The session has a newer message than the one that the request continues.
    #[error("the session has a newer message than the one that this request continues")]
    NotNewest,

    /// The session's inbox is full.
    #[error("{waiting} messages wait in this session already, and {limit} is the most: try again in {} s", retry_after.as_secs())]
    SessionFull {
        /// Unfinished messages in the session.
        waiting: i64,
        /// Maximum number of unfinished messages.
        limit: i64,
        /// Delay before the next try.
        retry_after: Duration,
    },

    /// The tenant has as many sessions as it may.
    #[error(
        "the tenant has {limit} sessions, which is the most: delete some, or have its limit raised"
    )]
    TooManySessions {
        /// Maximum number of sessions.
        limit: i64,
    },

    /// The idempotency key is empty or too long; the value is its length in bytes.
    #[error("an idempotency key is 1 to 256 bytes long, and this one has {0}")]
    InvalidIdemKey(usize),

    /// The claim is not current: another runner has the session.
    #[error("the session was lost to another runner: epoch {held} is not the current one")]
    Fenced {
        /// Epoch of the caller's claim.
        held: i64,
    },

    /// The journal does not end where the writer expects, or the inbox has another message in the
    /// place of one that the writer has read. Either an earlier write of this claim, whose response was
    /// lost, was made after all, or a failover of the database lost commits;
    /// [`load`](crate::Sessions::load) shows it.
    #[error("the journal or the inbox changed since it was read: read the session again")]
    JournalMoved,

    /// Another transaction has locked the session's lease.
    #[error("the lease is locked by another transaction: try again")]
    LeaseLocked,

    /// The tenant has no such item.
    #[error("there is no {what} `{name}`")]
    NotFound {
        what: &'static str,
        /// Name by which the caller asked for it.
        name: String,
    },

    /// The item's state does not allow the operation.
    #[error("{0}")]
    Conflict(String),

    /// Stored JSON that this version cannot read.
    #[error("stored {what} cannot be read")]
    Corrupt {
        /// Kind of the stored value.
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },

    /// One of several sessions could not be handled.
    #[error("session `{session}` was left out")]
    Session {
        session: SessionId,
        #[source]
        source: Box<Self>,
    },

    /// Rows that retention would delete could not be archived, and are kept.
    #[error("nothing can be archived in `{}`: make it a folder with room that this process may write to; old rows are kept until then", folder.display())]
    Archive {
        folder: PathBuf,
        #[source]
        source: std::io::Error,
    },

    /// The database failed for a reason unrelated to the request.
    #[error("{}", holdfast_pg::summary(.0))]
    Store(#[from] sqlx::Error),
}

impl Error {
    /// Whether the session is lost: the caller must stop and write nothing more.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. })
    }

    /// Adds the session to an error of an operation on many sessions.
    pub(crate) fn in_session(self, session: SessionId) -> Self {
        Self::Session { session, source: Box::new(self) }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::RequestReused(_) | Self::NotNewest | Self::Fenced { .. } | Self::Conflict(_) => {
                Kind::Conflict
            }
            Self::SessionFull { .. } | Self::TooManySessions { .. } => Kind::Exhausted,
            Self::InvalidIdemKey(_) => Kind::Invalid,
            Self::NotFound { .. } => Kind::NotFound,
            Self::Corrupt { .. } => Kind::Internal,
            Self::JournalMoved | Self::LeaseLocked | Self::Archive { .. } => Kind::Unavailable,
            Self::Session { source, .. } => source.kind(),
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::RequestReused(_) => "REQUEST_ID_REUSED",
            Self::NotNewest => "NOT_NEWEST_MESSAGE",
            Self::SessionFull { .. } => "SESSION_FULL",
            Self::TooManySessions { .. } => "SESSION_LIMIT_REACHED",
            Self::InvalidIdemKey(_) => "REQUEST_ID_INVALID",
            Self::Session { source, .. } => source.reason(),
            Self::Fenced { .. }
            | Self::JournalMoved
            | Self::LeaseLocked
            | Self::NotFound { .. }
            | Self::Conflict(_)
            | Self::Corrupt { .. }
            | Self::Archive { .. }
            | Self::Store(_) => self.kind().reason(),
        }
    }
}
