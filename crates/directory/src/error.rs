//! Why the directory could not do what was asked.

use holdfast_types::{Fault, InvalidId, Kind};

/// Every way in which the directory says no.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key is not one that was made here. It is not told why: no part of it is confirmed.
    #[error("the key is not known: send `Authorization: Bearer hf_…` with a key of this platform")]
    UnknownKey,

    /// The key is right and does not count any more.
    #[error("the key was revoked or has expired: create another")]
    EndedKey,

    /// The key's tenant is suspended.
    #[error("the tenant is suspended: ask whoever runs the platform")]
    Suspended,

    /// There is no such thing in this tenant.
    #[error("there is no {what} `{name}`")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// By which name.
        name: String,
    },

    /// A name is another's.
    #[error("there is {what} `{name}` already: take another name, or change that one")]
    Taken {
        /// What, with its article.
        what: &'static str,
        /// Which name.
        name: String,
    },

    /// It can never succeed as written.
    #[error("{0}")]
    Invalid(String),

    /// An id is not one.
    #[error(transparent)]
    Id(#[from] InvalidId),

    /// It cannot be done as things stand.
    #[error("{0}")]
    Conflict(String),

    /// The tenant has as many as it may.
    #[error("a tenant has {limit} {what} at most: delete some first")]
    TooMany {
        /// What, in the plural.
        what: &'static str,
        /// How many are allowed.
        limit: i64,
    },

    /// The model's provider is not set up.
    #[error("model `{model}` needs the provider `{provider}`, and there is none: set it up first")]
    NoProvider {
        /// The model.
        model: String,
        /// The provider that it names.
        provider: String,
    },

    /// The platform's key-encryption key cannot be used.
    #[error("`secrets.kek` must be base64 of 32 bytes: make one with `openssl rand -base64 32`")]
    Kek,

    /// A secret cannot be sealed or opened: the key-encryption key is another, or the row was
    /// moved or damaged.
    #[error("{0} cannot be unsealed: is `secrets.kek` the one that it was sealed with?")]
    Sealed(&'static str),

    /// What is stored is not what this version can read.
    #[error("stored {what} cannot be read")]
    Corrupt {
        /// What.
        what: &'static str,
        /// How so.
        #[source]
        source: anyhow::Error,
    },

    /// The database failed in a way that says nothing about the request.
    #[error("the directory's store failed")]
    Store(#[from] sqlx::Error),
}

impl Error {
    pub(crate) fn not_found(what: &'static str, name: impl ToString) -> Self {
        // Names come from outside and may be huge.
        Self::NotFound { what, name: name.to_string().chars().take(80).collect() }
    }

    pub(crate) fn taken(what: &'static str, name: impl ToString) -> Self {
        Self::Taken { what, name: name.to_string() }
    }

    pub(crate) fn corrupt(what: &'static str, source: impl Into<anyhow::Error>) -> Self {
        Self::Corrupt { what, source: source.into() }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::UnknownKey | Self::EndedKey => Kind::Unauthenticated,
            Self::Suspended => Kind::Forbidden,
            Self::NotFound { .. } | Self::NoProvider { .. } => Kind::NotFound,
            Self::Taken { .. } | Self::Conflict(_) => Kind::Conflict,
            Self::Invalid(_) | Self::Id(_) | Self::Kek => Kind::Invalid,
            Self::TooMany { .. } => Kind::Exhausted,
            Self::Sealed(_) | Self::Corrupt { .. } => Kind::Internal,
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }
}
