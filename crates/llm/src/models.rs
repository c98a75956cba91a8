//! The configured providers, by name.

use std::{collections::BTreeMap, fmt, sync::Arc};

use holdfast_egress::Guard;
use holdfast_types::ModelId;
use secrecy::SecretString;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "bedrock")]
use crate::bedrock::{Bedrock, BedrockCredentials};
use crate::{
    Alternatives, Anthropic, Azure, Demo, Error, Gemini, Model, Ollama, OnDelta, OpenAi,
    ReplyFuture, Request, RequestExtras, Responses, RetryingModel, Vertex, WorkloadIdentity,
    observe::InstrumentedModel, servers, vertex::VertexCredentials,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    #[serde(rename = "openai")]
    OpenAi,
    #[serde(rename = "openai-responses")]
    Responses,
    Anthropic,
    Gemini,
    Ollama,
    Azure,
    Vertex,
    Bedrock,
    Demo,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub kind: ProviderKind,
    /// `None` is the URL of the known server with the provider's name, else the kind's default.
    #[serde(default)]
    pub base_url: Option<String>,
    /// `None` if the server needs no key.
    #[serde(default)]
    pub api_key: Option<SecretString>,
    /// Whether `api_key` is an OAuth access token (RFC 6750).
    #[serde(default)]
    pub is_oauth: bool,
    /// Headers and fields of the body that are added to each request.
    #[serde(default)]
    pub extras: RequestExtras,
    /// This installation's identity in the cloud, if the provider may use it instead of a key.
    #[serde(skip)]
    pub identity: Option<WorkloadIdentity>,
}

impl Provider {
    /// Returns the identity that is used instead of a key.
    fn identity(&self) -> Result<&WorkloadIdentity, Error> {
        let identity = self.identity.as_ref().ok_or(Error::Setup(
            "it has no key: set one, or have the operator allow this installation's identity in \
             `runner.workload_identity.tenants`",
        ))?;
        // Some headers, such as one for another project's quota, say what the identity does.
        match self.extras.headers.is_empty() {
            true => Ok(identity),
            false => Err(Error::Setup("a provider without a key has no headers of its own")),
        }
    }
}

/// OpenAI itself: newer models take no tools in Chat Completions (`servers.rs`).
#[derive(Debug)]
struct TwoApis {
    chat: OpenAi,
    responses: Responses,
}

impl Model for TwoApis {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        let has_tools = !request.chat.tools.is_empty();
        match has_tools && servers::needs_responses(request.model.id()) {
            true => self.responses.reply(request, on_delta, cancelled),
            false => self.chat.reply(request, on_delta, cancelled),
        }
    }
}

/// Models by id. `demo` always exists.
#[derive(Clone)]
pub struct Models {
    providers: BTreeMap<String, Arc<dyn Model>>,
}

impl Models {
    /// Creates the demonstration model alone.
    #[must_use]
    pub fn demo() -> Self {
        Self { providers: BTreeMap::new() }.with("demo", Demo)
    }

    /// Adds a provider whose address the guard checks, and retries its requests.
    ///
    /// # Errors
    ///
    /// If the settings are invalid.
    pub fn with_provider(
        self,
        name: &str,
        guard: &Guard,
        provider: &Provider,
    ) -> Result<Self, Error> {
        self.with_provider_and_alternatives(name, guard, provider, Alternatives::Absent)
    }

