//! Embedder for servers with OpenAI's `/v1/embeddings`: OpenAI, TEI, Ollama, vLLM, llama.cpp and
//! others.

use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::unit::normalise;
use crate::{Embedder, Error, Purpose, check_count};

/// Texts per request; all known servers accept this many.
const MAX_REQUEST_TEXTS: usize = 64;
/// Maximum response size in bytes: twice 64 vectors of 4096 numbers of 20 characters.
const MAX_RESPONSE_BYTES: usize = 12 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Base URL, including `/v1`.
    pub base_url: String,
    pub model: String,
    /// Numbers per vector; a response with another dimension is an error.
    pub dimension: usize,
    /// API key, if the server needs one.
    #[serde(default)]
    pub api_key: Option<SecretString>,
    /// Asks the server to shorten its vectors to `dimension`; only some models can.
    #[serde(default)]
    pub shorten: bool,
    /// Prefix that the model expects before a question, such as `query: `.
    #[serde(default)]
    pub question_prefix: String,
    /// Prefix that the model expects before a passage, such as `passage: `.
    #[serde(default)]
    pub passage_prefix: String,
    /// Timeout of one request in seconds; 0 means 30.
    #[serde(default)]
    pub timeout_seconds: u64,
}

#[derive(Debug)]
pub struct OpenAi {
    config: Config,
    /// Name stored with the vectors; differs from the model's name if vectors are shortened.
    name: String,
    url: Url,
    client: reqwest::Client,
}

impl OpenAi {
    /// Creates an embedder without contacting the server.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] if a setting is invalid.
    pub fn new(config: Config) -> Result<Self, Error> {
        let address = format!("{}/embeddings", config.base_url.trim_end_matches('/'));
        let url = Url::parse(&address).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or(Error::Setup("`base_url` must be an http or https url"))?;
        if config.model.is_empty() || config.dimension == 0 {
            return Err(Error::Setup("`model` and `dimension` must be set"));
        }
        let setup = Error::Setup("no https client: are ca certificates installed?");
        let Ok(builder) = holdfast_egress::client_builder(CONNECT_TIMEOUT) else {
            return Err(setup);
        };
        let seconds = if config.timeout_seconds == 0 { 30 } else { config.timeout_seconds };
        let client = builder.timeout(Duration::from_secs(seconds)).build().map_err(|_| setup)?;
        // Shortened vectors cannot be compared with full ones, so they get a name of their own.
        let name = match config.shorten {
            true => format!("{}@{}", config.model, config.dimension),
            false => config.model.clone(),
        };
        Ok(Self { config, name, url, client })
    }

    async fn batch(&self, texts: &[&str], prefix: &str) -> Result<Vec<Vec<f32>>, Error> {
        let body = EmbeddingsRequest {
            model: &self.config.model,
            input: texts.iter().map(|text| format!("{prefix}{text}")).collect(),
            encoding_format: "float",
            dimensions: self.config.shorten.then_some(self.config.dimension),
        };
        let mut request = self.client.post(self.url.clone()).json(&body);
        if let Some(key) = &self.config.api_key {
            request = request.bearer_auth(key.expose_secret());
        }
        let answer = request.send().await.map_err(unreachable)?;
        let answer = read(accepted(answer)?).await?;
        let answer: EmbeddingsResponse = serde_json::from_slice(&answer)
            .map_err(|_| Error::Answer("it is no list of embeddings"))?;
        self.vectors(answer, texts.len())
    }

    /// Returns the vectors in the order of the texts; servers may answer in another order.
    fn vectors(&self, answer: EmbeddingsResponse, wanted: usize) -> Result<Vec<Vec<f32>>, Error> {
        let mut vectors = vec![Vec::new(); wanted];
        for Embedding { index, mut embedding } in answer.data {
            if embedding.len() != self.config.dimension {
                return Err(Error::Answer("its vectors are not of the configured `dimension`"));
            }
            normalise(&mut embedding);
            match vectors.get_mut(index) {
                Some(place) if place.is_empty() => *place = embedding,
                _ => return Err(Error::Answer("it has a vector for a text that was not sent")),
            }
        }
        if vectors.iter().any(Vec::is_empty) {
            return Err(Error::Answer("it lacks a vector"));
        }
        Ok(vectors)
    }
}

impl Embedder for OpenAi {
    fn model(&self) -> &str {
        &self.name
    }

    fn dimension(&self) -> usize {
        self.config.dimension
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, Error>> {
        let prefix = match purpose {
            Purpose::Question => &self.config.question_prefix,
            Purpose::Passage => &self.config.passage_prefix,
        };
        Box::pin(async move {
            check_count(texts)?;
            // Servers refuse a whole request if one text is empty.
            let said: Vec<usize> =
                (0..texts.len()).filter(|&at| !texts[at].trim().is_empty()).collect();
            let mut vectors = vec![vec![0.0; self.config.dimension]; texts.len()];
            for places in said.chunks(MAX_REQUEST_TEXTS) {
                let batch: Vec<&str> = places.iter().map(|&at| texts[at].as_str()).collect();
                for (&at, vector) in places.iter().zip(self.batch(&batch, prefix).await?) {
                    vectors[at] = vector;
                }
            }
            Ok(vectors)
        })
    }
}

fn accepted(answer: Response) -> Result<Response, Error> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::Auth,
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds =
                answer.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
            Error::RateLimited { retry_after: seconds.map(Duration::from_secs) }
        }
        StatusCode::REQUEST_TIMEOUT => Error::Unavailable(None),
        _ if status.is_server_error() => Error::Unavailable(None),
        _ => Error::Refused { status: status.as_u16() },
    })
}

async fn read(mut answer: Response) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
        if bytes.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(Error::Answer("it is longer than any embeddings are"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn unreachable(e: reqwest::Error) -> Error {
    Error::Unavailable(Some(Box::new(e.without_url())))
}

#[derive(Serialize)]
struct EmbeddingsRequest<'a> {
    model: &'a str,
    input: Vec<String>,
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
struct EmbeddingsResponse {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    index: usize,
    embedding: Vec<f32>,
}

#[cfg(test)]
mod tests;
