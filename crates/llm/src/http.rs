//! HTTP transport between a codec and a server. Each call is one attempt; retries are the task of
//! [`Retrying`](crate::Retrying).

pub(crate) mod date;
mod lines;
pub(crate) mod sse;

use std::{fmt, sync::Arc, time::Duration};

use futures::StreamExt as _;
use holdfast_egress::Guard;
use holdfast_types::Reply;
use reqwest::{
    Response, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use self::{lines::Lines, sse::Events};
#[cfg(feature = "bedrock")]
use crate::bedrock::frames::EventStream;
use crate::{
    Delta, Error, Model, OnDelta, ReplyFuture, Request, RequestExtras,
    authorize::{Authorize, UnsignedRequest},
    extras::add_fields,
    failure_log::FailedAttempt,
    model::OptionNames,
};

/// Maximum size of a body that is not a stream, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// Maximum size of an error's body, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// How long to wait for the end of a stream after a complete reply, so that the connection can be
/// reused.
const STREAM_END_TIMEOUT: Duration = Duration::from_millis(20);

/// How long to wait for the count of tokens, after the server has said why it stopped.
const LAST_PIECE_TIMEOUT: Duration = Duration::from_secs(2);

/// Protocol of a provider; does no I/O.
pub(crate) trait Protocol: fmt::Debug + Send + Sync {
    type Decoder: Decode + Send;

    const FRAMES: Frames;
    const OPTIONS: OptionNames;

    /// Returns the names of what the server takes of a request.
    fn options(&self, _request: &Request) -> OptionNames {
        Self::OPTIONS
    }

    /// Returns the URL of a request, below the configured base URL.
    fn url(&self, request: &Request) -> Url;

    /// Returns headers of a request, besides the key's.
    fn headers(&self, _request: &Request) -> HeaderMap {
        HeaderMap::new()
    }

    /// Returns the body of a request.
    fn encode(&self, request: &Request) -> Value;

    fn decoder(&self, request: &Request) -> Self::Decoder;

    /// Converts a response with an error status.
    fn refusal(&self, status: u16, headers: &HeaderMap, body: &[u8], request: &Request) -> Error;
}

pub(crate) trait Decode {
    /// Decodes one event or line.
    fn push(&mut self, data: &[u8]) -> Result<Vec<Delta>, Error>;

    /// Decodes a complete body from a server that did not stream.
    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Error>;

    /// Whether the server has ended the answer.
    fn is_done(&self) -> bool;

    /// Whether the server has said why it stopped, and only the count of tokens may follow.
    fn has_stopped(&self) -> bool {
        false
    }

    fn finish(self) -> Result<Reply, Error>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frames {
    Events,
    Lines,
    #[cfg(feature = "bedrock")]
    AwsEvents,
}

/// Splits a stream into frames.
#[derive(Debug)]
pub(crate) enum FrameSplitter {
    Events(Events),
    Lines(Lines),
    #[cfg(feature = "bedrock")]
    AwsEvents(EventStream),
}

impl FrameSplitter {
    pub(crate) fn new(frames: Frames) -> Self {
        match frames {
            Frames::Events => Self::Events(Events::default()),
            Frames::Lines => Self::Lines(Lines::default()),
            #[cfg(feature = "bedrock")]
            Frames::AwsEvents => Self::AwsEvents(EventStream::default()),
        }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        match self {
            Self::Events(events) => events.push(chunk),
            Self::Lines(lines) => lines.push(chunk),
            #[cfg(feature = "bedrock")]
            Self::AwsEvents(events) => events.push(chunk),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Events(events) => events.pop(),
            Self::Lines(lines) => lines.pop(),
            #[cfg(feature = "bedrock")]
            Self::AwsEvents(events) => events.pop(),
        }
    }

    pub(crate) fn end(&mut self) {
        match self {
            Self::Events(events) => events.end(),
            Self::Lines(lines) => lines.end(),
            // A truncated frame is ignored.
            #[cfg(feature = "bedrock")]
            Self::AwsEvents(_) => {}
        }
    }
}

/// Client of a server with the protocol `P`.
#[derive(Debug, Clone)]
pub(crate) struct Server<P> {
    guard: Guard,
    key: Option<(HeaderName, HeaderValue)>,
    /// Maker of credentials that a key does not replace.
    authorizer: Option<Arc<dyn Authorize>>,
    /// Headers that the provider's settings add.
    headers: HeaderMap,
    /// Fields that the provider's settings add to the body.
    fields: Map<String, Value>,
    protocol: P,
}

impl<P: Protocol> Server<P> {
    pub(crate) fn new(guard: Guard, key: Option<(HeaderName, HeaderValue)>, protocol: P) -> Self {
        let (headers, fields) = (HeaderMap::new(), Map::new());
        Self { guard, key, authorizer: None, headers, fields, protocol }
    }

    /// Lets credentials be made for each request.
    pub(crate) fn with_authorizer(self, authorizer: Arc<dyn Authorize>) -> Self {
        Self { authorizer: Some(authorizer), ..self }
    }

    /// Adds headers and fields to each request.
    pub(crate) fn with_extras(mut self, extras: &RequestExtras) -> Result<Self, Error> {
        self.headers = extras.header_map()?;
        self.fields = extras.body.clone();
        Ok(self)
    }

    /// Body of a request: the codec's, with the fields of the model's card and of the provider.
    fn body(&self, request: &Request) -> Value {
        let mut body = self.protocol.encode(request);
        add_fields(&mut body, &request.card().extra_body);
        add_fields(&mut body, &self.fields);
        body
    }

    pub(crate) const fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Uses an access token (RFC 6750) instead of the key, if there is one.
    pub(crate) fn with_token(mut self, token: Option<&SecretString>) -> Result<Self, Error> {
        if let Some(key) = key(AUTHORIZATION, "Bearer ", token)? {
            self.key = Some(key);
        }
        Ok(self)
    }

    /// Value of the key's header without its scheme.
    fn secret(&self) -> Option<&str> {
        let value = self.key.as_ref()?.1.to_str().ok()?;
        Some(value.strip_prefix("Bearer ").unwrap_or(value))
    }

    async fn answer(
        &self,
        request: &Request,
        on_delta: OnDelta<'_>,
    ) -> Result<Reply, FailedRequest> {
        request.check_options(&self.protocol.options(request))?;
        let url = self.protocol.url(request);
        let body = self.body(request).to_string().into_bytes();
        let authorization = match &self.authorizer {
            Some(authorizer) => {
                authorizer.headers(UnsignedRequest { url: &url, body: &body }).await?
            }
            None => HeaderMap::new(),
        };
        let mut sent = self
            .guard
            .client_for_secret(&url)
            .map_err(Error::from)?
            .post(url)
            .headers(self.headers.clone())
            .headers(self.protocol.headers(request))
            .header(CONTENT_TYPE, "application/json")
            .headers(authorization);
        if let Some((name, key)) = &self.key {
            sent = sent.header(name, key.clone());
        }
        let response = sent.body(body).send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let headers = response.headers().clone();
            let body = read(response, MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
            let error = self.protocol.refusal(status, &headers, &body, request);
            if let (Error::Auth | Error::NotPermitted, Some(authorizer)) =
                (&error, &self.authorizer)
            {
                authorizer.refused().await;
            }
            return Err(FailedRequest {
                error,
                attempt: FailedAttempt::of_response(status, &body),
            });
        }
        if has_type(response.headers(), "text/html") {
            let error = Error::Setup("the base url leads to a web page, not to an api: correct it");
            let attempt = FailedAttempt { status: Some(status), ..FailedAttempt::default() };
            return Err(FailedRequest { error, attempt });
        }
        let decoder = self.protocol.decoder(request);
        if has_type(response.headers(), "application/json") {
            whole(response, decoder, on_delta).await
        } else {
            stream(response, FrameSplitter::new(P::FRAMES), decoder, on_delta).await
        }
    }
}

/// A failed attempt.
struct FailedRequest {
    error: Error,
    attempt: FailedAttempt,
}

impl From<Error> for FailedRequest {
    fn from(error: Error) -> Self {
        Self { error, attempt: FailedAttempt::default() }
    }
}

impl<P: Protocol> Model for Server<P> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            let answer = tokio::select! {
                biased;
                () = cancelled.cancelled() => return Err(Error::Cancelled),
                answer = self.answer(request, on_delta) => answer,
                () = tokio::time::sleep_until(request.deadline) => Err(Error::Timeout.into()),
            };
            let FailedRequest { error, attempt } = match answer {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            attempt.record(request, self.secret(), &error);
            Err(error)
        })
    }
}

