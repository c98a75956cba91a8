//! Why a model did not answer, by who can do something about it.
//!
//! No text here repeats a key, a prompt or what a provider wrote, save a code
//! that is one word.

use std::time::Duration;

use holdfast_types::{Fault, Kind, ModelId};
use serde::{Deserialize, Serialize};

/// Every way in which a model fails to answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tenant's key is wrong, or may not use this model.
    #[error("the model's provider refused the key: check the provider's api key and its rights")]
    Auth,

    /// The account behind the key is out of money.
    #[error(
        "the account with the model's provider is out of credit: top it up, or set another key"
    )]
    Quota,

    /// Too many requests for now.
    #[error("the model's provider takes no more requests for now: try again later")]
    RateLimited {
        /// When the provider says to come back.
        retry_after: Option<Duration>,
    },

    /// The conversation is longer than the model can read.
    #[error("the conversation is longer than the model can read: shorten it, or begin a new one")]
    ContextOverflow,

    /// The provider does not know the model, or the address is not a provider's.
    #[error("the provider has no model `{0}`: check the model's name and the provider's base url")]
    NoModel(String),

    /// The provider will never take this request.
    #[error("the model's provider refused the request with status {status} and code `{code}`")]
    BadRequest {
        /// The HTTP status.
        status: u16,
        /// The provider's word for it, or `none`.
        code: String,
    },

    /// The provider's filter kept the answer back.
    #[error("the model's provider kept the answer back: its content filter objects; rephrase it")]
    Filtered,

    /// There is no such provider.
    #[error("there is no model provider `{given}`: configure it, or use one of {known}")]
    NoProvider {
        /// What was asked for.
        given: String,
        /// What there is.
        known: String,
    },

    /// A provider's settings are not right.
    #[error("the settings of the model's provider are not right: {0}")]
    Setup(&'static str),

    /// The provider cannot be reached, or has trouble of its own.
    #[error("the model's provider is not available: try again later")]
    Unavailable {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// What the connection said.
        #[source]
        source: Option<anyhow::Error>,
    },

    /// The answer took too long.
    #[error("the model did not answer in time: try again, or allow it more time")]
    Timeout,

    /// The answer broke off.
    #[error("the model's answer broke off: try again")]
    Interrupted,

    /// What came cannot be read.
    #[error("the model's answer cannot be read: {0}")]
    Malformed(&'static str),

    /// The answer is too long.
    #[error("the model's answer is too long: {limit} is the most for its {what}")]
    TooLong {
        /// What of it.
        what: &'static str,
        /// The most, in bytes or in number.
        limit: usize,
    },

    /// The answer has neither text nor calls.
    #[error("the model's answer is empty: try again, or ask another way")]
    Empty,

    /// None of the models that were to be asked in turn has answered.
    #[error("none of the models answered: {}", classes(.tried))]
    AllFailed {
        /// Each model, and why it did not.
        tried: Vec<Tried>,
    },

    /// The answer is no longer wanted.
    #[error("the request was cancelled")]
    Cancelled,
}

impl Error {
    /// Its class in one word, for a metric's label.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::RateLimited { .. } => "rate_limited",
            Self::ContextOverflow => "context_overflow",
            Self::NoModel(_) => "no_model",
            Self::BadRequest { .. } => "bad_request",
            Self::Filtered => "filtered",
            Self::NoProvider { .. } => "no_provider",
            Self::Setup(_) => "setup",
            Self::Unavailable { .. } => "unavailable",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
            Self::Malformed(_) => "malformed",
            Self::TooLong { .. } => "too_long",
            Self::Empty => "empty",
            Self::AllFailed { .. } => "all_failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Why, as far as another model, another key or another time may help.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Auth => Reason::Auth,
            Self::Quota => Reason::Billing,
            Self::RateLimited { .. } => Reason::RateLimit,
            Self::ContextOverflow
            | Self::NoModel(_)
            | Self::BadRequest { .. }
            | Self::Filtered
            | Self::NoProvider { .. }
            | Self::Setup(_)
            | Self::TooLong { .. } => Reason::Format,
            // 529 is Anthropic's.
            Self::Unavailable { status: Some(503 | 529), .. } => Reason::Overloaded,
            Self::Unavailable { .. } | Self::Timeout | Self::Interrupted => Reason::Timeout,
            Self::AllFailed { tried } => tried.last().map_or(Reason::Unknown, |last| last.reason),
            Self::Malformed(_) | Self::Empty | Self::Cancelled => Reason::Unknown,
        }
    }
}

/// Why a model did not answer, as far as another model, another key or another time may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The key.
    Auth,
    /// Too many requests.
    RateLimit,
    /// No money.
    Billing,
    /// It took too long, or broke off, or the server has trouble.
    Timeout,
    /// What was asked, and how: it would fail again.
    Format,
    /// The server has too much to do.
    Overloaded,
    /// Something else.
    Unknown,
}

impl Reason {
    /// The word for it.
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

/// A model that did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Which.
    pub model: ModelId,
    /// The error's class, or `cooling` if it was not asked.
    pub class: &'static str,
    /// The error's reason.
    pub reason: Reason,
}

fn classes(tried: &[Tried]) -> String {
    let each: Vec<String> =
        tried.iter().map(|tried| format!("{} ({})", tried.model, tried.class)).collect();
    each.join(", ")
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Auth => Kind::Forbidden,
            Self::Quota | Self::RateLimited { .. } => Kind::Exhausted,
            Self::NoModel(_) | Self::NoProvider { .. } => Kind::NotFound,
            Self::ContextOverflow
            | Self::BadRequest { .. }
            | Self::Filtered
            | Self::Setup(_)
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
