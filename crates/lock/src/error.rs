//! Why Redis was of no help.

use std::time::Duration;

use holdfast_types::{Fault, Kind};

/// Why Redis was of no help. All but the first say: go on without it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be used.
    #[error("`redis.url` cannot be used: write `redis://host:6379`, or `rediss://` for TLS")]
    Url(#[source] anyhow::Error),
    /// It did not answer in time.
    #[error("redis did not answer within {0:?}")]
    Silent(Duration),
    /// It failed a moment ago, and was not asked again yet.
    #[error("redis failed a moment ago")]
    Resting,
    /// It cannot be reached, or refused.
    #[error("redis failed")]
    Failed(#[source] anyhow::Error),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Url(_) => Kind::Invalid,
            Self::Silent(_) | Self::Resting | Self::Failed(_) => Kind::Unavailable,
        }
    }
}
