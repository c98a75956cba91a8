//! Errors of the job store.

use holdfast_types::{Fault, Kind};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No job in this tenant with that name, or none that the caller may see.
    #[error("there is no job `{0}`")]
    NotFound(String),

    /// Several jobs match a short id.
    #[error("several jobs end in `{0}`: write the whole id")]
    Ambiguous(String),

    /// Another job has the external id.
    #[error("there is a job `{0}` already: take another id, or replace that one")]
    Taken(String),

    #[error("a job's {field} {problem}")]
    Field {
        field: &'static str,
        /// Problem and allowed values; completes the message's sentence.
        problem: String,
    },

    /// The payload's kind does not fit the session target.
    #[error("{0}")]
    Payload(&'static str),

    #[error("the schedule cannot be used: {0}")]
    Schedule(#[from] crate::store::Unplannable),

    #[error("the schedule never fires again: give it a time in the future")]
    Never,

    /// The job's version is not the one that the caller read.
    #[error("the job was changed meanwhile: it is at version {have}, not {given}; read it again")]
    Changed { have: i64, given: i64 },

    /// A limit on the number of jobs or reminders is reached.
    #[error("{whose} has {have} {what}, and {limit} is the most: remove some first")]
    TooMany {
        whose: &'static str,
        /// Counted things, in the plural.
        what: &'static str,
        have: i64,
        limit: i64,
    },

    #[error("{given} slots are more than {limit}, which is the most at once: ask for fewer")]
    TooManySlots { given: usize, limit: usize },

    /// A slot to backfill is in the future.
    #[error("the slot `{0}` is not past: only slots before now can be caught up with")]
    FutureSlot(String),

    /// A slot to backfill is older than the job's log, so it may have run already.
    #[error(
        "the job's log reaches back to {0} only, and slots before that may have run: \
         begin with a later one"
    )]
    ForgottenSlot(String),

    /// The keys that sign jobs are not read yet, or `secrets.kek` is not set.
    #[error("jobs cannot be signed yet: the keys for it are not read; is `secrets.kek` set?")]
    NoSigningKeys,

    /// A stored value is not one that this version can read.
    #[error("stored {0} cannot be read")]
    Corrupt(&'static str),

    #[error("{}", holdfast_pg::summary(.0))]
    Store(#[from] sqlx::Error),
}

impl Error {
    pub(crate) fn not_found(name: impl ToString) -> Self {
        // Names come from callers and may be huge.
        Self::NotFound(name.to_string().chars().take(80).collect())
    }

    pub(crate) fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Field { field, problem: problem.into() }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::NotFound(_) => Kind::NotFound,
            Self::Ambiguous(_)
            | Self::Field { .. }
            | Self::Payload(_)
            | Self::Schedule(_)
            | Self::Never
            | Self::TooManySlots { .. }
            | Self::FutureSlot(_)
            | Self::ForgottenSlot(_) => Kind::Invalid,
            Self::Taken(_) | Self::Changed { .. } => Kind::Conflict,
            Self::TooMany { .. } => Kind::Exhausted,
            Self::NoSigningKeys => Kind::Unavailable,
            Self::Corrupt(_) => Kind::Internal,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
