//! Why the memory could not do what was asked.

use holdfast_types::{Fault, InvalidId, Kind};

/// Every way in which a call to the memory fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field holds what it may not.
    #[error("`{field}` {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it, and what is right.
        problem: String,
    },

    /// Something is kept of which nobody says where it comes from.
    #[error("`provenance` is missing: say where this comes from (kind and name)")]
    NoProvenance,

    /// An id in the request is none.
    #[error(transparent)]
    Id(#[from] InvalidId),

    /// There is no such thing in this tenant, or none that the caller may see.
    #[error("there is no {what} `{id}`")]
    NotFound {
        /// A thing of what kind.
        what: &'static str,
        /// What was asked for.
        id: String,
    },

    /// What is to be replaced is history already.
    #[error("`{id}` was replaced by `{by}`: read that one, and replace it if it is wrong")]
    Superseded {
        /// What was to be replaced.
        id: String,
        /// What counts in its place.
        by: String,
    },

    /// Only a maintainer may do that.
    #[error(
        "only who has the role `kb_maintainer` changes what the whole tenant knows: ask one, or \
         propose it"
    )]
    NotMaintainer,

    /// The privacy policy does not let this in.
    #[error("the privacy policy keeps this out of the knowledge base: it holds {0}")]
    Private(String),

    /// The article is no longer what the caller saw.
    #[error(
        "the article was changed meanwhile: it is at version {have}, not {given}; read it again"
    )]
    Changed {
        /// Its version.
        have: i32,
        /// The version that was given.
        given: u32,
    },

    /// The article is no longer what a proposal changes.
    #[error(
        "the article was changed after this was proposed, and is at version {have} now: decline the \
         proposal, and make of it what still holds"
    )]
    Stale {
        /// Its version.
        have: i32,
    },

    /// What became of a proposal is settled.
    #[error("the proposal was {0} already")]
    Decided(&'static str),

    /// There is no text of a PDF.
    #[error("`content` {0}")]
    Pdf(#[from] holdfast_pdf::Error),

    /// There are no vectors to be had.
    #[error(transparent)]
    Embed(#[from] holdfast_embed::Error),

    /// What is stored is not what this version can read.
    #[error("stored {0} cannot be read")]
    Corrupt(&'static str),

    /// The database failed in a way that says nothing about the request.
    #[error("the memory's store failed")]
    Store(#[from] sqlx::Error),
}

impl Error {
    pub(crate) fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Field { field, problem: problem.into() }
    }

    pub(crate) fn not_found(what: &'static str, id: &str) -> Self {
        // Names come from outside and may be huge.
        Self::NotFound { what, id: id.chars().take(80).collect() }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Field { .. } | Self::NoProvenance | Self::Id(_) | Self::Private(_) => {
                Kind::Invalid
            }
            Self::NotFound { .. } => Kind::NotFound,
            Self::NotMaintainer => Kind::Forbidden,
            Self::Superseded { .. }
            | Self::Changed { .. }
            | Self::Stale { .. }
            | Self::Decided(_) => Kind::Conflict,
            Self::Pdf(holdfast_pdf::Error::Busy) => Kind::Unavailable,
            Self::Pdf(holdfast_pdf::Error::NoReader) => Kind::Internal,
            Self::Pdf(_) => Kind::Invalid,
            Self::Embed(error) => error.kind(),
            Self::Corrupt(_) => Kind::Internal,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
