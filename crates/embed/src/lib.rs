//! Text embedding: vectors whose cosine says how similar two texts are in meaning.
//!
//! | embedder | purpose |
//! |---|---|
//! | [`HashEmbedder`] | tests: no model, deterministic, similar where words are shared |
//! | [`OpenAi`] | any server that implements `/v1/embeddings` |
//! | `Local` (feature `local`) | all-MiniLM-L6-v2 in this process, by ONNX Runtime; no network |
//!
//! Every vector has length 1, so that a dot product is a cosine. Vectors of different models cannot
//! be compared: store [`Embedder::model`] and the dimension with each.
//!
//! Nothing here retries: the caller that has a deadline does.

mod error;
mod hash_embedder;
#[cfg(feature = "local")]
mod local;
mod openai;
mod unit;

use std::fmt;

use futures::future::BoxFuture;

pub use error::Error;
pub use hash_embedder::HashEmbedder;
#[cfg(feature = "local")]
pub use local::{Config as LocalConfig, Local};
pub use openai::{Config as OpenAiConfig, OpenAi};

/// Maximum number of texts in one call.
pub const MAX_TEXTS: usize = 256;

/// Use of an embedded text. Some models want another prefix for each use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    Question,
    Passage,
}

pub trait Embedder: fmt::Debug + Send + Sync {
    /// Returns the model's name. Another version of a model must have another name.
    fn model(&self) -> &str;

    /// Returns the number of values in each vector.
    fn dimension(&self) -> usize;

    /// Returns one vector of length 1 for each text, in the order of the texts. Texts longer than
    /// the model's input are truncated, or refused by a server; a blank text may give a vector of
    /// zeros.
    ///
    /// Dropping the future stops the work after the current batch.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] above [`MAX_TEXTS`]; otherwise the embedder's own error.
    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, Error>>;
}

fn check_count(texts: &[String]) -> Result<(), Error> {
    let given = texts.len();
    if given > MAX_TEXTS { Err(Error::TooMany { given, most: MAX_TEXTS }) } else { Ok(()) }
}
