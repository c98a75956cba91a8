//! Providers of a tenant's models.

pub mod catalogue;
pub mod credential;
pub mod platform;
pub mod renewal;

use std::{collections::BTreeMap, fmt};

use holdfast_llm::{Catalogue, RequestExtras, RetiredModel, credentials::Credential};
use holdfast_types::{AccountId, ModelId};
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::{
    Budget, Error, PlanLimits, Product, ProviderCredentials, TenantCatalogue, tenant::check_name,
    url_syntax,
};

/// Built-in provider that every tenant has: it works offline, and identifies itself as a demo.
pub(crate) const DEMO: &str = "demo";
const MAX_URL_BYTES: usize = 2_000;
const MAX_API_KEY_BYTES: usize = 8_000;

/// API protocol of a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProviderKind {
    /// Chat Completions of OpenAI and all compatible servers.
    #[default]
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
    /// Azure OpenAI.
    Azure,
    /// Gemini and Anthropic's models on Vertex AI.
    Vertex,
    /// Amazon Bedrock.
    Bedrock,
    /// Built in, works offline.
    Demo,
}

impl ProviderKind {
    pub const ALL: [Self; 9] = [
        Self::OpenAi,
        Self::Responses,
        Self::Anthropic,
        Self::Gemini,
        Self::Ollama,
        Self::Azure,
        Self::Vertex,
        Self::Bedrock,
        Self::Demo,
    ];

    /// Returns the name that the database and the API use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Azure => "azure",
            Self::Vertex => "vertex",
            Self::Bedrock => "bedrock",
            Self::Demo => "demo",
        }
    }

    /// Returns the protocol with which models of this kind are asked.
    #[must_use]
    pub const fn protocol(self) -> holdfast_llm::ProviderKind {
        match self {
            Self::OpenAi => holdfast_llm::ProviderKind::OpenAi,
            Self::Responses => holdfast_llm::ProviderKind::Responses,
            Self::Anthropic => holdfast_llm::ProviderKind::Anthropic,
            Self::Gemini => holdfast_llm::ProviderKind::Gemini,
            Self::Ollama => holdfast_llm::ProviderKind::Ollama,
            Self::Azure => holdfast_llm::ProviderKind::Azure,
            Self::Vertex => holdfast_llm::ProviderKind::Vertex,
            Self::Bedrock => holdfast_llm::ProviderKind::Bedrock,
            Self::Demo => holdfast_llm::ProviderKind::Demo,
        }
    }

    /// Parses a kind.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an unknown kind.
    pub fn parse(word: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| {
            let other: String = word.chars().take(80).collect();
            let known = Self::ALL.map(Self::as_str).join(", ");
            Error::Invalid(format!("`{other}` is not a kind of provider: use one of {known}"))
        })
    }
}

/// A provider without its API key and the values of its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Name; the first part of its models' ids.
    pub name: String,
    pub kind: ProviderKind,
    /// Base URL of the API; empty uses the kind's default.
    pub base_url: String,
    pub has_key: bool,
    /// Default model of the tenant, as `provider:id`, if it belongs to this provider.
    pub default_model: Option<String>,
    /// Names of the headers that are added to each request.
    pub header_names: Vec<String>,
    /// Fields that are added to the body of each request.
    pub extra_body: Map<String, Value>,
}

/// A provider to set up.
#[derive(Clone, Default)]
pub struct NewProvider {
    /// Name; the first part of its models' ids.
    pub name: String,
    pub kind: ProviderKind,
    /// Base URL of the API; empty uses the kind's default.
    pub base_url: String,
    /// API key; `None` keeps the stored one.
    pub api_key: Option<SecretString>,
    /// Model of the provider that becomes the tenant's default, as `gpt-5` or `openai:gpt-5`.
    pub default_model: Option<String>,
    /// Headers that are added to each request; `None` keeps the stored ones.
    pub headers: Option<BTreeMap<String, SecretString>>,
    /// Fields that are added to the body of each request; `None` keeps the stored ones.
    pub extra_body: Option<Map<String, Value>>,
}

