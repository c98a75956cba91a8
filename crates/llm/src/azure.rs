//! Chat Completions of Azure OpenAI and Microsoft Foundry.
//!
//! | rule | source |
//! |---|---|
//! | without a dated version: `<resource>/openai/v1/chat/completions`; the model is the name of the deployment | <https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle> |
//! | with one: `<resource>/openai/deployments/<deployment>/chat/completions?api-version=<date>` | <https://learn.microsoft.com/azure/ai-foundry/openai/reference> |
//! | a key goes in the header `api-key`, a token of Entra ID in `Authorization` | the same |
//! | the first piece of a stream has `prompt_filter_results` and no choices | <https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-streaming> |
//! | a prompt that the filter refuses: status 400, code `content_filter`, and `innererror.code` `ResponsibleAIPolicyViolation` | <https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter> |
//!
//! Newer models of OpenAI are asked by Responses if they have tools, at `<resource>/openai/v1/responses`
//! (`servers.rs`); a dated version is always asked by Chat Completions.
//!
//! Versions before 2024-10-21, the oldest stable one that is supported, have neither
//! `stream_options` nor `max_completion_tokens`, and are refused.

use holdfast_egress::Guard;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName},
};
use secrecy::SecretString;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Model, OnDelta, ReplyFuture, Request, RequestExtras,
    http::{self, Frames, Protocol, Server},
    model::OptionNames,
    openai::{ChatCompletions, refusal},
    responses,
    servers::{self, AZURE_FEATURES, ServerFeatures},
};

/// Oldest dated version of the API.
const OLDEST_VERSION: &str = "2024-10-21";

/// Client of a resource of Azure OpenAI.
#[derive(Debug, Clone)]
pub struct Azure {
    chat: Server<Deployments>,
    /// `None` at a dated version.
    responses: Option<Server<responses::Wire>>,
}

impl Azure {
    /// Creates a client. The base URL is the resource's, or the whole one that Azure's portal shows;
    /// `api-version` in its query selects a dated version of the API.
    ///
    /// # Errors
    ///
    /// If the base URL is invalid or its version is too old, or the key has characters that a header
    /// cannot have.
    pub fn new(
        guard: Guard,
        base_url: Option<&str>,
        key: Option<&SecretString>,
    ) -> Result<Self, Error> {
        let deployments = Deployments::at(base_url)?;
        let key = http::key(HeaderName::from_static("api-key"), "", key)?;
        let responses = deployments.version.is_none().then(|| {
            let url = http::below(&deployments.base, &["v1", "responses"]);
            Server::new(guard.clone(), key.clone(), responses::Wire::at(url))
        });
        Ok(Self { chat: Server::new(guard, key, deployments), responses })
    }

    /// Uses an access token instead of the key, if there is one.
    ///
    /// # Errors
    ///
    /// If the token has characters that a header cannot have.
    pub fn with_token(self, token: Option<&SecretString>) -> Result<Self, Error> {
        let responses = self.responses.map(|server| server.with_token(token)).transpose()?;
        Ok(Self { chat: self.chat.with_token(token)?, responses })
    }

    /// Adds headers and fields to each request.
    ///
    /// # Errors
    ///
    /// If a header cannot be sent.
    pub fn with_extras(self, extras: &RequestExtras) -> Result<Self, Error> {
        let responses = self.responses.map(|server| server.with_extras(extras)).transpose()?;
        Ok(Self { chat: self.chat.with_extras(extras)?, responses })
    }
}

impl Model for Azure {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        let has_tools = !request.chat.tools.is_empty();
        match &self.responses {
            Some(server) if has_tools && servers::needs_responses(request.model.id()) => {
                server.reply(request, on_delta, cancelled)
            }
            Some(_) | None => self.chat.reply(request, on_delta, cancelled),
        }
    }
}

/// Deployments of a resource.
#[derive(Debug, Clone)]
struct Deployments {
    /// URL up to `/openai`.
    base: Url,
    /// `None` is the API without versions.
    version: Option<String>,
    chat: ChatCompletions,
}

