//! Errors of models, by who can fix them.
//!
//! The texts never contain a key, a prompt or a provider's message, except a code that is a single
//! word. The provider's message is in the request's [`FailureLog`](crate::FailureLog).

use std::time::Duration;

use holdfast_egress::AddressRefusal;
use holdfast_types::{FailureClass, Fault, Kind, ModelId};
use serde::{Deserialize, Serialize};

/// Failure of a model request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The provider does not know the key.
    #[error("the model's provider refused the key: check the provider's api key")]
    Auth,

    /// The key may not be used for this request: its model, its region, or its content.
    #[error(
        "the model's provider refused the request of this key: check the key's rights, and whether it \
         may use the model"
    )]
    NotPermitted,

    /// The account behind the key is out of credit.
    #[error(
        "the account with the model's provider is out of credit: top it up, or set another key"
    )]
    Quota,

    #[error("the model's provider takes no more requests for now: try again later")]
    RateLimited {
        /// Delay that the provider asked for.
        retry_after: Option<Duration>,
    },

    /// The conversation exceeds the model's context window.
    #[error("the conversation is longer than the model can read: shorten it, or begin a new one")]
    ContextOverflow,

    /// The provider does not know the model, or the base URL is wrong.
    #[error("the provider has no model `{0}`: check the model's name and the provider's base url")]
    NoModel(String),

    /// The provider will never accept this request.
    #[error("the model's provider refused the request with status {status} and code `{code}`")]
    BadRequest {
        status: u16,
        /// Provider's error code, or `none`.
        code: String,
    },

    /// The provider does not take an option that the client asked for; its name.
    #[error("the model's provider does not take `{0}`: leave it out, or use another model")]
    UnsupportedOption(&'static str),

    /// The provider's content filter withheld the answer.
    #[error("the model's provider kept the answer back: its content filter objects; rephrase it")]
    Filtered,

    #[error("there is no model provider `{given}`: configure it, or use one of {known}")]
    NoProvider {
        given: String,
        /// Comma-separated names of the configured providers.
        known: String,
    },

    /// Invalid settings of a provider.
    #[error("the settings of the model's provider are not right: {0}")]
    Setup(&'static str),

    /// The provider's address may not be asked.
    #[error(
        "{0}: give the provider another base url, or have the operator list it in `egress.allow`"
    )]
    Address(#[from] AddressRefusal),

    /// The provider cannot be reached, or has an internal error.
    #[error("the model's provider is not available: try again later")]
    Unavailable {
        /// HTTP status; `None` without an answer.
        status: Option<u16>,
        #[source]
        source: Option<anyhow::Error>,
    },

    #[error("the model did not answer in time: try again, or allow it more time")]
    Timeout,

    /// The stream ended too early.
    #[error("the model's answer broke off: try again")]
    Interrupted,

    /// The answer cannot be parsed.
    #[error("the model's answer cannot be read: {0}")]
    Malformed(&'static str),

    #[error("the model's answer is too long: {limit} is the most for its {what}")]
    TooLong {
        /// Part that is too long.
        what: &'static str,
        /// Maximum, in bytes or items.
        limit: usize,
    },

    /// The answer has neither text nor calls.
    #[error("the model's answer is empty: try again, or ask another way")]
    Empty,

    /// All candidates of a fallback failed.
    #[error("none of the models answered: {}", classes(.tried))]
    AllFailed { tried: Vec<FailedCandidate> },

    /// The caller cancelled the request.
    #[error("the request was cancelled")]
    Cancelled,
}

impl Error {
    /// Class of the error, for a metric's label.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        let class = match self {
            Self::Auth | Self::NotPermitted => FailureClass::Auth,
            Self::Quota => FailureClass::Quota,
            Self::RateLimited { .. } => FailureClass::RateLimited,
            Self::ContextOverflow => FailureClass::ContextOverflow,
            Self::NoModel(_) => FailureClass::NoModel,
            Self::BadRequest { .. } => FailureClass::BadRequest,
            Self::UnsupportedOption(_) => FailureClass::UnsupportedParameter,
            Self::Filtered => FailureClass::Filtered,
            Self::NoProvider { .. } => FailureClass::NoProvider,
            Self::Setup(_) => FailureClass::Setup,
            Self::Address(_) => FailureClass::Address,
            Self::Unavailable { .. } => FailureClass::Unavailable,
            Self::Timeout => FailureClass::Timeout,
            Self::Interrupted => FailureClass::Interrupted,
            Self::Malformed(_) => FailureClass::Malformed,
            Self::TooLong { .. } => FailureClass::TooLong,
            Self::Empty => FailureClass::Empty,
            Self::AllFailed { .. } => FailureClass::AllFailed,
            Self::Cancelled => FailureClass::Cancelled,
        };
        class.as_str()
    }

    /// Reason, as far as another model, key or time may help.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Auth | Self::NotPermitted => Reason::Auth,
            Self::Quota => Reason::Billing,
            Self::RateLimited { .. } => Reason::RateLimit,
            Self::ContextOverflow
            | Self::NoModel(_)
            | Self::BadRequest { .. }
            | Self::UnsupportedOption(_)
            | Self::Filtered
            | Self::NoProvider { .. }
            | Self::Setup(_)
            | Self::Address(_)
            | Self::TooLong { .. } => Reason::Format,
            // 529 is Anthropic's status for an overload.
            Self::Unavailable { status: Some(503 | 529), .. } => Reason::Overloaded,
            Self::Unavailable { .. } | Self::Timeout | Self::Interrupted => Reason::Timeout,
            Self::AllFailed { tried } => tried.last().map_or(Reason::Unknown, |last| last.reason),
            Self::Malformed(_) | Self::Empty | Self::Cancelled => Reason::Unknown,
        }
    }
}

