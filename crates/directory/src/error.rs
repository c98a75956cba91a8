//! Errors of the directory.

use holdfast_grpc::SecretsCallError;
use holdfast_types::{Fault, InvalidId, Kind};

/// Minimum length of the installation's secrets, in bytes.
pub(crate) const MIN_SECRET_BYTES: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such key. The message gives no reason, so that it confirms no part of a key.
    #[error("the key is not known: send `Authorization: Bearer hf_…` with a key of this platform")]
    UnknownKey,

    /// Too many keys without the mark of this installation are being checked.
    #[error("too many unknown keys are being checked: try again later, or create a new key")]
    TooManyUnknownKeys,

    /// The key is correct, but revoked or expired.
    #[error("the key was revoked or has expired: create another")]
    KeyNotActive,

    /// There is no such session of the console, or its holder may not sign in any more.
    #[error("the session has ended: sign in again")]
    SessionEnded,

    /// A sign-in link of the console. The message gives no reason, so that it confirms no part of one.
    #[error("the link was used before, has expired, or is not known: ask for another one")]
    LinkNotValid,

    /// The person was disabled in this tenant.
    #[error("you may not sign in to this tenant: ask one of its owners")]
    PersonDisabled,

    /// The tenant of the key is suspended.
    #[error("the tenant is suspended: ask whoever runs the platform")]
    TenantSuspended,

    /// The tenant has no such item.
    #[error("there is no {what} `{name}`")]
    NotFound {
        what: &'static str,
        /// Name by which the caller asked for it.
        name: String,
    },

    /// Another item has the name.
    #[error("there is {what} `{name}` already: take another name, or change that one")]
    Taken {
        /// Kind of the item, with its article.
        what: &'static str,
        name: String,
    },

    /// The request can never succeed as written.
    #[error("{0}")]
    Invalid(String),

    #[error(transparent)]
    Id(#[from] InvalidId),

    /// The current state does not allow the operation.
    #[error("{0}")]
    Conflict(String),

    /// The tenant has reached a limit.
    #[error("a tenant has {limit} {what} at most: delete some first")]
    TooMany {
        /// Kind of the items, in the plural.
        what: &'static str,
        limit: i64,
    },

    /// The model's provider is not set up.
    #[error("model `{model}` needs the provider `{provider}`, and there is none: set it up first")]
    NoProvider {
        model: String,
        /// Provider part of the model's id.
        provider: String,
    },

    /// No model was chosen, or the demonstration model where it does not answer.
    #[error(
        "there is no model: set up a provider with `holdfast setup`, or its default with `holdfast \
         providers put NAME --model MODEL`; the demonstration model answers nobody here \
         (`runner.demo_model`)"
    )]
    NoModel,

    /// The installation's key-encryption key is malformed.
    #[error("`secrets.kek` must be base64 of 32 bytes: make one with `openssl rand -base64 32`")]
    InvalidKek,

    /// A secret of the installation that this service was not given.
    #[error("`{0}` is not set in this service")]
    MissingSecret(&'static str),

    /// A secret of the installation that could be guessed; holds its setting and its length.
    #[error(
        "`{0}` has {1} bytes, and {MIN_SECRET_BYTES} are the least: make one with `openssl rand \
         -base64 32`"
    )]
    WeakSecret(&'static str, usize),

    /// A secret cannot be sealed or opened: the key-encryption key differs, or the row was moved or
    /// damaged.
    #[error(
        "{0} cannot be unsealed: is `secrets.kek`, or `secrets.previous_kek`, the one that it was \
         sealed with?"
    )]
    Unsealable(&'static str),

    /// The secrets service did not seal or open a secret.
    #[error(transparent)]
    SecretsService(#[from] SecretsCallError),

    /// Stored data that this version cannot read.
    #[error("stored {what} cannot be read")]
    Corrupt {
        /// Kind of the stored value.
        what: &'static str,
        #[source]
        source: anyhow::Error,
    },

    /// The database failed for a reason unrelated to the request.
    #[error("{}", holdfast_pg::summary(.0))]
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
            Self::UnknownKey | Self::KeyNotActive | Self::SessionEnded | Self::LinkNotValid => {
                Kind::Unauthenticated
            }
            Self::TenantSuspended | Self::PersonDisabled => Kind::Forbidden,
            Self::NotFound { .. } | Self::NoProvider { .. } | Self::NoModel => Kind::NotFound,
            Self::Taken { .. } | Self::Conflict(_) => Kind::Conflict,
            Self::Invalid(_) | Self::Id(_) | Self::InvalidKek | Self::WeakSecret(..) => {
                Kind::Invalid
            }
            Self::TooMany { .. } | Self::TooManyUnknownKeys => Kind::Exhausted,
            Self::MissingSecret(_) | Self::Unsealable(_) | Self::Corrupt { .. } => Kind::Internal,
            Self::SecretsService(error) => error.kind(),
            Self::Store(error) => holdfast_pg::kind(error),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::UnknownKey => "KEY_UNKNOWN",
            Self::KeyNotActive => "KEY_NOT_ACTIVE",
            Self::SessionEnded => "SESSION_ENDED",
            Self::LinkNotValid => "LINK_NOT_VALID",
            Self::TenantSuspended => "TENANT_SUSPENDED",
            Self::PersonDisabled => "PERSON_DISABLED",
            Self::NoProvider { .. } => "PROVIDER_NOT_FOUND",
            Self::NoModel => "MODEL_NOT_SET",
            Self::Taken { .. } => "NAME_TAKEN",
            Self::TooManyUnknownKeys
            | Self::NotFound { .. }
            | Self::Conflict(_)
            | Self::Invalid(_)
            | Self::Id(_)
            | Self::InvalidKek
            | Self::WeakSecret(..)
            | Self::TooMany { .. }
            | Self::MissingSecret(_)
            | Self::Unsealable(_)
            | Self::SecretsService(_)
            | Self::Corrupt { .. }
            | Self::Store(_) => self.kind().reason(),
        }
    }
}
