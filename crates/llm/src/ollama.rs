//! Ollama's own chat, which can do more than what it speaks besides: it says when a conversation
//! is too long instead of shortening it in silence.
//!
//! The wire as documented at <https://docs.ollama.com/api/chat>. A key is wanted by Ollama's cloud
//! only.

mod decode;
mod encode;
mod refusal;

use reqwest::{
    Client, Url,
    header::{AUTHORIZATION, HeaderMap},
};
use secrecy::SecretString;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::decode::Decoder;
use crate::{
    Error, Model, OnDelta, Replying, Request,
    http::{self, Frames, Protocol, Server},
};

/// Where it is if nothing is said.
const LOCAL: &str = "http://127.0.0.1:11434";

/// The name under which it carries things.
const API: &str = "ollama";

/// A server that speaks Ollama's chat.
#[derive(Debug, Clone)]
pub struct Ollama(Server<Chat>);

impl Ollama {
    /// A server by its base URL, with or without `/api` (this machine's if none is given), and key.
    ///
    /// # Errors
    ///
    /// If the URL is not one of a server, or the key cannot be sent.
    pub fn new(
        client: Client,
        base_url: Option<&str>,
        key: Option<&SecretString>,
    ) -> Result<Self, Error> {
        let base = http::base(base_url, LOCAL)?;
        let url = match http::ends_with(&base, "api") {
            true => http::below(&base, &["chat"]),
            false => http::below(&base, &["api", "chat"]),
        };
        let key = http::key(AUTHORIZATION, "Bearer ", key)?;
        Ok(Self(Server::new(client, key, Chat { url })))
    }
}

impl Model for Ollama {
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
struct Chat {
    url: Url,
}

impl Protocol for Chat {
    type Decoder = Decoder;

    const FRAMES: Frames = Frames::Lines;

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
