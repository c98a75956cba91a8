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
mod guarded_hosts;
mod search;

use std::sync::Arc;

use holdfast_egress::Guard;
use serde::{Deserialize, Serialize};

pub use fetch::WebFetch;
pub use guarded_hosts::GuardedHosts;
pub use search::{
    ANSWER_HEADING, DuckDuckGo, KeyedProvider, Perplexity, Provider as SearchProvider, Search,
    SearchAccount, SearchAccounts, Searxng, WebSearch,
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
    /// Adds the tools that are enabled. `guard` checks the addresses of search providers. Search is for the tenants that have a key of a provider, and
    /// for all if the settings have one.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates, or a provider's address is not a URL.
    pub fn with_web<A: SearchAccounts>(
        mut self,
        web: &Web,
        accounts: Arc<A>,
        guard: Guard,
    ) -> anyhow::Result<Self> {
        if web.fetch {
            self = self.with(WebFetch::new(web.allow.clone())?);
        }
        Ok(self.with(WebSearch::new(&web.search, accounts, guard)?))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        search::tests::{NoAccounts, local},
        *,
    };
    use crate::{
        AllowedTools, DEFAULT_DIRECT_TOOLS,
        files::fake::{Memory, no_documents},
        mesh::tests::world,
    };

    fn web_with_search() -> Web {
        serde_json::from_str(r#"{"search":{"duckduckgo":{}}}"#).unwrap()
    }

    #[test]
    fn what_is_told_from_the_start_is_small() {
        let (_, _, tools) = world();
        let web = web_with_search();
        let tools = tools
            .with_files(Arc::new(Memory::default()), no_documents())
            .with_web(&web, Arc::new(NoAccounts), local())
            .unwrap();

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
    fn without_leave_nothing_is_fetched() {
        let web = Web { fetch: false, ..Web::default() };

        let tools = Registry::default().with_web(&web, Arc::new(NoAccounts), local()).unwrap();
        assert_eq!(tools.canonical("fetch_url"), None);
        let tools =
            Registry::default().with_web(&Web::default(), Arc::new(NoAccounts), local()).unwrap();
        assert_eq!(tools.canonical("fetch_url"), Some("web_fetch"));
        assert!(!Search::default().has_provider() && web_with_search().search.has_provider());
    }
}
