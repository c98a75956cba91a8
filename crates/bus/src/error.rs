//! Failures of NATS calls.

use std::path::PathBuf;

use holdfast_types::{Fault, Kind};

/// Failure of a NATS call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`nats.{setting}` cannot be used: {what}")]
    Config {
        /// Name of the setting within `[nats]`.
        setting: &'static str,
        /// Valid form of the value.
        what: &'static str,
    },
    #[error("`nats.{setting}` is `{}`, which cannot be read", .path.display())]
    File {
        /// Name of the setting within `[nats]`.
        setting: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A question has to be signed.
    #[error("the keys of requests were not read yet, for which the database is needed")]
    NoRequestKeys,
    /// NATS is unreachable, or did not answer in time.
    #[error("nats is not there")]
    Unavailable(#[source] Option<anyhow::Error>),
    #[error("the event has {size} bytes, and {limit} is the most")]
    TooLarge {
        /// Size of the event, in bytes.
        size: usize,
        /// Maximum size of an event, in bytes.
        limit: usize,
    },
    /// NATS or JetStream rejected a valid request.
    #[error("nats refused: {0}")]
    Refused(#[source] anyhow::Error),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Config { .. } | Self::File { .. } | Self::TooLarge { .. } => Kind::Invalid,
            Self::Unavailable(_) | Self::NoRequestKeys => Kind::Unavailable,
            Self::Refused(_) => Kind::Internal,
        }
    }
}
