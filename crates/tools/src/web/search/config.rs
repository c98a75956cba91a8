//! Options of web search.

use holdfast_kit::config::masked;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Options of the table `[runner.web.search]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// Order of the providers; the first configured one is used.
    pub order: Vec<Provider>,
    pub perplexity: Option<Perplexity>,
    pub brave: Option<KeyedProvider>,
    pub tavily: Option<KeyedProvider>,
    /// DuckDuckGo, which needs no key, and answers frequent requests with a CAPTCHA.
    pub duckduckgo: Option<DuckDuckGo>,
    pub searxng: Option<Searxng>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    Perplexity,
    Brave,
    Tavily,
    DuckDuckGo,
    Searxng,
}

/// Options of a provider that needs a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyedProvider {
    #[serde(serialize_with = "masked")]
    pub api_key: SecretString,
    /// Base URL, if not the provider's public one.
    #[serde(default)]
    pub base_url: Option<String>,
}

/// Options of Perplexity, which needs a key, and answers with a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perplexity {
    #[serde(serialize_with = "masked")]
    pub api_key: SecretString,
    /// Base URL, if not the provider's public one.
    #[serde(default)]
    pub base_url: Option<String>,
    #[serde(default = "sonar")]
    pub model: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DuckDuckGo {
    /// Base URL, if not the provider's public one.
    pub base_url: Option<String>,
}

/// Options of SearXNG, which must have `json` among its `search.formats`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Searxng {
    pub base_url: String,
}

impl Perplexity {
    pub(super) fn new(api_key: SecretString, base_url: Option<String>) -> Self {
        Self { api_key, base_url, model: sonar() }
    }
}

impl Search {
    /// Whether the settings have a provider.
    #[must_use]
    pub fn has_provider(&self) -> bool {
        self.order.iter().any(|provider| match provider {
            Provider::Perplexity => self.perplexity.is_some(),
            Provider::Brave => self.brave.is_some(),
            Provider::Tavily => self.tavily.is_some(),
            Provider::DuckDuckGo => self.duckduckgo.is_some(),
            Provider::Searxng => self.searxng.is_some(),
        })
    }
}

impl Default for Search {
    fn default() -> Self {
        use Provider::{Brave, DuckDuckGo, Perplexity, Searxng, Tavily};
        Self {
            order: vec![Perplexity, Brave, Tavily, DuckDuckGo, Searxng],
            perplexity: None,
            brave: None,
            tavily: None,
            duckduckgo: None,
            searxng: None,
        }
    }
}

fn sonar() -> String {
    "sonar".to_owned()
}
