//! Failures of Redis calls.

use std::time::Duration;

use holdfast_types::{Fault, Kind};

/// Failure of a Redis call. All but the first mean: go on without Redis.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`redis.url` cannot be used: write `redis://host:6379`, or `rediss://` for TLS")]
    Url(#[source] anyhow::Error),
    #[error("redis did not answer within {0:?}")]
    TimedOut(Duration),
    /// Redis failed a moment ago and is not asked again yet.
    #[error("redis failed a moment ago")]
    Resting,
    /// Redis is unreachable, or refused the call.
    #[error("redis failed")]
    Failed(#[source] anyhow::Error),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Url(_) => Kind::Invalid,
            Self::TimedOut(_) | Self::Resting | Self::Failed(_) => Kind::Unavailable,
        }
    }
}