    /// Same as [`with_provider`](Self::with_provider), but states whether alternatives to this
    /// provider exist.
    ///
    /// # Errors
    ///
    /// If the settings are invalid.
    pub fn with_provider_and_alternatives(
        self,
        name: &str,
        guard: &Guard,
        provider: &Provider,
        among: Alternatives,
    ) -> Result<Self, Error> {
        let given = provider.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let key = provider.api_key.as_ref();
        let token = key.filter(|_| provider.is_oauth);
        let extras = &provider.extras;
        Ok(match provider.kind {
            ProviderKind::OpenAi => {
                // Without the known base URL, the key of such a server would be sent to OpenAI.
                let known = servers::by_name(name).map(|known| known.base_url);
                let base_url = given.or(known);
                let chat = OpenAi::new(guard.clone(), name, base_url, key)?.with_extras(extras)?;
                if !chat.has_responses() {
                    return Ok(self.with(name, RetryingModel::new(chat).with_alternatives(among)));
                }
                let responses = Responses::new(guard.clone(), base_url, key)?;
                let model = TwoApis { chat, responses: responses.with_extras(extras)? };
                self.with(name, RetryingModel::new(model).with_alternatives(among))
            }
            ProviderKind::Responses => {
                let model = Responses::new(guard.clone(), given, key)?.with_extras(extras)?;
                self.with(name, RetryingModel::new(model).with_alternatives(among))
            }
            ProviderKind::Anthropic => {
                let model = Anthropic::new(guard.clone(), given, key)?.with_token(token)?;
                let model = model.with_extras(extras)?;
                self.with(name, RetryingModel::new(model).with_alternatives(among))
            }
            ProviderKind::Gemini => {
                let model = Gemini::new(guard.clone(), given, key)?.with_token(token)?;
                let model = model.with_extras(extras)?;
                self.with(name, RetryingModel::new(model).with_alternatives(among))
            }
            ProviderKind::Ollama => {
                let model = Ollama::new(guard.clone(), given, key)?.with_extras(extras)?;
                self.with(name, RetryingModel::new(model).with_alternatives(among))
            }
            ProviderKind::Azure => {
                let model = Azure::new(guard.clone(), given, key)?.with_token(token)?;
                let model = model.with_extras(extras)?;
                self.with(name, RetryingModel::new(model).with_alternatives(among))
            }
            ProviderKind::Vertex => {
                let credentials = match (token, key) {
                    (Some(token), _) => VertexCredentials::Token(token),
                    (None, Some(key)) => VertexCredentials::ServiceAccount(key),
                    (None, None) => VertexCredentials::Identity(provider.identity()?),
                };
                let model = Vertex::new(guard.clone(), given, credentials)?.with_extras(extras)?;
                self.with(name, RetryingModel::new(model).with_alternatives(among))
            }
            #[cfg(feature = "bedrock")]
            ProviderKind::Bedrock => {
                let credentials = match key {
                    Some(key) => BedrockCredentials::Key(key),
                    None => BedrockCredentials::Identity(provider.identity()?),
                };
                let model = Bedrock::new(guard.clone(), given, credentials)?.with_extras(extras)?;
                self.with(name, RetryingModel::new(model).with_alternatives(among))
            }
            #[cfg(not(feature = "bedrock"))]
            ProviderKind::Bedrock => {
                return Err(Error::Setup("this build was made without the feature `bedrock`"));
            }
            ProviderKind::Demo => self.with(name, Demo),
        })
    }

    /// Adds a provider's model, replacing one with the same name.
    #[must_use]
    pub fn with(self, provider: &str, model: impl Model + 'static) -> Self {
        self.with_shared(provider, Arc::new(InstrumentedModel::new(model, provider.to_owned())))
    }

    /// Adds a model that another owner shares, such as a test.
    #[must_use]
    pub fn with_shared(mut self, provider: &str, model: Arc<dyn Model>) -> Self {
        self.providers.insert(provider.to_owned(), model);
        self
    }

    /// Returns the model that answers requests for an id. The id itself is part of each request.
    ///
    /// # Errors
    ///
    /// If there is no such provider.
    pub fn get(&self, id: &ModelId) -> Result<Arc<dyn Model>, Error> {
        self.providers.get(id.provider()).cloned().ok_or_else(|| Error::NoProvider {
            given: id.provider().to_owned(),
            known: self.names().collect::<Vec<_>>().join(", "),
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard::with_system_resolver([]).unwrap()
    }

    fn openai(base_url: &str) -> Result<Models, Error> {
        let provider = Provider {
            kind: ProviderKind::OpenAi,
            base_url: Some(base_url.into()),
            api_key: Some("sk-secret".into()),
            is_oauth: false,
            extras: RequestExtras::default(),
            identity: None,
        };
        Models::demo().with_provider("openai", &guard(), &provider)
    }

    #[test]
    fn the_demonstration_is_always_there_and_others_are_named() {
        let models = Models::demo();

        assert!(models.get(&"demo:demo".parse().unwrap()).is_ok());
        let error = models.get(&"acme:x".parse().unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no model provider `acme`: configure it, or use one of demo"
        );
    }

    #[test]
    fn wrong_settings_are_found_at_the_start() {
        for url in ["nonsense", "ftp://x/v1", "https://me:pw@x/v1"] {
            assert!(matches!(openai(url), Err(Error::Setup(_))), "{url}");
        }
    }

    #[test]
    fn settings_are_read_and_a_key_is_never_shown() {
        let text = r#"{"kind":"openai","base_url":"http://127.0.0.1:1/v1/","api_key":"sk-secret"}"#;
        let provider: Provider = serde_json::from_str(text).unwrap();

        assert!(!format!("{provider:?}").contains("secret"));
        let models = Models::demo().with_provider("local", &guard(), &provider).unwrap();
        let model = models.get(&"local:x".parse().unwrap()).unwrap();
        assert!(!format!("{models:?} {model:?}").contains("secret"));
        assert!(serde_json::from_str::<Provider>(r#"{"kind":"openai","key":"x"}"#).is_err());
    }
}
