//! Why NATS was of no help.

use holdfast_types::{Fault, Kind};

/// Why NATS was of no help.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting cannot be used.
    #[error("`nats.{setting}` cannot be used: {what}")]
    Config {
        /// Which.
        setting: &'static str,
        /// What to write instead.
        what: &'static str,
    },
    /// It is not there, or did not answer in time.
    #[error("nats is not there")]
    Unavailable(#[source] Option<anyhow::Error>),
    /// An event is too large to be kept.
    #[error("the event has {size} bytes, and {limit} is the most")]
    TooLarge {
        /// How many it has.
        size: usize,
        /// How many it may have.
        limit: usize,
    },
    /// It refused what should have worked.
    #[error("nats refused: {0}")]
    Refused(#[source] anyhow::Error),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Config { .. } | Self::TooLarge { .. } => Kind::Invalid,
            Self::Unavailable(_) => Kind::Unavailable,
            Self::Refused(_) => Kind::Internal,
        }
    }
}
