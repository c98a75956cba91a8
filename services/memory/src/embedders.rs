//! Embedding models of the service: the current one and, during a change of models, the former one.

use std::{sync::Arc, time::Duration};

use holdfast_embed::{Embedder, Error as EmbedError, HashEmbedder, OpenAi, OpenAiConfig, Purpose};
use secrecy::ExposeSecret as _;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::{Embedding, Engine};

/// Dimension of the hash embedder.
const HASHED_DIMENSION: usize = 384;

/// Maximum wait for a question's embedding; after that the search uses keywords only.
const MAX_EMBEDDING_WAIT: Duration = Duration::from_secs(3);

/// Current and former embedding model.
#[derive(Debug, Clone)]
pub struct Embedders {
    pub current: Arc<dyn Embedder>,
    /// Former model, while units are being embedded again.
    pub former: Option<Arc<dyn Embedder>>,
}

impl Embedders {
    /// Loads the configured models.
    ///
    /// # Errors
    ///
    /// If a model cannot be loaded; `auto` always succeeds.
    pub async fn load(now: &Embedding, former: Option<&Embedding>) -> anyhow::Result<Self> {
        let now = load(now).await?;
        let former = match former {
            Some(former) => Some(load(former).await?),
            None => None,
        };
        info!(model = now.model(), dimension = now.dimension(), "embedding by this model");
        Ok(Self { current: now, former })
    }

    /// Returns the embedder of a model, if it is loaded.
    pub fn by_model(&self, model: &str) -> Option<&Arc<dyn Embedder>> {
        [Some(&self.current), self.former.as_ref()]
            .into_iter()
            .flatten()
            .find(|embedder| embedder.model() == model)
    }
}

/// Returns the maximum wait for a question's embedding: at most two thirds of the caller's time, to
/// leave the rest for the keyword search.
pub fn embedding_timeout(given: Option<Duration>) -> Duration {
    given.map_or(MAX_EMBEDDING_WAIT, |given| MAX_EMBEDDING_WAIT.min(given * 2 / 3))
}

/// Returns the embedding of a question; `None` on failure or after `limit`.
pub async fn embed_question(
    embedder: &dyn Embedder,
    text: &str,
    limit: Duration,
) -> Option<Vec<f32>> {
    let texts = [text.to_owned()];
    match timeout(limit, embedder.embed(&texts, Purpose::Question)).await {
        Ok(Ok(mut vectors)) => vectors.pop(),
        Ok(Err(error)) => {
            warn!(error = &error as &dyn std::error::Error, "a question is answered by its words");
            None
        }
        // Callers with short deadlines cause this regularly: not worth a warning.
        Err(_) if limit < MAX_EMBEDDING_WAIT => {
            debug!(after = ?limit, "the embedder is slow, a question is answered by its words");
            None
        }
        Err(_) => {
            warn!(after = ?limit, "the embedder is slow, a question is answered by its words");
            None
        }
    }
}

async fn load(embedding: &Embedding) -> Result<Arc<dyn Embedder>, EmbedError> {
    match embedding.engine {
        Engine::Hashed => Ok(Arc::new(HashEmbedder::new(HASHED_DIMENSION))),
        Engine::OpenAi => Ok(Arc::new(OpenAi::new(server(embedding))?)),
        Engine::Local => local(embedding).await,
        Engine::Auto => match local(embedding).await {
            Ok(local) => Ok(local),
            Err(error) => {
                warn!(
                    %error,
                    "no local embedding model, so meaning is told by shared words only (`hashed`): \
                     run `make embedder` and start again, or configure `memory.embedding`"
                );
                Ok(Arc::new(HashEmbedder::new(HASHED_DIMENSION)))
            }
        },
    }
}

fn server(embedding: &Embedding) -> OpenAiConfig {
    let key = embedding.api_key.clone();
    OpenAiConfig {
        base_url: embedding.base_url.clone(),
        model: embedding.model.clone(),
        dimension: embedding.dimension,
        api_key: (!key.expose_secret().is_empty()).then_some(key),
        shorten: embedding.shorten,
        question_prefix: embedding.question_prefix.clone(),
        passage_prefix: embedding.passage_prefix.clone(),
        timeout_seconds: embedding.timeout.as_secs().max(1),
    }
}

#[cfg(feature = "local")]
async fn local(embedding: &Embedding) -> Result<Arc<dyn Embedder>, EmbedError> {
    let (dir, threads) = (embedding.dir.clone(), embedding.threads);
    let config = holdfast_embed::LocalConfig { dir, threads };
    Ok(Arc::new(holdfast_embed::Local::load(config).await?))
}

#[cfg(not(feature = "local"))]
#[expect(clippy::unused_async, reason = "the same shape as the one that loads a model")]
async fn local(_: &Embedding) -> Result<Arc<dyn Embedder>, EmbedError> {
    Err(EmbedError::Setup("this program was built without the local model (feature `local`)"))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use tokio::time::Instant;

    use super::*;

    /// Embedder that never finishes.
    #[derive(Debug)]
    struct Slow;

    impl Embedder for Slow {
        fn model(&self) -> &str {
            "slow"
        }

        fn dimension(&self) -> usize {
            3
        }

        fn embed<'a>(
            &'a self,
            _: &'a [String],
            _: Purpose,
        ) -> Pin<Box<dyn Future<Output = Result<Vec<Vec<f32>>, EmbedError>> + Send + 'a>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_waits_for_its_meaning_no_longer_than_who_asks_can() {
        for (given, expected) in [(Some(150), 100), (Some(60_000), 3_000), (None, 3_000)] {
            let limit = embedding_timeout(given.map(Duration::from_millis));
            let began = Instant::now();

            assert_eq!(embed_question(&Slow, "cat", limit).await, None);

            assert_eq!(began.elapsed().as_millis(), expected, "{given:?}");
        }
    }

    #[tokio::test]
    async fn auto_works_without_any_file() {
        let nowhere = Embedding { dir: "/nowhere".into(), ..Embedding::default() };

        let embedders = Embedders::load(&nowhere, None).await.unwrap();

        assert_eq!(embedders.current.model(), "hashed-v1-384");
        assert!(
            embedders.by_model("hashed-v1-384").is_some() && embedders.by_model("other").is_none()
        );
    }

    #[tokio::test]
    async fn a_local_model_that_is_asked_for_and_not_there_is_an_error() {
        let nowhere =
            Embedding { engine: Engine::Local, dir: "/nowhere".into(), ..Embedding::default() };

        assert!(Embedders::load(&nowhere, None).await.is_err());
    }
}
