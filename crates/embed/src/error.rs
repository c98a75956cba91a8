//! Why there are no vectors, by who can do something about it.
//!
//! No text here repeats a key, what was to be embedded or what a server wrote.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_types::{Fault, Kind};

/// Every way in which an embedder fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One call asked for too much.
    #[error("`{given}` texts are more than the `{most}` that one call embeds: split them")]
    TooMany {
        /// How many were given.
        given: usize,
        /// How many may be.
        most: usize,
    },

    /// The local model was never fetched.
    #[error(
        "the local embedder has no `{}`: fetch it with `make embedder` (deploy/dev/embedder.py), set \
         the directory that has it, or configure an embedding server", .0.display()
    )]
    Missing(PathBuf),

    /// A file of the local model is there and of no use.
    #[error(
        "the local embedder cannot use `{}`: delete its directory and fetch it again",
        path.display()
    )]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The configuration names something that cannot be used.
    #[error("the embedder's configuration cannot be used: {0}")]
    Setup(&'static str),

    /// The server refuses the key.
    #[error("the embedding server refused the key: check it and its rights")]
    Auth,

    /// The server takes no more for now.
    #[error("the embedding server takes no more requests for now: try again later")]
    RateLimited {
        /// When it says to come back.
        retry_after: Option<Duration>,
    },

    /// The server will never take this request.
    #[error(
        "the embedding server refused the request with status `{status}`: check the model's name \
         and the base url"
    )]
    Refused {
        /// The HTTP status.
        status: u16,
    },

    /// The server cannot be reached, is too slow, or failed.
    #[error("the embedding server did not answer: try again later")]
    Unavailable(#[source] Option<Box<dyn std::error::Error + Send + Sync>>),

    /// The server answered something else than was asked for.
    #[error("the embedding server's answer is of no use: {0}")]
    Answer(&'static str),

    /// The model in this process failed.
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
