//! Anthropic's Messages API.
//!
//! The wire format is documented at <https://docs.claude.com/en/api/messages-streaming> and
//! <https://docs.claude.com/en/api/errors>.

mod decode;
mod encode;
mod refusal;

use holdfast_egress::Guard;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use secrecy::SecretString;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::decode::Decoder;
use crate::{
    Error, Model, OnDelta, ReplyFuture, Request, RequestExtras,
    http::{self, Frames, Protocol, Server},
    model::OptionNames,
};

pub(crate) const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";

/// Version of the API.
pub(crate) const API_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Version of the API on Vertex AI.
const VERTEX_API_VERSION: &str = "vertex-2023-10-16";

/// Beta header for `block_binding`, which sets how thinking blocks are treated whose prefix has
/// changed. Without the header such a request is refused.
const THINKING_BINDING_BETA: HeaderValue =
    HeaderValue::from_static("thinking-binding-controls-2026-08-01");

/// Name of this API in carried state.
const API_NAME: &str = "anthropic";

/// Client of a server with the Messages API.
#[derive(Debug, Clone)]
pub struct Anthropic(Server<Messages>);

impl Anthropic {
    /// Creates a client. The base URL may end with `/v1`; `None` is Anthropic's own.
    ///
    /// # Errors
    ///
    /// If the base URL is invalid, or the key has characters that a header cannot have.
    pub fn new(
        guard: Guard,
        base_url: Option<&str>,
        key: Option<&SecretString>,
    ) -> Result<Self, Error> {
        let base = http::base(base_url, DEFAULT_BASE_URL)?;
        let url = match http::ends_with(&base, "v1") {
            true => http::below(&base, &["messages"]),
            false => http::below(&base, &["v1", "messages"]),
        };
        let key = http::key(HeaderName::from_static("x-api-key"), "", key)?;
        Ok(Self(Server::new(guard, key, Messages { endpoint: Endpoint::Messages(url) })))
    }

    /// Uses an OAuth access token instead of the key, if there is one.
    ///
    /// # Errors
    ///
    /// If the token has characters that a header cannot have.
    pub fn with_token(self, token: Option<&SecretString>) -> Result<Self, Error> {
        Ok(Self(self.0.with_token(token)?))
    }

    /// Adds headers and fields to each request.
    ///
    /// # Errors
    ///
    /// If a header cannot be sent.
    pub fn with_extras(self, extras: &RequestExtras) -> Result<Self, Error> {
        Ok(Self(self.0.with_extras(extras)?))
    }
}

impl Model for Anthropic {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        self.0.reply(request, on_delta, cancelled)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Messages {
    endpoint: Endpoint,
}

/// Address of the API.
#[derive(Debug, Clone)]
enum Endpoint {
    /// URL of the API of Messages.
    Messages(Url),
    /// URL above `models` on Vertex AI.
    Vertex(Url),
}

impl Messages {
    /// The API on Vertex AI: the model is in the address, and the version in the body.
    /// <https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai>
    pub(crate) const fn on_vertex(base: Url) -> Self {
        Self { endpoint: Endpoint::Vertex(base) }
    }
}

impl Protocol for Messages {
    type Decoder = Decoder;

    const FRAMES: Frames = Frames::Events;
    const OPTIONS: OptionNames = encode::OPTIONS;

    fn url(&self, request: &Request) -> Url {
        match &self.endpoint {
            Endpoint::Messages(url) => url.clone(),
            Endpoint::Vertex(base) => {
                let verb = format!("{}:streamRawPredict", request.model.id());
                http::below(base, &["models", &verb])
            }
        }
    }

    fn headers(&self, request: &Request) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Endpoint::Messages(_) = &self.endpoint {
            headers.insert("anthropic-version", API_VERSION);
        }
        if request.card().thinking.is_bound {
            headers.insert("anthropic-beta", THINKING_BINDING_BETA);
        }
        headers
    }

    fn encode(&self, request: &Request) -> Value {
        let mut body = encode::encode(request);
        if let (Endpoint::Vertex(_), Some(fields)) = (&self.endpoint, body.as_object_mut()) {
            fields.remove("model");
            fields.insert("anthropic_version".to_owned(), VERTEX_API_VERSION.into());
        }
        body
    }

    fn decoder(&self, request: &Request) -> Decoder {
        Decoder::new(request)
    }

    fn refusal(&self, status: u16, headers: &HeaderMap, body: &[u8], request: &Request) -> Error {
        refusal::of_answer(status, headers, body, &request.model)
    }
}

#[cfg(test)]
pub(crate) fn usage_of(reported: &Value) -> holdfast_types::Usage {
    let mut usage = holdfast_types::Usage::default();
    decode::update_usage(reported, &mut usage);
    usage
}
