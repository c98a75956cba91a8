//! Failures of Redis calls.

use std::{path::PathBuf, time::Duration};

use holdfast_kit::tls::TlsProblem;
use holdfast_types::{Fault, Kind};
use redis::ErrorKind;

/// Failure of a Redis call. All but the first mean: go on without Redis.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`redis.url` cannot be used: write `redis://host:6379`, or `rediss://` for TLS")]
    Url(#[source] anyhow::Error),
    #[error("`redis.{setting}` is `{}`, which cannot be read", .path.display())]
    File {
        setting: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "`redis.certificate` and `redis.private_key` belong together: name both files, or none"
    )]
    HalfOfCertificate,
    #[error("redis did not answer within {0:?}")]
    TimedOut(Duration),
    /// Redis failed a moment ago and is not asked again yet.
    #[error("redis failed a moment ago")]
    Resting,
    /// Redis is unreachable, or refused the call.
    #[error("redis failed")]
    Failed(#[source] redis::RedisError),
}

impl Error {
    /// What to do about an error that a person must remove; `None` for others.
    pub(crate) fn advice(&self) -> Option<String> {
        let Self::Failed(error) = self else { return None };
        let text = error.to_string();
        if matches!(error.kind(), ErrorKind::AuthenticationFailed)
            || ["WRONGPASS", "NOAUTH"].iter().any(|code| text.contains(code))
        {
            return Some("set user and password in `redis.url`".to_owned());
        }
        if text.contains("NOPERM") || error.code() == Some("NOPERM") {
            return Some(
                "give the user the rights that docs/operating.md lists for this service".to_owned(),
            );
        }
        TlsProblem::find(error).map(|problem| match problem {
            TlsProblem::Refused(_) => format!(
                "{problem}; name a certificate that it trusts by `redis.certificate` and \
                 `redis.private_key`"
            ),
            problem => problem.with_remedy("`redis.authorities`"),
        })
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Url(_) | Self::File { .. } | Self::HalfOfCertificate => Kind::Invalid,
            Self::TimedOut(_) | Self::Resting | Self::Failed(_) => Kind::Unavailable,
        }
    }
}
