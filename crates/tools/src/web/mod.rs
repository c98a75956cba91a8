//! The web: fetching a page, and searching.
//!
//! | tool | effect | what |
//! |---|---|---|
//! | `web_fetch` | reads | the text of a page |
//! | `web_search` | reads | titles, addresses and snippets |
//!
//! What comes back was written by strangers, and is marked as that
//! ([`untrusted`](crate::untrusted)). What may be fetched is in [`guard`].

mod body;
#[cfg(test)]
pub(crate) mod fake;
mod fetch;
pub(crate) mod guard;
mod html;
mod markdown;
mod search;

use serde::{Deserialize, Serialize};

pub use fetch::WebFetch;
pub use guard::{Guard, Refused};
pub use search::{
    DuckDuckGo, Keyed, Perplexity, Provider as SearchProvider, Search, Searxng, WebSearch,
};

use crate::Registry;

/// The table `[runner.web]`: what tools may do on the web.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Web {
    /// Whether pages may be fetched.
    pub fetch: bool,
    /// What may be fetched though it is not on the public Internet: `host:port`, or `host` for
    /// any port. Every agent of every tenant may then fetch it.
    pub allow: Vec<String>,
    /// Where to search; nowhere, unless a provider is given.
    pub search: Search,
}

impl Default for Web {
    fn default() -> Self {
        Self { fetch: true, allow: Vec::new(), search: Search::default() }
    }
}

impl Registry {
    /// The same, with the tools that the settings give: no search where no provider is.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates, or a provider's address is none.
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

/// What a failed request of a client may tell the model: never its address, which may hold a key.
pub(crate) fn why(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "it took too long"
    } else if error.is_connect() {
        "no connection could be made"
    } else {
        "the connection broke"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Allowed, DIRECT, files::fake::Memory, mesh::tests::world};

    #[test]
    fn what_is_told_from_the_start_is_small() {
        let (_, _, tools) = world();
        let web: Web = serde_json::from_str(r#"{"search":{"duckduckgo":{}}}"#).unwrap();
        let tools = tools.with_files(Arc::new(Memory::default())).with_web(&web).unwrap();

        let all = serde_json::to_string(&tools.specs()).unwrap();
        let offered = tools.disclosing(DIRECT.iter().copied()).offered(&Allowed::all(), &[]).tools;

        let names: Vec<&str> = offered.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names.len(), DIRECT.len() + 2, "{names:?}");
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
