//! Local embedder: all-MiniLM-L6-v2 in this process, by ONNX Runtime.
//!
//! The files are in one directory and are never downloaded here: `model.onnx` (8-bit, 23 MB) and
//! `libonnxruntime.so` (`.dylib` on macOS). The vocabulary is built in.
//!
//! The model is English, was trained on texts of 128 tokens and reads up to 512; longer texts are
//! truncated.

mod tokens;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use ort::environment::Environment;
use ort::session::Session;
use ort::value::Tensor;
use serde::Deserialize;
use tokio::sync::Mutex;

use self::tokens::{TextTokenizer, TokenBatch};
use crate::unit::normalise;
use crate::{Embedder, Error, Purpose, check_count};

const DIMENSION: usize = 384;
/// Maximum texts per batch. A query that arrives during a large request waits for one batch, about
/// as long as one chunk takes.
const MAX_BATCH_TEXTS: usize = 8;
const MAX_BATCH_BYTES: usize = 2_000;
const LIBRARY: &str =
    if cfg!(target_os = "macos") { "libonnxruntime.dylib" } else { "libonnxruntime.so" };

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub dir: PathBuf,
    /// Threads per batch, 1 to 16. One batch runs at a time.
    pub threads: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { dir: ".holdfast/embedder".into(), threads: 2 }
    }
}

#[derive(Debug, Clone)]
pub struct Local {
    model: Arc<Mutex<Model>>,
}

#[derive(Debug)]
struct Model {
    session: Session,
    tokens: TextTokenizer,
}

impl Local {
    /// Loads the model: about a quarter of a second, 90 MB. The library is loaded once per process,
    /// from the directory of the first call.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if a file is missing, [`Error::Unusable`] if a file cannot be loaded.
    pub async fn load(config: Config) -> Result<Self, Error> {
        if !(1..=16).contains(&config.threads) {
            return Err(Error::Setup("`threads` must be from 1 to 16"));
        }
        let model = blocking(move || Model::load(&config)).await?;
        Ok(Self { model: Arc::new(Mutex::new(model)) })
    }
}

impl Embedder for Local {
    fn model(&self) -> &str {
        "all-minilm-l6-v2-int8"
    }

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        _: Purpose,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, Error>> {
        Box::pin(async move {
            check_count(texts)?;
            // Sorted by length, because a batch is padded to its longest text.
            let mut order: Vec<usize> = (0..texts.len()).collect();
            order.sort_by_key(|&at| texts[at].len());
            let mut vectors = vec![Vec::new(); texts.len()];
            for places in batches(&order, texts) {
                let batch: Vec<String> = places.iter().map(|&at| texts[at].clone()).collect();
                // The mutex is fair: a caller that waits gets the model before our next batch.
                let mut model = Arc::clone(&self.model).lock_owned().await;
                let done = blocking(move || model.run(&batch)).await?;
                for (&at, vector) in places.iter().zip(done) {
                    vectors[at] = vector;
                }
            }
            Ok(vectors)
        })
    }
}

/// Splits indices, ordered by text length, into batches.
fn batches<'a>(order: &'a [usize], texts: &[String]) -> Vec<&'a [usize]> {
    let mut batches = Vec::new();
    let mut start = 0;
    for end in 1..=order.len() {
        let full = order.get(end).is_none_or(|&next| {
            let with = end + 1 - start;
            with > MAX_BATCH_TEXTS || with * texts[next].len() > MAX_BATCH_BYTES
        });
        if full {
            batches.push(&order[start..end]);
            start = end;
        }
    }
    batches
}

impl Model {
    fn load(config: &Config) -> Result<Self, Error> {
        let library = present(&config.dir, LIBRARY)?;
        let file = present(&config.dir, "model.onnx")?;
        let environment = environment(&library)?;
        let session = || -> ort::Result<Session> {
            Session::builder(environment)?
                .with_intra_threads(config.threads)?
                // A spinning thread would take a core from other processes.
                .with_intra_op_spinning(false)?
                .commit_from_file(&file)
        };
        let session = session().map_err(|e| unusable(&file, e))?;
        Ok(Self { session, tokens: TextTokenizer::new()? })
    }

    fn run(&mut self, texts: &[String]) -> Result<Vec<Vec<f32>>, Error> {
        let batch = self.tokens.batch(texts)?;
        self.infer(&batch).map_err(|e| Error::Failed(Box::new(e)))
    }

    fn infer(&mut self, batch: &TokenBatch) -> ort::Result<Vec<Vec<f32>>> {
        let shape = [batch.rows(), batch.width];
        let outputs = self.session.run(ort::inputs! {
            "input_ids" => Tensor::from_array((shape, batch.ids.clone()))?,
            "attention_mask" => Tensor::from_array((shape, batch.mask.clone()))?,
            "token_type_ids" => Tensor::from_array((shape, vec![0i64; batch.ids.len()]))?,
        })?;
        let (_, hidden) = outputs["last_hidden_state"].try_extract_tensor::<f32>()?;
        let texts = hidden.chunks(batch.width * DIMENSION).zip(batch.mask.chunks(batch.width));
        Ok(texts.map(|(hidden, mask)| pool(hidden, mask)).collect())
    }
}

/// Mean of the token vectors: the pooling that this model was trained with.
fn pool(hidden: &[f32], mask: &[i64]) -> Vec<f32> {
    let mut mean = vec![0.0; DIMENSION];
    for (token, _) in hidden.chunks(DIMENSION).zip(mask).filter(|(_, mask)| **mask != 0) {
        for (sum, x) in mean.iter_mut().zip(token) {
            *sum += x;
        }
    }
    normalise(&mut mean);
    mean
}

/// Returns the process-wide environment; the library cannot be loaded twice.
fn environment(library: &Path) -> Result<&'static Environment, Error> {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    if let Some(environment) = ENVIRONMENT.get() {
        return Ok(environment);
    }
    let made = ort::init_from(library).map_err(|e| unusable(library, e))?;
    let made = made.with_name("holdfast").with_telemetry(false).build();
    let made = made.map_err(|e| unusable(library, e))?;
    Ok(ENVIRONMENT.get_or_init(|| made))
}

fn present(dir: &Path, name: &str) -> Result<PathBuf, Error> {
    let path = dir.join(name);
    if path.is_file() { Ok(path) } else { Err(Error::Missing(path)) }
}

fn unusable(path: &Path, e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Unusable { path: path.to_owned(), source: Box::new(e) }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::Failed(Box::new(e)))?
}

#[cfg(test)]
mod tests;
