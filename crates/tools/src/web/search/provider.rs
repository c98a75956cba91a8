//! Requests to search providers, and parsing of their responses.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_documents::html::{attribute, tokens};
use holdfast_egress::Guard;
use html5gum::Token;
use reqwest::{Client, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use super::{Hit, KeyedProvider, Provider, Search, SearchResults};

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 2 * 1024 * 1024;

/// Configured provider, with its address.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Perplexity { url: Url, key: SecretString, model: String },
    Brave { url: Url, key: SecretString },
    Tavily { url: Url, key: SecretString },
    DuckDuckGo { url: Url },
    Searxng { url: Url },
}

impl Source {
    /// Returns the first configured provider, in the order of the settings.
    pub(super) fn first(settings: &Search) -> anyhow::Result<Option<Self>> {
        for provider in &settings.order {
            if let Some(source) = Self::configured(settings, *provider)? {
                return Ok(Some(source));
            }
        }
        Ok(None)
    }

    fn configured(settings: &Search, provider: Provider) -> anyhow::Result<Option<Self>> {
        let keyed = |keyed: &Option<KeyedProvider>, base: &str, path: &str| {
            let Some(KeyedProvider { api_key, base_url }) = keyed else { return Ok(None) };
            let url = endpoint(base_url.as_deref().unwrap_or(base), path)?;
            anyhow::Ok(Some((url, api_key.clone())))
        };
        Ok(match provider {
            Provider::Perplexity => match &settings.perplexity {
                None => None,
                Some(given) => {
                    let base = given.base_url.as_deref().unwrap_or("https://api.perplexity.ai");
                    let (key, model) = (given.api_key.clone(), given.model.clone());
                    Some(Self::Perplexity { url: endpoint(base, "chat/completions")?, key, model })
                }
            },
            Provider::Brave => {
                keyed(&settings.brave, "https://api.search.brave.com", "res/v1/web/search")?
                    .map(|(url, key)| Self::Brave { url, key })
            }
            Provider::Tavily => keyed(&settings.tavily, "https://api.tavily.com", "search")?
                .map(|(url, key)| Self::Tavily { url, key }),
            Provider::DuckDuckGo => match &settings.duckduckgo {
                None => None,
                Some(given) => {
                    let base = given.base_url.as_deref().unwrap_or("https://html.duckduckgo.com");
                    Some(Self::DuckDuckGo { url: endpoint(base, "html/")? })
                }
            },
            Provider::Searxng => match &settings.searxng {
                None => None,
                Some(given) => Some(Self::Searxng { url: endpoint(&given.base_url, "search")? }),
            },
        })
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Perplexity { .. } => "Perplexity",
            Self::Brave { .. } => "Brave",
            Self::Tavily { .. } => "Tavily",
            Self::DuckDuckGo { .. } => "DuckDuckGo",
            Self::Searxng { .. } => "SearXNG",
        }
    }

    pub(super) const fn url(&self) -> &Url {
        match self {
            Self::Perplexity { url, .. }
            | Self::Brave { url, .. }
            | Self::Tavily { url, .. }
            | Self::DuckDuckGo { url }
            | Self::Searxng { url } => url,
        }
    }

    /// Timeout of a search: a model takes longer than an index.
    pub(super) const fn timeout(&self) -> Duration {
        match self {
            Self::Perplexity { .. } => Duration::from_secs(30),
            Self::Brave { .. }
            | Self::Tavily { .. }
            | Self::DuckDuckGo { .. }
            | Self::Searxng { .. } => Duration::from_secs(10),
        }
    }

    pub(super) async fn search(
        &self,
        client: &Client,
        query: &str,
        count: usize,
    ) -> Result<SearchResults, String> {
        match self {
            Self::Perplexity { url, key, model } => {
                let body = json!({
                    "model": model,
                    "max_tokens": 1000,
                    "messages": [
                        { "role": "system", "content": "Answer briefly, with the sources." },
                        { "role": "user", "content": query },
                    ],
                });
                let request = client.post(url.clone()).bearer_auth(key.expose_secret());
                Ok(json_of::<Completion>(request.json(&body)).await?.into())
            }
            Self::Brave { url, key } => {
                let url = with(url, &[("q", query), ("count", &count.to_string())]);
                let request = client.get(url).header("x-subscription-token", key.expose_secret());
                let answer: BraveAnswer = json_of(request).await?;
                Ok(to_results(answer.web.unwrap_or_default().results))
            }
            Self::Tavily { url, key } => {
                let body = json!({
                    "query": query,
                    "max_results": count,
                    "search_depth": "basic",
                    "include_answer": false,
                });
                let request = client.post(url.clone()).bearer_auth(key.expose_secret());
                Ok(to_results(json_of::<Results>(request.json(&body)).await?.results))
            }
            Self::DuckDuckGo { url } => {
                let request = client.get(with(url, &[("q", query)])).header("accept", "text/html");
                duckduckgo(&String::from_utf8_lossy(&bytes_of(request).await?))
            }
            Self::Searxng { url } => {
                let request = client.get(with(url, &[("q", query), ("format", "json")]));
                Ok(to_results(json_of::<Results>(request).await?.results))
            }
        }
    }
}