/// Parses the configured base URL, or the provider's own.
pub(crate) fn base(given: Option<&str>, own: &str) -> Result<Url, Error> {
    let base = given.map(str::trim).filter(|url| !url.is_empty()).unwrap_or(own);
    let url = Url::parse(base).map_err(|_| Error::Setup("the base url is not a url"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(Error::Setup("the base url must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Setup("the base url must not hold credentials: set the api key"));
    }
    Ok(url)
}

/// Appends path segments to a URL. They are percent-encoded, so that a model's name cannot change
/// the path.
pub(crate) fn below(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    // Cannot fail: the URL has a host.
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

/// Whether a URL's path ends with this segment.
pub(crate) fn ends_with(url: &Url, segment: &str) -> bool {
    url.path().trim_end_matches('/').rsplit('/').next() == Some(segment)
}

/// Returns the header with a key; `None` if there is no key or it is empty.
pub(crate) fn key(
    name: HeaderName,
    prefix: &str,
    key: Option<&SecretString>,
) -> Result<Option<(HeaderName, HeaderValue)>, Error> {
    let Some(key) = key.map(|key| key.expose_secret().trim()).filter(|key| !key.is_empty()) else {
        return Ok(None);
    };
    let mut value = HeaderValue::try_from(format!("{prefix}{key}"))
        .map_err(|_| Error::Setup("the api key has characters that no key has"))?;
    value.set_sensitive(true);
    Ok(Some((name, value)))
}

/// Reads a streamed answer.
async fn stream<D: Decode>(
    response: Response,
    mut cutter: FrameSplitter,
    mut decoder: D,
    on_delta: OnDelta<'_>,
) -> Result<Reply, FailedRequest> {
    let mut chunks = response.bytes_stream();
    let mut broken = false;
    loop {
        // A server that has said why it stopped may send its count of tokens, and then must end.
        let next = match decoder.has_stopped() {
            true => match tokio::time::timeout(LAST_PIECE_TIMEOUT, chunks.next()).await {
                Ok(next) => next,
                Err(_) => return Ok(decoder.finish()?),
            },
            false => chunks.next().await,
        };
        let Some(chunk) = next else { break };
        let Ok(chunk) = chunk else {
            broken = true;
            break;
        };
        cutter.push(&chunk)?;
        while let Some(data) = cutter.pop() {
            let deltas = decoder.push(&data).map_err(|error| failed_part(error, &data))?;
            deltas.into_iter().for_each(&mut *on_delta);
        }
        if decoder.is_done() {
            let _ = tokio::time::timeout(STREAM_END_TIMEOUT, chunks.next()).await;
            return Ok(decoder.finish()?);
        }
    }
    if !broken {
        cutter.end();
        // A truncated last event is ignored; the decoder reports what is missing.
        while let Some(Ok(deltas)) = cutter.pop().map(|data| decoder.push(&data)) {
            deltas.into_iter().for_each(&mut *on_delta);
        }
    }
    Ok(decoder.finish()?)
}

/// Failure by a part of an answer, which may say why.
fn failed_part(error: Error, part: &[u8]) -> FailedRequest {
    let attempt = FailedAttempt::of_part(&error, part);
    FailedRequest { error, attempt }
}

/// Reads a complete body from a server that did not stream.
async fn whole<D: Decode>(
    response: Response,
    mut decoder: D,
    on_delta: OnDelta<'_>,
) -> Result<Reply, FailedRequest> {
    let body = read(response, MAX_BODY_BYTES).await?;
    let deltas = decoder.whole(&body).map_err(|error| failed_part(error, &body))?;
    deltas.into_iter().for_each(on_delta);
    Ok(decoder.finish()?)
}

/// Reads a body of this size at most.
pub(crate) async fn read(response: Response, most: usize) -> Result<Vec<u8>, Error> {
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

fn has_type(headers: &HeaderMap, media_type: &str) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim().to_ascii_lowercase().starts_with(media_type))
}

/// Converts the failure of a request without a response.
pub(crate) fn unreachable(error: reqwest::Error) -> Error {
    if error.is_builder() {
        return Error::Setup("the request cannot be built from them");
    }
    if let Some(refused) = holdfast_egress::refusal(&error) {
        return Error::Address(refused);
    }
    // A URL may contain more than a log should.
    Error::Unavailable { status: None, source: Some(error.without_url().into()) }
}

#[cfg(test)]
mod tests;
