//! Why something could not be done with a job.

use holdfast_types::{Fault, Kind};

/// Every way in which the store of jobs says no.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such job in this tenant, or none that the caller may see.
    #[error("there is no job `{0}`")]
    NotFound(String),

    /// Several jobs are called so.
    #[error("several jobs end in `{0}`: write the whole id")]
    Ambiguous(String),

    /// Its id is another job's.
    #[error("there is a job `{0}` already: take another id, or replace that one")]
    Taken(String),

    /// A field holds what it may not.
    #[error("a job's {field} {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it, and what is right.
        problem: String,
    },

    /// What is to be done does not fit where.
    #[error("{0}")]
    Payload(&'static str),

    /// A change names what cannot be changed.
    #[error("`{field}` cannot be changed: only {} can", crate::MUTABLE.join(", "))]
    NotMutable {
        /// What it names.
        field: String,
    },

    /// The schedule is not one.
    #[error("the schedule cannot be used: {0}")]
    Schedule(#[from] crate::Unplannable),

    /// The schedule has no slot left.
    #[error("the schedule never fires again: give it a time in the future")]
    Never,

    /// The job is no longer what the caller saw.
    #[error("the job was changed meanwhile: it is at version {have}, not {given}; read it again")]
    Changed {
        /// Its version.
        have: i64,
        /// The version that was given.
        given: i64,
    },

    /// There are as many as there may be.
    #[error("{whose} has {have} {what}, and {limit} is the most: remove some first")]
    TooMany {
        /// Who.
        whose: &'static str,
        /// Of what, in the plural.
        what: &'static str,
        /// How many there are.
        have: i64,
        /// How many there may be.
        limit: i64,
    },

    /// More at once than one request may ask for.
    #[error("{given} slots are more than {limit}, which is the most at once: ask for fewer")]
    TooManySlots {
        /// How many were given.
        given: usize,
        /// How many may be.
        limit: usize,
    },

    /// A slot to catch up with is still to come.
    #[error("the slot `{0}` is not past: only slots before now can be caught up with")]
    FutureSlot(String),

    /// A slot to catch up with is older than the job's log.
    #[error(
        "the job's log reaches back to {0} only, and slots before that may have run: \
         begin with a later one"
    )]
    ForgottenSlot(String),

    /// What is stored is not what this version can read.
    #[error("stored {0} cannot be read")]
    Corrupt(&'static str),

    /// The database failed in a way that says nothing about the request.
    #[error("the store of jobs failed")]
    Store(#[from] sqlx::Error),
}

impl Error {
    pub(crate) fn not_found(name: impl ToString) -> Self {
        // Names come from outside and may be huge.
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
            | Self::NotMutable { .. }
            | Self::Schedule(_)
            | Self::Never
            | Self::TooManySlots { .. }
            | Self::FutureSlot(_)
            | Self::ForgottenSlot(_) => Kind::Invalid,
            Self::Taken(_) | Self::Changed { .. } => Kind::Conflict,
            Self::TooMany { .. } => Kind::Exhausted,
            Self::Corrupt(_) => Kind::Internal,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
