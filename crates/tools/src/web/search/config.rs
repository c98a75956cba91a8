//! What an operator may choose about searching.

use holdfast_kit::config::masked;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The table `[runner.web.search]`: who searches the web for agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// In which order the providers are asked for; the first that is given is used.
    pub order: Vec<Provider>,
    /// Perplexity.
    pub perplexity: Option<Perplexity>,
    /// Brave Search.
    pub brave: Option<Keyed>,
    /// Tavily.
    pub tavily: Option<Keyed>,
    /// DuckDuckGo, which wants no key, and answers those who ask often with a riddle.
    pub duckduckgo: Option<DuckDuckGo>,
    /// A SearXNG of one's own.
    pub searxng: Option<Searxng>,
}

/// Who searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Perplexity.
    Perplexity,
    /// Brave Search.
    Brave,
    /// Tavily.
    Tavily,
    /// DuckDuckGo.
    DuckDuckGo,
    /// SearXNG.
    Searxng,
}

/// A provider that wants a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keyed {
    /// The key.
    #[serde(serialize_with = "masked")]
    pub api_key: SecretString,
    /// Where it is, if not where it always is.
    #[serde(default)]
    pub base_url: Option<String>,
}

/// Perplexity, which wants a key, and answers with a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perplexity {
    /// The key.
    #[serde(serialize_with = "masked")]
    pub api_key: SecretString,
    /// Where it is, if not where it always is.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The model that answers.
    #[serde(default = "sonar")]
    pub model: String,
}

/// DuckDuckGo.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DuckDuckGo {
    /// Where it is, if not where it always is.
    pub base_url: Option<String>,
}

/// A SearXNG, which must have `json` among its `search.formats`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Searxng {
    /// Where it is.
    pub base_url: String,
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