/// Reason of a failure, as far as another model, key or time may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    Auth,
    RateLimit,
    Billing,
    /// Timeout, broken stream, or a failing server.
    Timeout,
    /// The request itself is refused: it would fail again.
    Format,
    Overloaded,
    Unknown,
}

impl Reason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::RateLimit => "rate_limit",
            Self::Billing => "billing",
            Self::Timeout => "timeout",
            Self::Format => "format",
            Self::Overloaded => "overloaded",
            Self::Unknown => "unknown",
        }
    }
}

/// Failed candidate of a fallback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedCandidate {
    pub model: ModelId,
    /// Class of the error, or `cooling` if the model was not asked.
    pub class: &'static str,
    pub reason: Reason,
}

fn classes(tried: &[FailedCandidate]) -> String {
    let each: Vec<String> =
        tried.iter().map(|tried| format!("{} ({})", tried.model, tried.class)).collect();
    each.join(", ")
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Auth | Self::NotPermitted => Kind::Forbidden,
            Self::Quota | Self::RateLimited { .. } => Kind::Exhausted,
            Self::NoModel(_) | Self::NoProvider { .. } => Kind::NotFound,
            Self::ContextOverflow
            | Self::BadRequest { .. }
            | Self::UnsupportedOption(_)
            | Self::Filtered
            | Self::Setup(_)
            | Self::Address(_)
            | Self::TooLong { .. } => Kind::Invalid,
            Self::Unavailable { .. }
            | Self::Timeout
            | Self::Interrupted
            | Self::Malformed(_)
            | Self::Empty
            | Self::Cancelled => Kind::Unavailable,
            Self::AllFailed { tried } => {
                let all =
                    |reasons: &[Reason]| tried.iter().all(|tried| reasons.contains(&tried.reason));
                if all(&[Reason::Auth]) {
                    Kind::Forbidden
                } else if all(&[Reason::RateLimit, Reason::Billing]) {
                    Kind::Exhausted
                } else {
                    Kind::Unavailable
                }
            }
        }
    }
}
