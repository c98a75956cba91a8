//! Embedding errors, one variant for each reaction of the caller.
//!
//! Messages contain no API key, no text to embed and no response body.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_types::{Fault, Kind};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{given}` texts are more than the `{most}` that one call embeds: split them")]
    TooMany { given: usize, most: usize },

    /// The files of the local model are not in the configured directory.
    #[error(
        "the local embedder has no `{}`: fetch it with `make embedder` (deploy/dev/embedder.py), set \
         the directory that has it, or configure an embedding server", .0.display()
    )]
    Missing(PathBuf),

    /// A file of the local model exists but cannot be loaded.
    #[error(
        "the local embedder cannot use `{}`: delete its directory and fetch it again",
        path.display()
    )]
    Unusable {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    #[error("the embedder's configuration cannot be used: {0}")]
    Setup(&'static str),

    #[error("the embedding server refused the key: check it and its rights")]
    Auth,

    #[error("the embedding server takes no more requests for now: try again later")]
    RateLimited {
        /// Value of the `Retry-After` header, if there was one.
        retry_after: Option<Duration>,
    },

    /// The server refused the request with a status that a retry does not change.
    #[error(
        "the embedding server refused the request with status `{status}`: check the model's name \
         and the base url"
    )]
    Refused { status: u16 },

    /// The server cannot be reached, timed out, or failed.
    #[error("the embedding server did not answer: try again later")]
    Unavailable(#[source] Option<Box<dyn std::error::Error + Send + Sync>>),

    /// The response has the wrong shape, count or dimension.
    #[error("the embedding server's answer is of no use: {0}")]
    Answer(&'static str),

    #[error("the local embedder failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::TooMany { .. } => Kind::Invalid,
            Self::RateLimited { .. } => Kind::Exhausted,
            Self::Unavailable(_) => Kind::Unavailable,
            Self::Missing(_)
            | Self::Unusable { .. }
            | Self::Setup(_)
            | Self::Auth
            | Self::Refused { .. }
            | Self::Answer(_)
            | Self::Failed(_) => Kind::Internal,
        }
    }
}
