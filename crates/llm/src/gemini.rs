//! Google's generateContent API, streamed.
//!
//! The wire format is documented at <https://ai.google.dev/api/generate-content> and
//! <https://ai.google.dev/gemini-api/docs/thought-signatures>.

mod decode;
mod encode;
mod refusal;

use holdfast_egress::Guard;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName},
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
};

/// Base URL, including the API's version.
pub(crate) const DEFAULT_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// Name of this API in carried state.
const API_NAME: &str = "gemini";

/// Client of a server with generateContent.
#[derive(Debug, Clone)]
pub struct Gemini(Server<GenerateContent>);

impl Gemini {
    /// Creates a client. `None` is Google's own base URL.
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
        let key = http::key(HeaderName::from_static("x-goog-api-key"), "", key)?;
        Ok(Self(Server::new(guard, key, GenerateContent { base })))
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

impl Model for Gemini {
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
pub(crate) struct GenerateContent {
    /// URL above `models`.
    pub(crate) base: Url,
}

impl Protocol for GenerateContent {
    type Decoder = Decoder;

    const FRAMES: Frames = Frames::Events;
    const OPTIONS: OptionNames = encode::OPTIONS;

    fn url(&self, request: &Request) -> Url {
        let id = request.model.id();
        let id = id.strip_prefix("models/").unwrap_or(id);
        let verb = format!("{id}:streamGenerateContent");
        let mut url = http::below(&self.base, &["models", &verb]);
        url.set_query(Some("alt=sse"));
        url
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_model::tests::request;

    #[test]
    fn a_models_name_leads_nowhere_else() {
        let url = |id: &str| {
            let model = format!("gemini:{id}").parse().unwrap();
            let base = http::base(Some("https://example.com/v1beta/"), DEFAULT_BASE_URL).unwrap();
            GenerateContent { base }.url(&Request { model, ..request() }).to_string()
        };

        let plain =
            "https://example.com/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse";
        assert_eq!(url("gemini-2.5-pro"), plain);
        assert_eq!(url("models/gemini-2.5-pro"), plain);
        assert_eq!(
            url("../../x?y#z"),
            "https://example.com/v1beta/models/..%2F..%2Fx%3Fy%23z:streamGenerateContent?alt=sse"
        );
    }
}
