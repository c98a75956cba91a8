//! The `web_search` tool.
//!
//! | provider | needs | returns |
//! |---|---|---|
//! | Perplexity | a key | a text, and its sources |
//! | Brave, Tavily | a key | titles, addresses, snippets |
//! | DuckDuckGo | nothing | the same, read from its page |
//! | SearXNG | an address | the same, from a server of one's own |
//!
//! The first configured provider is used, in the order of the settings (decision C-32): the tenant's
//! own if it has any, else the installation's.

mod cache;
mod config;
mod provider;

use std::{fmt::Write as _, future::Future, sync::Arc, time::Duration};

use holdfast_egress::Guard;
use holdfast_types::Effect;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

use self::{
    cache::{Cache, Query},
    provider::Source,
};
pub use config::{DuckDuckGo, KeyedProvider, Perplexity, Provider, Search, Searxng};

use crate::{Call, Output, Tool, ToolError, untrusted, untrusted::one_line};

/// Maximum length of a snippet or title, in characters.
const MAX_SNIPPET_CHARS: usize = 600;

/// Maximum length of all results together, in characters.
const MAX_SHOWN_CHARS: usize = 20_000;

/// Search the web, and get titles, addresses and snippets. Read a page with `web_fetch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebSearchInput {
    /// What to search for.
    query: String,
    /// How many results, from 1 to 10.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 10))]
    count: usize,
}

const fn five() -> usize {
    5
}

/// Search providers that tenants have keys for; implemented by agent-runner.
pub trait SearchAccounts: Send + Sync + 'static {
    /// Lists those of the call's tenant.
    fn accounts(
        &self,
        call: &Call,
    ) -> impl Future<Output = anyhow::Result<Vec<SearchAccount>>> + Send;
}

/// Key of a tenant for a search provider.
#[derive(Debug, Clone)]
pub struct SearchAccount {
    /// `perplexity`, `brave` or `tavily`; other names are ignored.
    pub provider: String,
    pub api_key: SecretString,
    /// Base URL, if not the provider's public one.
    pub base_url: Option<String>,
}

#[derive(Debug)]
pub struct WebSearch<A> {
    /// Provider of the installation.
    source: Option<Source>,
    order: Vec<Provider>,
    accounts: Arc<A>,
    guard: Guard,
    cache: Cache,
}

/// Results of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SearchResults {
    /// Answer by the provider itself, if it gives one.
    answer: Option<String>,
    hits: Vec<Hit>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Hit {
    title: String,
    url: String,
    snippet: String,
}

impl<A: SearchAccounts> WebSearch<A> {
    /// # Errors
    ///
    /// If a provider's address is not a URL.
    pub fn new(settings: &Search, accounts: Arc<A>, guard: Guard) -> anyhow::Result<Self> {
        let (source, order) = (Source::first(settings)?, settings.order.clone());
        Ok(Self { source, order, accounts, guard, cache: Cache::default() })
    }

    /// Provider of the call's tenant, or else of the installation.
    async fn source_for(&self, call: &Call) -> Result<Source, ToolError> {
        let mut own = Search { order: self.order.clone(), ..Search::default() };
        for SearchAccount { provider, api_key, base_url } in self.accounts.accounts(call).await? {
            match provider.as_str() {
                "perplexity" => own.perplexity = Some(Perplexity::new(api_key, base_url)),
                "brave" => own.brave = Some(KeyedProvider { api_key, base_url }),
                "tavily" => own.tavily = Some(KeyedProvider { api_key, base_url }),
                _ => {}
            }
        }
        let source = Source::first(&own)?.or_else(|| self.source.clone());
        source.ok_or_else(|| ToolError::Tell("no search provider is set up".to_owned()))
    }
}

impl<A: SearchAccounts> Tool<Output> for WebSearch<A> {
    const NAME: &'static str = "web_search";
    const EFFECT: Effect = Effect::Reads;
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(35));
    type Input = WebSearchInput;

    async fn call(&self, call: Call, input: WebSearchInput) -> Result<Output, ToolError> {
        let WebSearchInput { query, count } = input;
        let query = one_line(&query);
        if query.is_empty() || query.chars().count() > 400 {
            return Err(ToolError::Tell("`query` must have from 1 to 400 characters".to_owned()));
        }
        if !(1..=10).contains(&count) {
            return Err(ToolError::Tell("`count` must be from 1 to 10".to_owned()));
        }
        let source = self.source_for(&call).await?;
        let asked = Query { tenant: call.tenant, text: query.clone(), count };
        let found = match self.cache.get(&asked) {
            Some(found) => found,
            None => {
                let patience = source.timeout();
                let client = self.guard.client_for_secret(source.url());
                let client = client.map_err(|refused| ToolError::Tell(refused.to_string()))?;
                let found = source.search(client, &query, count);
                let found = tokio::time::timeout(patience, found).await;
                let found = found.unwrap_or_else(|_| {
                    Err(format!("it took longer than {} s", patience.as_secs()))
                });
                let name = source.name();
                let mut found = found.map_err(|why| {
                    ToolError::Tell(format!("{name} cannot be searched now: {why}"))
                })?;
                found.hits.retain(|hit| hit.url.starts_with("http"));
                found.hits.truncate(count);
                self.cache.put(asked, found.clone());
                found
            }
        };
        let name = source.name();
        let details = json!({ "provider": name, "results": found.hits.len() });
        if found == SearchResults::default() {
            return Ok(Output::from(format!("Nothing was found for `{query}` (via {name}).")));
        }
        let text = format_results(&query, name, &found);
        let from = format!("a web search (via {name})");
        Ok(Output::from(untrusted(&call.key, &from, &text, MAX_SHOWN_CHARS)).record(details))
    }
}

/// Line before an answer that the provider itself has written.
pub const ANSWER_HEADING: &str = "Answer of the search engine:";

/// Formats the results for the model (TOL-042).
fn format_results(query: &str, provider: &str, found: &SearchResults) -> String {
    let mut text = format!("Results for: {query} (via {provider})\n");
    // Writing to a `String` cannot fail.
    for (number, hit) in found.hits.iter().enumerate() {
        let short = |text: &str| one_line(text).chars().take(MAX_SNIPPET_CHARS).collect::<String>();
        let _ = writeln!(text, "{}. {}\n   {}", number + 1, short(&hit.title), short(&hit.url));
        if !hit.snippet.trim().is_empty() {
            let _ = writeln!(text, "   {}", short(&hit.snippet));
        }
    }
    if let Some(answer) = &found.answer {
        let _ = writeln!(text, "\n{ANSWER_HEADING}\n{}", answer.trim());
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