impl fmt::Debug for NewProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewProvider").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A model, and the access to its provider.
#[derive(Debug, Clone)]
pub struct ModelChoice {
    pub model: ModelId,
    pub kind: ProviderKind,
    /// Base URL of the API; empty uses the kind's default.
    pub base_url: String,
    /// API key that the provider was set up with.
    pub api_key: Option<SecretString>,
    /// All credentials of the provider, including `api_key`.
    pub keys: ProviderCredentials,
    /// Headers and fields of the body that are added to each request.
    pub extras: RequestExtras,
    /// Whether the keys are the installation's, which the tenant's plan allows.
    pub is_platform: bool,
}

impl ModelChoice {
    /// Returns how the provider is asked, with the first of its keys.
    #[must_use]
    pub fn provider(&self) -> holdfast_llm::Provider {
        let first = self.keys.profiles.first().map(|profile| &profile.credential);
        let (api_key, is_oauth) = match first {
            Some(Credential::ApiKey { key }) => (Some(key.clone()), false),
            Some(Credential::Token { token, .. }) => (Some(token.clone()), false),
            Some(Credential::OAuth { access, .. }) => (Some(access.clone()), true),
            None => (self.api_key.clone(), false),
        };
        holdfast_llm::Provider {
            kind: self.kind.protocol(),
            base_url: Some(self.base_url.clone()),
            api_key,
            is_oauth,
            extras: self.extras.clone(),
            identity: None,
        }
    }
}

/// Models of an agent with their catalogue and budgets, and what its prompt tells of its tenant.
#[derive(Debug, Clone)]
pub struct ModelSetup {
    /// The agent's model, then its fallbacks in order.
    pub choices: Vec<ModelChoice>,
    /// Model catalogue of the tenant.
    pub catalogue: TenantCatalogue,
    /// Budgets of the agent and its tenant.
    pub budgets: Vec<Budget>,
    /// Limits of the tenant's plan.
    pub limits: PlanLimits,
    /// Whether a provider of the tenant offers speech output.
    pub has_speech: bool,
    /// Whether the tenant has a key of a search provider.
    pub has_search: bool,
    /// The tenant's own aliases of models.
    pub aliases: BTreeMap<String, ModelId>,
    pub product: Product,
    /// Actions that each channel account of the tenant supports, by their names in the tool
    /// `message`.
    pub actions: BTreeMap<AccountId, &'static [&'static str]>,
}

/// Providers of a tenant, and what an agent's requests to them may cost.
#[derive(Debug, Clone)]
pub struct ProviderAccess {
    /// In the order of their names.
    pub choices: Vec<ModelChoice>,
    /// Model catalogue of the tenant.
    pub catalogue: TenantCatalogue,
    /// Budgets of the agent and its tenant.
    pub budgets: Vec<Budget>,
    /// Limits of the tenant's plan.
    pub limits: PlanLimits,
}

/// Name of a provider that offers speech and no chat.
pub const ELEVENLABS: &str = "elevenlabs";

/// Names of providers whose keys are used for web search; the first may offer chat too.
pub const SEARCH_PROVIDERS: [&str; 3] = ["perplexity", "brave", "tavily"];

impl NewProvider {
    /// Validates the provider, and expands the default model to `provider:id`.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        use secrecy::ExposeSecret as _;
        check_name("provider", &self.name)?;
        if self.name == DEMO && self.kind != ProviderKind::Demo {
            return Err(Error::Invalid(
                "`demo` is the built-in provider: take another name".into(),
            ));
        }
        check_url(&self.base_url)?;
        let key = self.api_key.as_ref().map(SecretString::expose_secret).unwrap_or_default();
        let is_printable = key.chars().all(|c| c.is_ascii() && !c.is_control());
        if key.len() > MAX_API_KEY_BYTES || !(is_printable || is_json_object(key)) {
            return Err(Error::Invalid(format!(
                "an API key has {MAX_API_KEY_BYTES} characters at most, all of them printable ASCII, \
                 or is a JSON object"
            )));
        }
        let extras = RequestExtras {
            headers: self.headers.clone().unwrap_or_default(),
            body: self.extra_body.clone().unwrap_or_default(),
        };
        extras.check().map_err(|error| Error::Invalid(error.to_string()))?;
        self.default_model = match self.default_model {
            Some(model) => {
                let model = self::default_model(&self.name, &model)?;
                // Another address may have a model of that name still.
                if self.base_url.is_empty() {
                    check_not_retired(&model)?;
                }
                Some(model.to_string())
            }
            None => None,
        };
        Ok(self)
    }
}

