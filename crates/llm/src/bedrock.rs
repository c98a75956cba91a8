//! Amazon Bedrock's Converse API, streamed.
//!
//! | rule | source |
//! |---|---|
//! | `POST https://bedrock-runtime.REGION.amazonaws.com/model/MODEL/converse-stream` | <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html> |
//! | an API key goes in `Authorization: Bearer` | <https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys-use.html> |
//! | keys of an AWS identity sign the request | <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html> |
//!
//! A model is the id of a model, of an inference profile, or its ARN.

mod credentials;
mod decode;
mod encode;
pub(crate) mod frames;
mod refusal;
mod sigv4;

use std::sync::Arc;

use holdfast_egress::Guard;
use reqwest::{
    Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue},
};
use secrecy::SecretString;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) use self::credentials::AwsIdentity;
use self::{
    credentials::{KeySource, Signer, parse_keys},
    decode::Decoder,
};
use crate::{
    Error, Model, OnDelta, ReplyFuture, Request, RequestExtras, WorkloadIdentity,
    http::{self, Frames, Protocol, Server},
    model::OptionNames,
};

/// Name of this API in carried state.
const API_NAME: &str = "converse";

/// Client of Amazon Bedrock.
#[derive(Debug, Clone)]
pub struct Bedrock(Server<Converse>);

/// Credentials for Bedrock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BedrockCredentials<'a> {
    /// An API key of Bedrock, or keys of an AWS identity as JSON.
    Key(&'a SecretString),
    /// The installation's own identity.
    Identity(&'a WorkloadIdentity),
}

impl Bedrock {
    /// Creates a client. The base URL names the region.
    ///
    /// # Errors
    ///
    /// If the base URL or the credentials are invalid, or the installation's identity may not be sent
    /// there.
    pub(crate) fn new(
        guard: Guard,
        base_url: Option<&str>,
        credentials: BedrockCredentials<'_>,
    ) -> Result<Self, Error> {
        let given = base_url.map(str::trim).filter(|url| !url.is_empty()).ok_or(Error::Setup(
            "a provider of kind `bedrock` needs a base url with its region, as \
             https://bedrock-runtime.us-east-1.amazonaws.com",
        ))?;
        let base = http::base(Some(given), given)?;
        let keys = match credentials {
            BedrockCredentials::Key(key) => match parse_keys(key)? {
                Some(keys) => KeySource::Fixed(keys),
                None => {
                    let key = http::key(AUTHORIZATION, "Bearer ", Some(key))?;
                    return Ok(Self(Server::new(guard, key, Converse { base })));
                }
            },
            BedrockCredentials::Identity(identity) => KeySource::Identity(identity.aws(&base)?),
        };
        let signer = Signer { region: region(&base)?, keys };
        Ok(Self(Server::new(guard, None, Converse { base }).with_authorizer(Arc::new(signer))))
    }

    /// Adds headers and fields to each request.
    ///
    /// # Errors
    ///
    /// If a header cannot be sent.
    pub(crate) fn with_extras(self, extras: &RequestExtras) -> Result<Self, Error> {
        Ok(Self(self.0.with_extras(extras)?))
    }
}

impl Model for Bedrock {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        self.0.reply(request, on_delta, cancelled)
    }
}

/// Region that a host names, which signatures need: the label after the service's.
fn region(base: &Url) -> Result<String, Error> {
    let host = base.host_str().unwrap_or_default();
    let mut labels = host.split('.').skip_while(|label| !label.starts_with("bedrock-runtime"));
    match labels.nth(1) {
        Some(region) => Ok(region.to_owned()),
        None => Err(Error::Setup(
            "the base url names no region, which aws keys need: use \
             https://bedrock-runtime.REGION.amazonaws.com, or an api key of bedrock",
        )),
    }
}

#[derive(Debug, Clone)]
struct Converse {
    base: Url,
}

impl Protocol for Converse {
    type Decoder = Decoder;

    const FRAMES: Frames = Frames::AwsEvents;
    const OPTIONS: OptionNames = encode::OPTIONS;

    fn options(&self, request: &Request) -> OptionNames {
        encode::options(request.model.id())
    }

    fn url(&self, request: &Request) -> Url {
        // AWS signs paths in which all but unreserved characters are encoded.
        let model = sigv4::encode(request.model.id(), "");
        let mut url = self.base.clone();
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{path}/model/{model}/converse-stream"));
        url
    }

    fn headers(&self, _: &Request) -> HeaderMap {
        let accepted = HeaderValue::from_static("application/vnd.amazon.eventstream");
        [(ACCEPT, accepted)].into_iter().collect()
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
mod tests;
