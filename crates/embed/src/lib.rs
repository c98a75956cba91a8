//! Turning texts into vectors whose angle says how near their meanings are.
//!
//! | embedder | what it is for |
//! |---|---|
//! | [`Hashed`] | tests: no model, always the same, near where words are shared |
//! | [`OpenAi`] | any server that speaks `/v1/embeddings` |
//! | `Local` (feature `local`) | all-MiniLM-L6-v2 in this process, by ONNX Runtime; no network |
//!
//! Every vector has length 1, so that a dot product is a cosine. Vectors of different models cannot
//! be compared: store [`Embedder::model`] and the dimension with each.
//!
//! Nothing here retries: whoever has a deadline does.

mod error;
mod hashed;
#[cfg(feature = "local")]
mod local;
mod openai;
mod unit;

use std::fmt;

use futures::future::BoxFuture;

pub use error::Error;
pub use hashed::Hashed;
#[cfg(feature = "local")]
pub use local::{Config as LocalConfig, Local};
pub use openai::{Config as OpenAiConfig, OpenAi};

/// The most texts that one call takes.
pub const MOST_TEXTS: usize = 256;

/// What a text is embedded for; some models want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// To search with.
    Question,
    /// To be found.
    Passage,
}

/// Something that turns texts into vectors.
pub trait Embedder: fmt::Debug + Send + Sync {
    /// The model's name, of which another version is another name.
    fn model(&self) -> &str;

    /// How many numbers a vector has.
    fn dimension(&self) -> usize;

    /// One vector of length 1 for each text, in their order. What is longer than the model can
    /// read is cut (a server may refuse it instead), and a blank text may give a vector of zeros.
    ///
    /// Dropping the future ends the work after the batch at hand.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] above [`MOST_TEXTS`]; else what the embedder meets.
    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, Error>>;
}

fn check_count(texts: &[String]) -> Result<(), Error> {
    let given = texts.len();
    if given > MOST_TEXTS { Err(Error::TooMany { given, most: MOST_TEXTS }) } else { Ok(()) }
}