/// Builds a URL below a base, which may have a path of its own.
fn endpoint(base: &str, path: &str) -> anyhow::Result<Url> {
    let url = Url::parse(&format!("{}/{path}", base.trim_end_matches('/')))
        .with_context(|| format!("`{base}` is no address of a search provider"))?;
    let is_web = matches!(url.scheme(), "http" | "https");
    anyhow::ensure!(is_web, "`{base}` is no address of a search provider: write `https://host`");
    Ok(url)
}

fn with(url: &Url, pairs: &[(&str, &str)]) -> Url {
    let mut url = url.clone();
    url.query_pairs_mut().extend_pairs(pairs);
    url
}

async fn json_of<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, String> {
    let bytes = bytes_of(request.header("accept", "application/json")).await?;
    serde_json::from_slice(&bytes).map_err(|_| "its answer was not understood".to_owned())
}

async fn bytes_of(request: RequestBuilder) -> Result<Vec<u8>, String> {
    let mut response: Response = request.send().await.map_err(|error| Guard::told(&error))?;
    let status = response.status();
    if !status.is_success() {
        return Err(match status.as_u16() {
            401 | 403 => "it does not take the key that is set for it".to_owned(),
            429 => "it was asked too often; wait a while".to_owned(),
            status => format!("it answered {status}"),
        });
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Guard::told(&error))? {
        if bytes.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(format!("its answer has more than {MAX_RESPONSE_BYTES} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Response of Perplexity: in OpenAI's format, with sources in the new field or the old one.
#[derive(Debug, Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    #[serde(default)]
    search_results: Vec<Entry>,
    #[serde(default)]
    citations: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    message: CompletionMessage,
}

#[derive(Debug, Deserialize)]
struct CompletionMessage {
    content: String,
}

#[derive(Debug, Deserialize)]
struct BraveAnswer {
    web: Option<Results>,
}

#[derive(Debug, Default, Deserialize)]
struct Results {
    #[serde(default)]
    results: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    title: Option<String>,
    url: Option<String>,
    #[serde(alias = "description", alias = "content")]
    snippet: Option<String>,
}

impl From<Completion> for SearchResults {
    fn from(completion: Completion) -> Self {
        let answer = completion.choices.into_iter().next().map(|choice| choice.message.content);
        let mut hits = to_results(completion.search_results).hits;
        if hits.is_empty() {
            let hit = |url: String| Hit { title: url.clone(), url, snippet: String::new() };
            hits = completion.citations.into_iter().map(hit).collect();
        }
        Self { answer: answer.filter(|answer| !answer.trim().is_empty()), hits }
    }
}

fn to_results(entries: Vec<Entry>) -> SearchResults {
    let hits = entries.into_iter().filter_map(|entry| {
        let url = entry.url?;
        let title = entry.title.filter(|title| !title.trim().is_empty());
        let snippet = without_tags(&entry.snippet.unwrap_or_default());
        Some(Hit { title: without_tags(&title.unwrap_or_else(|| url.clone())), url, snippet })
    });
    SearchResults { answer: None, hits: hits.collect() }
}

/// Removes the tags that highlight search words in a snippet.
fn without_tags(text: &str) -> String {
    if !text.contains(['<', '&']) {
        return text.to_owned();
    }
    let texts = tokens(text).filter_map(|token| match token {
        Token::String(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        _ => None,
    });
    texts.collect()
}

/// Parses DuckDuckGo's page for browsers without scripts.
fn duckduckgo(html: &str) -> Result<SearchResults, String> {
    let mut hits: Vec<Hit> = Vec::new();
    let mut is_ad = false;
    // Part of a hit that the text belongs to, while its element is open.
    let mut part: Option<fn(&mut Hit) -> &mut String> = None;
    for token in tokens(html) {
        match token {
            Token::StartTag(tag) => {
                let class = attribute(&tag.attributes, "class").unwrap_or_default();
                let has = |name: &str| class.split_whitespace().any(|class| class == name);
                if has("anomaly-modal__mask") || has("anomaly-modal__title") {
                    return Err("it takes us for a robot; search with another provider".to_owned());
                }
                if has("result") {
                    is_ad = has("result--ad");
                } else if has("result__a") && !is_ad {
                    let href = attribute(&tag.attributes, "href").unwrap_or_default();
                    hits.push(Hit { url: result_url(&href), ..Hit::default() });
                    part = Some(|hit| &mut hit.title);
                } else if has("result__snippet") && !is_ad {
                    part = Some(|hit| &mut hit.snippet);
                }
            }
            Token::EndTag(tag) if matches!(&tag.name[..], b"a" | b"div" | b"td") => part = None,
            Token::String(text) => {
                if let (Some(part), Some(hit)) = (part, hits.last_mut()) {
                    part(hit).push_str(&String::from_utf8_lossy(&text));
                }
            }
            _ => {}
        }
    }
    Ok(SearchResults { answer: None, hits })
}

/// Target of a result's link, which leads through a redirect: `//duckduckgo.com/l/?uddg=…`.
fn result_url(href: &str) -> String {
    let whole = if href.starts_with("//") { format!("https:{href}") } else { href.to_owned() };
    let through = Url::parse(&whole).ok().and_then(|url| {
        let (_, to) = url.query_pairs().find(|(name, _)| name == "uddg")?;
        Some(to.into_owned())
    });
    through.unwrap_or(whole)
}
