//! Web: fetching and searching.
//!
//! | tool | effect | purpose |
//! |---|---|---|
//! | `web_fetch` | reads | the text of a page |
//! | `web_search` | reads | titles, addresses and snippets |
//!
//! Results come from outside and are marked by [`untrusted`](crate::untrusted). [`Guard`](holdfast_egress::Guard)
//! decides which addresses may be fetched.

mod body;
#[cfg(test)]
pub(crate) mod fake;
mod fetch;
mod html;
mod markdown;
mod search;

use serde::{Deserialize, Serialize};

pub use fetch::WebFetch;
pub use search::{
    DuckDuckGo, KeyedProvider, Perplexity, Provider as SearchProvider, Search, Searxng, WebSearch,
};

use crate::Registry;

/// Options of the table `[runner.web]`: web access of the tools.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Web {
    pub fetch: bool,
    /// Addresses that may be fetched although they are not on the public Internet: `host:port`, or
    /// `host` for any port. Every agent of every tenant may then fetch them.
    pub allow: Vec<String>,
    /// Search providers. Without one there is no search.
    pub search: Search,
}

impl Default for Web {
    fn default() -> Self {
        Self { fetch: true, allow: Vec::new(), search: Search::default() }
    }
}

impl Registry {
    /// Adds the tools that are enabled; no search without a provider.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates, or a provider's address is not a URL.
    pub fn with_web(mut self, web: &Web) -> anyhow::Result<Self> {
        if web.fetch {
            self = self.with(WebFetch::new(web.allow.clone())?);
        }
        if let Some(search) = WebSearch::new(&web.search)? {
            self = self.with(search);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{AllowedTools, DEFAULT_DIRECT_TOOLS, files::fake::Memory, mesh::tests::world};

    #[test]
    fn what_is_told_from_the_start_is_small() {
        let (_, _, tools) = world();
        let web: Web = serde_json::from_str(r#"{"search":{"duckduckgo":{}}}"#).unwrap();
        let tools = tools.with_files(Arc::new(Memory::default())).with_web(&web).unwrap();

        let all = serde_json::to_string(&tools.specs()).unwrap();
        let offered = tools
            .with_direct_tools(DEFAULT_DIRECT_TOOLS.iter().copied())
            .offered(&AllowedTools::matching(|_| true), &[])
            .tools;

        let names: Vec<&str> = offered.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names.len(), DEFAULT_DIRECT_TOOLS.len() + 2, "{names:?}");
        assert!(names.is_sorted());
        let size = serde_json::to_string(&offered).unwrap().len();
        println!("{size} of {} bytes", all.len());
        assert!(size <= 6 * 1024, "{size}");
    }

    #[test]
    fn without_a_provider_there_is_no_search_and_without_leave_no_fetching() {
        let web = Web { fetch: false, ..Web::default() };

        assert!(Registry::default().with_web(&web).unwrap().specs().is_empty());
        let tools = Registry::default().with_web(&Web::default()).unwrap();
        assert_eq!(tools.canonical("fetch_url"), Some("web_fetch"));
        assert_eq!(tools.canonical("web_search"), None);
    }
}
