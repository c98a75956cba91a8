//! Chat Completions, of OpenAI and of every compatible server.

mod decode;
mod encode;
pub(crate) mod refusal;

use holdfast_egress::Guard;
use holdfast_types::Reply;
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap},
};
use secrecy::SecretString;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) use self::decode::count_searches;
#[cfg(test)]
pub(crate) use self::decode::read_usage as usage_of;
pub(crate) use self::encode::effort;
use self::{decode::Decoder, encode::encode};
use crate::{
    Delta, Error, Model, OnDelta, ReplyFuture, Request, RequestExtras,
    http::{self, Decode, Frames, Protocol, Server},
    model::OptionNames,
    servers::{self, ServerFeatures},
};

/// Name of this API in carried state.
const API_NAME: &str = "chat_completions";

pub(crate) const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

/// Client of a server with Chat Completions.
#[derive(Debug, Clone)]
pub struct OpenAi(Server<ChatCompletions>);

impl OpenAi {
    /// Creates a client. The name of its provider tells the server's rules if the host does not; `None`
    /// is `https://api.openai.com/v1`.
    ///
    /// # Errors
    ///
    /// If the base URL is invalid, or the key has characters that a header cannot have.
    pub fn new(
        guard: Guard,
        provider: &str,
        base_url: Option<&str>,
        key: Option<&SecretString>,
    ) -> Result<Self, Error> {
        let base = http::base(base_url, DEFAULT_BASE_URL)?;
        let takes = servers::features_of(provider, &base);
        let url = http::below(&base, &["chat", "completions"]);
        let key = http::key(AUTHORIZATION, "Bearer ", key)?;
        Ok(Self(Server::new(guard, key, ChatCompletions { url, takes })))
    }

    /// Whether the server asks newer models by Responses, if they have tools.
    pub(crate) const fn has_responses(&self) -> bool {
        self.0.protocol().takes.responses
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

impl Model for OpenAi {
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
pub(crate) struct ChatCompletions {
    url: Url,
    takes: ServerFeatures,
}

impl ChatCompletions {
    pub(crate) const fn at(url: Url, takes: ServerFeatures) -> Self {
        Self { url, takes }
    }
}

impl Protocol for ChatCompletions {
    type Decoder = Decoder;

    const FRAMES: Frames = Frames::Events;
    const OPTIONS: OptionNames = encode::OPTIONS;

    fn options(&self, _: &Request) -> OptionNames {
        encode::options(self.takes)
    }

    fn url(&self, _: &Request) -> Url {
        self.url.clone()
    }

    fn encode(&self, request: &Request) -> Value {
        encode(request, self.takes.for_model(request.model.id()))
    }

    fn decoder(&self, request: &Request) -> Decoder {
        Decoder::new(request, self.takes.for_model(request.model.id()).reasoning)
    }

    fn refusal(&self, status: u16, headers: &HeaderMap, body: &[u8], request: &Request) -> Error {
        refusal::of_answer(status, headers, body, &request.model)
    }
}

impl Decode for Decoder {
    fn push(&mut self, data: &[u8]) -> Result<Vec<Delta>, Error> {
        self.push(data)
    }

    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Error> {
        self.whole(body)
    }

    fn is_done(&self) -> bool {
        self.is_done()
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped()
    }

    fn finish(self) -> Result<Reply, Error> {
        self.finish()
    }
}

#[cfg(test)]
mod tests;
