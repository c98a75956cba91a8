//! OpenAI's Responses API, without storage at the provider: each request has the whole
//! conversation.
//!
//! The wire format is documented at
//! <https://platform.openai.com/docs/api-reference/responses-streaming>. Errors are those of Chat
//! Completions.

mod decode;
mod encode;

use holdfast_egress::Guard;
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap},
};
use secrecy::SecretString;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::decode::Decoder;
#[cfg(test)]
pub(crate) use self::decode::read_usage as usage_of;
use crate::{
    Error, Model, OnDelta, ReplyFuture, Request, RequestExtras,
    http::{self, Frames, Protocol, Server},
    model::OptionNames,
    openai::{DEFAULT_BASE_URL, refusal},
};

/// Name of this API in carried state.
const API_NAME: &str = "openai-responses";

/// Client of a server with Responses.
#[derive(Debug, Clone)]
pub struct Responses(Server<Wire>);

impl Responses {
    /// Creates a client. `None` is `https://api.openai.com/v1`.
    ///
    /// # Errors
    ///
    /// If the base URL is invalid, or the key has characters that a header cannot have.
    pub fn new(
        guard: Guard,
        base_url: Option<&str>,
        key: Option<&SecretString>,
    ) -> Result<Self, Error> {
        let url = http::below(&http::base(base_url, DEFAULT_BASE_URL)?, &["responses"]);
        let key = http::key(AUTHORIZATION, "Bearer ", key)?;
        Ok(Self(Server::new(guard, key, Wire::at(url))))
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

impl Model for Responses {
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
pub(crate) struct Wire {
    url: Url,
}

impl Wire {
    pub(crate) const fn at(url: Url) -> Self {
        Self { url }
    }
}

impl Protocol for Wire {
    type Decoder = Decoder;

    const FRAMES: Frames = Frames::Events;
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
