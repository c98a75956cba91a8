//! Ollama's own chat API. Unlike its compatible API it reports a conversation that is too long
//! instead of truncating it silently.
//!
//! The wire format is documented at <https://docs.ollama.com/api/chat>. Only Ollama's cloud needs a
//! key.

mod decode;
mod encode;
mod refusal;

use holdfast_egress::Guard;
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap},
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

pub(crate) const DEFAULT_BASE_URL: &str = "http://127.0.0.1:11434";

/// Name of this API in carried state.
const API_NAME: &str = "ollama";

/// Client of a server with Ollama's chat.
#[derive(Debug, Clone)]
pub struct Ollama(Server<Chat>);

impl Ollama {
    /// Creates a client. The base URL may end with `/api`; `None` is this machine.
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
        let url = match http::ends_with(&base, "api") {
            true => http::below(&base, &["chat"]),
            false => http::below(&base, &["api", "chat"]),
        };
        let key = http::key(AUTHORIZATION, "Bearer ", key)?;
        Ok(Self(Server::new(guard, key, Chat { url })))
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

impl Model for Ollama {
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
struct Chat {
    url: Url,
}

impl Protocol for Chat {
    type Decoder = Decoder;

    const FRAMES: Frames = Frames::Lines;
    const OPTIONS: OptionNames = encode::OPTIONS;

    fn url(&self, _: &Request) -> Url {
        self.url.clone()
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
