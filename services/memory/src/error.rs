//! Errors of the memory service.

use holdfast_types::{Fault, InvalidId, Kind};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field has an invalid value.
    #[error("`{field}` {problem}")]
    Field {
        field: &'static str,
        /// Problem and allowed values; completes the message's sentence.
        problem: String,
    },

    /// The request does not say where the content comes from.
    #[error("`provenance` is missing: say where this comes from (kind and name)")]
    NoProvenance,

    #[error(transparent)]
    Id(#[from] InvalidId),

    /// The item does not exist in this tenant, or the caller may not see it.
    #[error("there is no {what} `{id}`")]
    NotFound {
        /// Kind of the missing item, such as `article`.
        what: &'static str,
        id: String,
    },

    /// The item to replace has been replaced already.
    #[error("`{id}` was replaced by `{by}`: read that one, and replace it if it is wrong")]
    Superseded {
        /// Item that was to be replaced.
        id: String,
        /// Current item.
        by: String,
    },

    #[error(
        "only who has the role `kb_maintainer` changes what the whole tenant knows: ask one, or \
         propose it"
    )]
    NotMaintainer,

    #[error("the privacy policy keeps this out of the knowledge base: it holds {0}")]
    Private(String),

    /// The article's version is not the one that the caller read.
    #[error(
        "the article was changed meanwhile: it is at version {have}, not {given}; read it again"
    )]
    Changed { have: i32, given: u32 },

    /// The article was changed after the proposal was made.
    #[error(
        "the article was changed after this was proposed, and is at version {have} now: decline the \
         proposal, and make of it what still holds"
    )]
    Stale { have: i32 },

    /// The proposal has another decision already.
    #[error("the proposal was {0} already")]
    Decided(&'static str),

    /// The file could not be read.
    #[error("`content` {0}")]
    Document(#[from] holdfast_documents::Error),

    #[error(transparent)]
    Embed(#[from] holdfast_embed::Error),

    /// A stored value is not one that this version can read.
    #[error("stored {0} cannot be read")]
    Corrupt(&'static str),

    #[error("{}", holdfast_pg::summary(.0))]
    Store(#[from] sqlx::Error),
}

impl Error {
    pub(crate) fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Field { field, problem: problem.into() }
    }

    pub(crate) fn not_found(what: &'static str, id: &str) -> Self {
        // Names come from callers and may be huge.
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
            Self::Document(holdfast_documents::Error::Busy) => Kind::Unavailable,
            Self::Document(holdfast_documents::Error::NoReader) => Kind::Internal,
            Self::Document(_) => Kind::Invalid,
            Self::Embed(error) => error.kind(),
            Self::Corrupt(_) => Kind::Internal,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