impl Deployments {
    fn at(base_url: Option<&str>) -> Result<Self, Error> {
        let given = base_url.map(str::trim).filter(|url| !url.is_empty()).ok_or(Error::Setup(
            "a provider of kind `azure` needs the base url of its resource, as \
             https://NAME.openai.azure.com",
        ))?;
        let mut base = http::base(Some(given), given)?;
        let version = base.query_pairs().find(|(name, _)| name == "api-version");
        let version = version.map(|(_, version)| version.into_owned());
        // The API without versions is also called with a word, such as `preview`.
        let version = version.filter(|version| version.starts_with(|c: char| c.is_ascii_digit()));
        if version.as_deref().is_some_and(|version| version < OLDEST_VERSION) {
            return Err(Error::Setup("the `api-version` in the base url is before 2024-10-21"));
        }
        // What follows is the API's own, such as `/deployments/gpt-5/chat/completions`.
        let prefix: Vec<String> = base
            .path_segments()
            .into_iter()
            .flatten()
            .take_while(|segment| *segment != "openai")
            .filter(|segment| !segment.is_empty())
            .map(str::to_owned)
            .collect();
        base.set_query(None);
        base.set_fragment(None);
        base.set_path(&prefix.join("/"));
        let base = http::below(&base, &["openai"]);
        // Dated versions refuse fields that are newer than they.
        let takes = ServerFeatures { cache_key: version.is_none(), ..AZURE_FEATURES };
        let chat = ChatCompletions::at(http::below(&base, &["v1", "chat", "completions"]), takes);
        Ok(Self { base, version, chat })
    }
}

impl Protocol for Deployments {
    type Decoder = <ChatCompletions as Protocol>::Decoder;

    const FRAMES: Frames = ChatCompletions::FRAMES;
    const OPTIONS: OptionNames = ChatCompletions::OPTIONS;

    fn url(&self, request: &Request) -> Url {
        let Some(version) = &self.version else { return self.chat.url(request) };
        let deployment = ["deployments", request.model.id(), "chat", "completions"];
        let mut url = http::below(&self.base, &deployment);
        url.query_pairs_mut().append_pair("api-version", version);
        url
    }

    fn encode(&self, request: &Request) -> Value {
        self.chat.encode(request)
    }

    fn decoder(&self, request: &Request) -> Self::Decoder {
        self.chat.decoder(request)
    }

    fn refusal(&self, status: u16, headers: &HeaderMap, body: &[u8], request: &Request) -> Error {
        if is_filtered(body) {
            return Error::Filtered;
        }
        refusal::of_answer(status, headers, body, &request.model)
    }
}

/// Whether the content filter refused the prompt.
fn is_filtered(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &body["error"];
    let inner = error.get("innererror").or_else(|| error.get("inner_error"));
    error["code"] == "content_filter"
        || inner.is_some_and(|inner| inner["code"] == "ResponsibleAIPolicyViolation")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scripted_model::tests::request;

    fn url(base: &str) -> String {
        let model = "azure:my?gpt/5".parse().unwrap();
        let deployments = Deployments::at(Some(base)).unwrap();
        deployments.url(&Request { model, ..request() }).to_string()
    }

    #[test]
    fn a_resource_is_asked_without_a_version_and_a_dated_one_by_its_deployment() {
        let plain = "https://r.openai.azure.com/openai/v1/chat/completions";
        for base in [
            "https://r.openai.azure.com",
            "https://r.openai.azure.com/",
            "https://r.openai.azure.com/openai/v1/",
            "https://r.openai.azure.com/openai/v1?api-version=preview",
        ] {
            assert_eq!(url(base), plain, "{base}");
        }
        assert_eq!(
            url("https://gw.example.com/a/openai/v1"),
            "https://gw.example.com/a/openai/v1/chat/completions"
        );
        let dated = "https://r.openai.azure.com/openai/deployments/my%3Fgpt%2F5/chat/completions\
                     ?api-version=2025-01-01-preview";
        for base in [
            "https://r.openai.azure.com/?api-version=2025-01-01-preview",
            "https://r.openai.azure.com/openai/deployments/x/chat/completions?api-version=2025-01-01-preview",
        ] {
            assert_eq!(url(base), dated, "{base}");
        }
    }

    #[test]
    fn a_missing_address_and_an_old_version_are_refused() {
        for base in ["", "https://r.openai.azure.com?api-version=2023-05-15", "r.openai.azure.com"]
        {
            let refused = Deployments::at(Some(base));
            assert!(matches!(refused, Err(Error::Setup(_))), "{base}");
        }
    }

    #[test]
    fn a_prompt_that_the_filter_refuses_is_filtered() {
        let body = json!({ "error": {
            "message": "The response was filtered due to the prompt triggering …",
            "type": null, "param": "prompt", "code": "content_filter", "status": 400,
            "innererror": {
                "code": "ResponsibleAIPolicyViolation",
                "content_filter_result": { "hate": { "filtered": true, "severity": "high" } },
            },
        } });
        let missing = json!({ "error": { "code": "DeploymentNotFound", "message": "no" } });
        let deployments = Deployments::at(Some("https://r.openai.azure.com")).unwrap();
        let class = |status, body: &Value| {
            let body = body.to_string();
            deployments.refusal(status, &HeaderMap::new(), body.as_bytes(), &request()).class()
        };

        assert_eq!(class(400, &body), "filtered");
        assert_eq!(class(404, &missing), "no_model");
        assert_eq!(class(401, &json!({ "error": { "code": "401" } })), "auth");
    }
}
