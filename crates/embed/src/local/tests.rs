//! Tests of the local model.

use std::path::PathBuf;

use super::{Config, Local};
use crate::{Embedder, Error, Purpose};

#[tokio::test]
async fn a_model_that_was_not_fetched_says_what_to_do() {
    let dir = PathBuf::from("/nonexistent");

    let error = Local::load(Config { dir, threads: 1 }).await.unwrap_err();

    assert!(matches!(error, Error::Missing(_)));
    assert!(error.to_string().contains("embedder.py"), "{error}");
}

#[tokio::test]
async fn threads_are_bounded() {
    let made = Local::load(Config { threads: 0, ..Config::default() }).await;

    assert!(matches!(made, Err(Error::Setup(_))));
}

#[test]
fn batches_are_small_in_texts_and_in_bytes_and_lose_none() {
    let texts: Vec<String> =
        (0..40).map(|n| "x".repeat(n * 20)).chain(["y".repeat(9_000)]).collect();
    let order: Vec<usize> = (0..texts.len()).collect();

    let batches = super::batches(&order, &texts);

    assert_eq!(batches.concat(), order);
    for batch in batches {
        let widest = batch.iter().map(|&at| texts[at].len()).max().unwrap_or(0);
        assert!(batch.len() == 1 || batch.len() * widest <= super::MAX_BATCH_BYTES, "{batch:?}");
        assert!(batch.len() <= super::MAX_BATCH_TEXTS);
    }
}

/// Tests that `tests/tools.py` leaves out where the model is not downloaded.
mod needs_embedder {
    use anyhow::Context as _;

    use super::*;

    /// The model in the directory that `HOLDFAST_TEST_EMBEDDER` names; `make embedder` downloads it.
    async fn model() -> anyhow::Result<Local> {
        let dir =
            std::env::var_os("HOLDFAST_TEST_EMBEDDER").context("set HOLDFAST_TEST_EMBEDDER")?;
        Ok(Local::load(Config { dir: PathBuf::from(dir), threads: 2 }).await?)
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[tokio::test]
    async fn what_means_the_same_is_near_whatever_its_words() {
        let model = model().await.unwrap();
        let texts = [
            "How do I reset my password?",
            "I forgot my login credentials and cannot get in.",
            "The recipe needs two eggs and some flour.",
        ];

        let vectors = model.embed(&texts.map(str::to_owned), Purpose::Passage).await.unwrap();

        assert!(dot(&vectors[0], &vectors[1]) > 0.4);
        assert!(dot(&vectors[0], &vectors[2]) < 0.15);
    }

    #[tokio::test]
    async fn a_texts_vector_depends_neither_on_its_batch_nor_on_its_place() {
        let model = model().await.unwrap();
        let mut texts: Vec<_> =
            (1..30).map(|n| format!("{} end", "some words ".repeat(n))).collect();
        texts.reverse();

        let together = model.embed(&texts, Purpose::Passage).await.unwrap();

        for (text, vector) in texts.iter().zip(&together).step_by(7) {
            let alone = model.embed(std::slice::from_ref(text), Purpose::Question).await.unwrap();
            assert!(dot(&alone[0], vector) > 0.99, "{text}");
            assert!((dot(vector, vector) - 1.0).abs() < 1e-4);
        }
    }
}
