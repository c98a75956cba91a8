//! Hash embedder for tests: each word is one dimension, chosen by its hash.
//!
//! Texts are close if they share words; synonyms are unrelated. Vectors are the same on every
//! machine.

use futures::future::BoxFuture;
use sha2::{Digest, Sha256};

use crate::unit::normalise;
use crate::{Embedder, Error, Purpose, check_count};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashEmbedder {
    dimension: usize,
    model: String,
}

impl HashEmbedder {
    /// Creates an embedder with `dimension` numbers per vector, at least 1. Below a few hundred,
    /// unrelated words collide.
    #[must_use]
    pub fn new(dimension: usize) -> Self {
        let dimension = dimension.max(1);
        Self { dimension, model: format!("hashed-v1-{dimension}") }
    }

    fn vector(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.0; self.dimension];
        let lower = text.to_lowercase();
        for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
            let hash = Sha256::digest(word.as_bytes());
            let mut place = [0; 4];
            place.copy_from_slice(&hash[..4]);
            let place = u32::from_le_bytes(place) as usize % self.dimension;
            vector[place] += if hash[4] & 1 == 0 { 1.0 } else { -1.0 };
        }
        normalise(&mut vector);
        vector
    }
}

impl Embedder for HashEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        _: Purpose,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, Error>> {
        let done =
            check_count(texts).map(|()| texts.iter().map(|text| self.vector(text)).collect());
        Box::pin(std::future::ready(done))
    }
}

#[cfg(test)]
mod tests {
    use super::HashEmbedder;
    use crate::{Embedder, Error, MAX_TEXTS, Purpose};

    async fn cosine(a: &str, b: &str) -> f32 {
        let texts = [a.to_owned(), b.to_owned()];
        let vectors = HashEmbedder::new(384).embed(&texts, Purpose::Passage).await.unwrap();
        vectors[0].iter().zip(&vectors[1]).map(|(a, b)| a * b).sum()
    }

    #[tokio::test]
    async fn texts_that_share_words_are_near() {
        assert!((cosine("red cat", "Cat, RED!").await - 1.0).abs() < 1e-6);
        assert!(cosine("the red cat", "a red dog").await > 0.2);
        assert!(cosine("red cat", "annual report").await.abs() < 0.01);
    }

    #[tokio::test]
    async fn a_vector_is_the_same_on_every_machine() {
        let vectors =
            HashEmbedder::new(8).embed(&["tea".to_owned()], Purpose::Question).await.unwrap();

        // Computed independently from the SHA-256 of `tea`.
        assert_eq!(vectors, [[0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]);
    }

    #[tokio::test]
    async fn more_texts_than_allowed_are_refused() {
        let texts = vec![String::new(); MAX_TEXTS + 1];

        let refused = HashEmbedder::new(8).embed(&texts, Purpose::Passage).await;

        assert!(matches!(refused, Err(Error::TooMany { given: 257, most: 256 })), "{refused:?}");
    }
}