/// Whether a key is a JSON object, as those of Google's service accounts and of AWS.
pub(crate) fn is_json_object(key: &str) -> bool {
    key.trim_start().starts_with('{') && serde_json::from_str::<Map<String, Value>>(key).is_ok()
}

/// Expands a model name: `gpt-5` and `openai:gpt-5` are the same model of `openai`.
fn default_model(provider: &str, model: &str) -> Result<ModelId, Error> {
    let prefix = format!("{provider}:");
    let id = model.trim();
    let id = id.strip_prefix(&prefix).unwrap_or(id);
    format!("{prefix}{id}")
        .parse()
        .map_err(|error: holdfast_types::InvalidModelId| Error::Invalid(error.to_string()))
}

/// Checks that the vendor has not switched the model off.
fn check_not_retired(model: &ModelId) -> Result<(), Error> {
    let today = jiff::Timestamp::now().strftime("%F").to_string();
    match Catalogue::built_in().retired(model).filter(|retired| retired.is_off(&today)) {
        Some(RetiredModel { on, successor }) => Err(Error::Invalid(format!(
            "`{model}` was switched off by its vendor ({on}): use `{successor}`"
        ))),
        None => Ok(()),
    }
}

fn check_url(url: &str) -> Result<(), Error> {
    if url.is_empty() {
        return Ok(());
    }
    // A password in a URL ends up in logs.
    if url_syntax::authority(url).is_none_or(|host| host.contains('@')) || url.len() > MAX_URL_BYTES
    {
        return Err(Error::Invalid(
            "a provider's `base_url` begins with https:// or http://, as in \
             `https://api.openai.com/v1`, and holds no password"
                .to_owned(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, base_url: &str, model: Option<&str>) -> Result<NewProvider, Error> {
        NewProvider {
            name: name.to_owned(),
            kind: ProviderKind::OpenAi,
            base_url: base_url.to_owned(),
            api_key: Some("sk-secret".into()),
            default_model: model.map(str::to_owned),
            ..NewProvider::default()
        }
        .check()
    }

    #[test]
    fn a_kind_is_named_by_one_word() {
        for kind in ProviderKind::ALL {
            assert_eq!(ProviderKind::parse(kind.as_str()).unwrap(), kind);
        }
        assert_eq!(
            ProviderKind::parse("cohere").unwrap_err().to_string(),
            "`cohere` is not a kind of provider: use one of openai, openai-responses, anthropic, \
             gemini, ollama, azure, vertex, bedrock, demo"
        );
    }

    #[test]
    fn a_default_model_is_written_in_full() {
        let model = |given| new("ollama", "", Some(given)).unwrap().default_model.unwrap();

        assert_eq!(model("qwen3:4b"), "ollama:qwen3:4b");
        assert_eq!(model("ollama:qwen3:4b"), "ollama:qwen3:4b");
        assert!(new("ollama", "", Some("a b")).is_err());
    }

    #[test]
    fn only_urls_of_the_web_are_taken() {
        for url in ["", "https://api.openai.com/v1", "http://127.0.0.1:11434/v1"] {
            assert!(new("x", url, None).is_ok(), "{url}");
        }
        for url in [
            "api.openai.com",
            "file:///etc/passwd",
            "https://",
            "http:///v1",
            "https://a b",
            "https://user:password@host/",
        ] {
            assert!(new("x", url, None).is_err(), "{url}");
        }
    }

    #[test]
    fn the_built_in_name_cannot_be_taken_by_another_kind() {
        assert!(new("demo", "", None).is_err());
    }

    #[test]
    fn the_key_is_not_shown() {
        assert!(!format!("{:?}", new("x", "", None).unwrap()).contains("secret"));
    }
}
