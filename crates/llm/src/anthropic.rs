//! Anthropic's Messages, and whoever speaks them too.
//!
//! The wire as documented at <https://docs.claude.com/en/api/messages-streaming> and
//! <https://docs.claude.com/en/api/errors>.

mod decode;
mod encode;
mod refusal;

use reqwest::{
    Client, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use secrecy::SecretString;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::decode::Decoder;
use crate::{
    Error, Model, OnDelta, Replying, Request,
    http::{self, Frames, Protocol, Server},
};

/// Where Anthropic is.
const ANTHROPIC: &str = "https://api.anthropic.com";

/// The version of the language.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Lets a request say what becomes of thoughts before which something has changed. Without it such
/// a request is refused.
const BINDING: HeaderValue = HeaderValue::from_static("thinking-binding-controls-2026-08-01");

/// The name under which it carries things.
const API: &str = "anthropic";

/// A server that speaks Messages.
#[derive(Debug, Clone)]
pub struct Anthropic(Server<Messages>);

impl Anthropic {
    /// A server by its base URL, with or without `/v1` (Anthropic's own if none is given), and key.
    ///
    /// # Errors
    ///
    /// If the URL is not one of a server, or the key cannot be sent.
    pub fn new(
        client: Client,
        base_url: Option<&str>,
        key: Option<&SecretString>,
    ) -> Result<Self, Error> {
        let base = http::base(base_url, ANTHROPIC)?;
        let url = match http::ends_with(&base, "v1") {
            true => http::below(&base, &["messages"]),
            false => http::below(&base, &["v1", "messages"]),
        };
        let key = http::key(HeaderName::from_static("x-api-key"), "", key)?;
        Ok(Self(Server::new(client, key, Messages { url })))
    }

    /// The same, presenting an OAuth access token in the place of its key, if there is one.
    ///
    /// # Errors
    ///
    /// If the token cannot be sent.
    pub fn with_token(self, token: Option<&SecretString>) -> Result<Self, Error> {
        Ok(Self(self.0.with_token(token)?))
    }
}

impl Model for Anthropic {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> Replying<'a> {
        self.0.reply(request, on_delta, cancelled)
    }
}

#[derive(Debug, Clone)]
struct Messages {
    url: Url,
}

impl Protocol for Messages {
    type Decoder = Decoder;

    const FRAMES: Frames = Frames::Events;

    fn url(&self, _: &Request) -> Url {
        self.url.clone()
    }

    fn headers(&self, request: &Request) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", VERSION);
        if request.card().thinking.is_bound {
            headers.insert("anthropic-beta", BINDING);
        }
        headers
    }

    fn encode(&self, request: &Request) -> Value {
        encode::encode(request)
    }

    fn decoder(&self, request: &Request) -> Decoder {
        Decoder::new(request)
    }

    fn refusal(&self, status: u16, headers: &HeaderMap, body: &[u8], request: &Request) -> Error {
        refusal::of_answer(status, headers, body, &request.model)
    }
}
