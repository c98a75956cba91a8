//! Chat Completions: OpenAI's, and that of every server that is compatible.
//!
//! `encode` and `decode` are pure; this file only carries bytes. One call here
//! is one try: who wants retries wraps it in [`Retrying`](crate::Retrying).

mod decode;
mod encode;
mod refusal;

use std::time::Duration;

use futures::StreamExt as _;
use holdfast_types::Reply;
use reqwest::{
    Client, Response, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_util::sync::CancellationToken;

use self::{
    decode::Decoder,
    encode::{Wording, encode},
};
use crate::{Error, Model, OnDelta, Replying, Request, sse::Events};

/// Where OpenAI is.
const OPENAI: &str = "https://api.openai.com/v1";

/// The most that is read of an answer that is no stream, in bytes.
const MOST_WHOLE: usize = 8 * 1024 * 1024;

/// The most that is read of a refusal, in bytes.
const MOST_REFUSAL: usize = 64 * 1024;

/// How long the end of a stream is waited for when all of the reply is there, so that the
/// connection can be used again.
const LINGER: Duration = Duration::from_millis(20);

/// A server that speaks Chat Completions.
#[derive(Debug, Clone)]
pub struct OpenAi {
    client: Client,
    url: Url,
    key: Option<HeaderValue>,
    wording: Wording,
}

impl OpenAi {
    /// A server by its base URL (`https://api.openai.com/v1` if none is given) and key.
    ///
    /// # Errors
    ///
    /// If the URL is not one of a server, or the key cannot be sent.
    pub fn new(
        client: Client,
        base_url: Option<&str>,
        key: Option<&SecretString>,
    ) -> Result<Self, Error> {
        let base = base_url.map(str::trim).filter(|url| !url.is_empty()).unwrap_or(OPENAI);
        let mut url = Url::parse(base).map_err(|_| Error::Setup("the base url is not a url"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(Error::Setup("the base url must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::Setup("the base url must not hold credentials: set the api key"));
        }
        let wording = Wording::of(&url);
        url.path_segments_mut()
            .map_err(|()| Error::Setup("the base url is not a url"))?
            .pop_if_empty()
            .extend(["chat", "completions"]);
        Ok(Self { client, url, key: key.map(bearer).transpose()?.flatten(), wording })
    }

    async fn answer(&self, request: &Request, on_delta: OnDelta<'_>) -> Result<Reply, Error> {
        let mut sent = self.client.post(self.url.clone()).json(&encode(request, self.wording));
        if let Some(key) = &self.key {
            sent = sent.header(AUTHORIZATION, key.clone());
        }
        let response = sent.send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let headers = response.headers().clone();
            let body = read(response, MOST_REFUSAL).await.unwrap_or_default();
            return Err(refusal::of_answer(status, &headers, &body, &request.model));
        }
        let decoder = Decoder::new(request.model.clone());
        if is_json(response.headers()) {
            whole(response, decoder, on_delta).await
        } else {
            stream(response, decoder, on_delta).await
        }
    }
}

impl Model for OpenAi {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> Replying<'a> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => Err(Error::Cancelled),
                answer = self.answer(request, on_delta) => answer,
                () = tokio::time::sleep_until(request.deadline) => Err(Error::Timeout),
            }
        })
    }
}

/// The header that carries a key; `None` if the key is empty.
fn bearer(key: &SecretString) -> Result<Option<HeaderValue>, Error> {
    let key = key.expose_secret().trim();
    if key.is_empty() {
        return Ok(None);
    }
    let mut value = HeaderValue::try_from(format!("Bearer {key}"))
        .map_err(|_| Error::Setup("the api key has characters that no key has"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Reads an answer that comes piece by piece.
async fn stream(
    response: Response,
    mut decoder: Decoder,
    on_delta: OnDelta<'_>,
) -> Result<Reply, Error> {
    let mut events = Events::default();
    let mut chunks = response.bytes_stream();
    let mut broken = false;
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            broken = true;
            break;
        };
        events.push(&chunk)?;
        while let Some(data) = events.pop() {
            decoder.push(&data)?.into_iter().for_each(&mut *on_delta);
        }
        if decoder.is_done() {
            let _ = tokio::time::timeout(LINGER, chunks.next()).await;
            return decoder.finish();
        }
    }
    if !broken {
        events.end();
        // A last event that is not whole is no event; the decoder knows what is missing.
        while let Some(Ok(deltas)) = events.pop().map(|data| decoder.push(&data)) {
            deltas.into_iter().for_each(&mut *on_delta);
        }
    }
    decoder.finish()
}

/// Reads an answer that comes whole, though a stream was asked for.
async fn whole(
    response: Response,
    mut decoder: Decoder,
    on_delta: OnDelta<'_>,
) -> Result<Reply, Error> {
    let body = read(response, MOST_WHOLE).await?;
    decoder.whole(&body)?.into_iter().for_each(on_delta);
    decoder.finish()
}

async fn read(response: Response, most: usize) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(|_| Error::Interrupted)?);
        if body.len() > most {
            return Err(Error::TooLong { what: "body", limit: most });
        }
    }
    Ok(body)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim().to_ascii_lowercase().starts_with("application/json"))
}

/// What a request that had no answer means.
fn unreachable(error: reqwest::Error) -> Error {
    if error.is_builder() {
        return Error::Setup("the request cannot be built from them");
    }
    // A URL may say more than a log should.
    Error::Unavailable { status: None, source: Some(error.without_url().into()) }
}

#[cfg(test)]
mod tests;
