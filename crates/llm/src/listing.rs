//! Models that a provider itself lists.
//!
//! | kind | asked | models are in |
//! |---|---|---|
//! | `openai`, `openai-responses` | `GET /models` | `data[].id`; `data[].pricing` of OpenRouter |
//! | `anthropic` | `GET /v1/models`, by pages | `data[].id` |
//! | `gemini` | `GET /models`, by pages | `models[].name` |
//! | `ollama` | `GET /api/tags` | `models[].name` |

use std::time::Duration;

use holdfast_egress::Guard;
use holdfast_types::ModelId;
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value;

use crate::{
    Error, Prices, Provider, ProviderKind, anthropic, gemini,
    http::{self, MAX_BODY_BYTES},
    ollama, openai, servers,
};

/// Time limit of reading a list, all pages together.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// Pages that are read of a list. A page has up to a thousand models.
const MAX_PAGES: usize = 10;

/// A model in a provider's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// Id without the provider.
    pub id: String,
    /// Prices of text; most providers name none.
    pub prices: Option<Prices>,
}

/// Asks a provider for its models. Providers of the kinds `azure`, `vertex` and `bedrock` have no list of
/// what a key may ask: `None`.
///
/// # Errors
///
/// If the settings are invalid, the address is refused, or the provider does not answer with a list.
pub async fn list_models(
    name: &str,
    guard: &Guard,
    provider: &Provider,
) -> Result<Option<Vec<ListedModel>>, Error> {
    if provider.kind == ProviderKind::Demo {
        return Ok(Some(vec![ListedModel { id: "demo".to_owned(), prices: None }]));
    }
    let Some(list) = ModelList::new(name, provider)? else { return Ok(None) };
    let read = tokio::time::timeout(LIST_TIMEOUT, list.read(guard)).await;
    read.map_err(|_| Error::Timeout)?.map(Some)
}

/// Address of a list, and what is sent with the request.
struct ModelList {
    kind: ProviderKind,
    url: Url,
    key: Option<(HeaderName, HeaderValue)>,
    /// Headers of the provider's settings.
    headers: HeaderMap,
}

impl ModelList {
    fn new(name: &str, provider: &Provider) -> Result<Option<Self>, Error> {
        let given = provider.base_url.as_deref();
        let has_address = given.is_some_and(|url| !url.trim().is_empty());
        let known = servers::by_name(name).map(|known| known.base_url);
        let base = |own| http::base(given, own);
        let kind = provider.kind;
        let url = match kind {
            ProviderKind::OpenAi if !has_address => {
                http::below(&base(known.unwrap_or(openai::DEFAULT_BASE_URL))?, &["models"])
            }
            ProviderKind::OpenAi | ProviderKind::Responses | ProviderKind::Demo => {
                http::below(&base(openai::DEFAULT_BASE_URL)?, &["models"])
            }
            ProviderKind::Anthropic => below(&base(anthropic::DEFAULT_BASE_URL)?, "v1", "models"),
            ProviderKind::Gemini => http::below(&base(gemini::DEFAULT_BASE_URL)?, &["models"]),
            ProviderKind::Ollama => below(&base(ollama::DEFAULT_BASE_URL)?, "api", "tags"),
            ProviderKind::Azure | ProviderKind::Vertex | ProviderKind::Bedrock => return Ok(None),
        };
        let own_header = match kind {
            ProviderKind::Anthropic => Some("x-api-key"),
            ProviderKind::Gemini => Some("x-goog-api-key"),
            ProviderKind::OpenAi
            | ProviderKind::Responses
            | ProviderKind::Ollama
            | ProviderKind::Azure
            | ProviderKind::Vertex
            | ProviderKind::Bedrock
            | ProviderKind::Demo => None,
        };
        let (header, prefix) = match own_header {
            Some(name) if !provider.is_oauth => (HeaderName::from_static(name), ""),
            Some(_) | None => (AUTHORIZATION, "Bearer "),
        };
        let key = http::key(header, prefix, provider.api_key.as_ref())?;
        Ok(Some(Self { kind, url, key, headers: provider.extras.header_map()? }))
    }

    async fn read(&self, guard: &Guard) -> Result<Vec<ListedModel>, Error> {
        let (mut models, mut after) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = self.page(guard, after.as_deref()).await?;
            models.extend(models_of(&page)?);
            after = next_page(&page);
            if after.is_none() {
                break;
            }
        }
        Ok(models)
    }

    async fn page(&self, guard: &Guard, after: Option<&str>) -> Result<Value, Error> {
        let mut url = self.url.clone();
        let (size, token) = match self.kind {
            ProviderKind::Anthropic => (Some("limit"), "after_id"),
            ProviderKind::Gemini => (Some("pageSize"), "pageToken"),
            ProviderKind::OpenAi
            | ProviderKind::Responses
            | ProviderKind::Ollama
            | ProviderKind::Azure
            | ProviderKind::Vertex
            | ProviderKind::Bedrock
            | ProviderKind::Demo => (None, "after"),
        };
        if let Some(size) = size {
            url.query_pairs_mut().append_pair(size, "1000");
        }
        if let Some(after) = after {
            url.query_pairs_mut().append_pair(token, after);
        }
        let mut sent = guard.client_for_secret(&url)?.get(url).headers(self.headers.clone());
        if self.kind == ProviderKind::Anthropic {
            sent = sent.header("anthropic-version", anthropic::API_VERSION);
        }
        if let Some((name, key)) = &self.key {
            sent = sent.header(name, key.clone());
        }
        let response = sent.send().await.map_err(http::unreachable)?;
        match response.status().as_u16() {
            200 => {}
            401 | 403 => return Err(Error::Auth),
            429 => return Err(Error::RateLimited { retry_after: None }),
            status => return Err(Error::Unavailable { status: Some(status), source: None }),
        }
        let body = http::read(response, MAX_BODY_BYTES).await?;
        serde_json::from_slice(&body).map_err(|_| Error::Malformed("its list of models"))
    }
}

/// Appends a path below a base URL that may end with its first segment.
fn below(base: &Url, first: &str, last: &str) -> Url {
    match http::ends_with(base, first) {
        true => http::below(base, &[last]),
        false => http::below(base, &[first, last]),
    }
}

fn models_of(page: &Value) -> Result<Vec<ListedModel>, Error> {
    let listed = ["data", "models"].iter().find_map(|field| page[*field].as_array());
    let listed = listed.ok_or(Error::Malformed("its list of models"))?;
    let model = |entry: &Value| {
        let id = entry["id"].as_str().or_else(|| entry["name"].as_str())?;
        let id = id.strip_prefix("models/").unwrap_or(id);
        // What cannot be a model's id is nothing to compare with.
        format!("p:{id}").parse::<ModelId>().ok()?;
        Some(ListedModel { id: id.to_owned(), prices: prices_of(&entry["pricing"]) })
    };
    Ok(listed.iter().filter_map(model).collect())
}

fn next_page(page: &Value) -> Option<String> {
    let has_more = page["has_more"] == true;
    let token = page["nextPageToken"].as_str();
    token.or_else(|| page["last_id"].as_str().filter(|_| has_more)).map(str::to_owned)
}

/// Reads prices as OpenRouter names them: US dollars per token, as texts.
fn prices_of(pricing: &Value) -> Option<Prices> {
    let price = |field: &str| {
        let dollars: f64 = pricing[field].as_str()?.trim().parse().ok()?;
        let thousandths = (dollars * 1e9).round();
        // A negative price means that it depends on the request.
        if !(0.0..=1e12).contains(&thousandths) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        let price = thousandths as u64;
        Some(price)
    };
    Some(Prices {
        input: price("prompt")?,
        output: price("completion")?,
        cached: price("input_cache_read"),
        written: price("input_cache_write"),
        ..Prices::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::RequestExtras;

    fn list(name: &str, kind: ProviderKind, base_url: Option<&str>) -> ModelList {
        let (base_url, api_key) = (base_url.map(str::to_owned), Some("sk-1".into()));
        let extras = RequestExtras::default();
        let provider =
            Provider { kind, base_url, api_key, is_oauth: false, extras, identity: None };
        ModelList::new(name, &provider).unwrap().unwrap()
    }

    #[test]
    fn each_kind_is_asked_at_its_address_with_its_key() {
        for (name, kind, base, url, header) in [
            (
                "openai",
                ProviderKind::OpenAi,
                None,
                "https://api.openai.com/v1/models",
                "authorization",
            ),
            (
                "groq",
                ProviderKind::OpenAi,
                Some(""),
                "https://api.groq.com/openai/v1/models",
                "authorization",
            ),
            (
                "x",
                ProviderKind::OpenAi,
                Some("https://x.example/v1/"),
                "https://x.example/v1/models",
                "authorization",
            ),
            (
                "anthropic",
                ProviderKind::Anthropic,
                None,
                "https://api.anthropic.com/v1/models",
                "x-api-key",
            ),
            (
                "a",
                ProviderKind::Anthropic,
                Some("https://a.example/v1"),
                "https://a.example/v1/models",
                "x-api-key",
            ),
            (
                "o",
                ProviderKind::Ollama,
                Some("http://o.example:1"),
                "http://o.example:1/api/tags",
                "authorization",
            ),
        ] {
            let list = list(name, kind, base);

            assert_eq!(list.url.as_str(), url);
            assert_eq!(list.key.unwrap().0.as_str(), header, "{name}");
        }
    }

    #[test]
    fn models_are_read_in_each_form_and_prices_where_they_are_named() {
        let openrouter = json!({"data": [
            {"id": "openai/gpt-5", "pricing": {"prompt": "0.00000125", "completion": "0.00001",
                                                "input_cache_read": "0.000000125"}},
            {"id": "openrouter/auto", "pricing": {"prompt": "-1", "completion": "-1"}},
            {"id": ""},
        ]});

        let models = models_of(&openrouter).unwrap();

        let prices =
            Prices { input: 1_250, cached: Some(125), output: 10_000, ..Prices::default() };
        assert_eq!(models[0], ListedModel { id: "openai/gpt-5".into(), prices: Some(prices) });
        assert_eq!(models[1].prices, None);
        assert_eq!(models.len(), 2);
        let gemini = json!({"models": [{"name": "models/gemini-3.8-flash"}], "nextPageToken": "t"});
        assert_eq!(models_of(&gemini).unwrap()[0].id, "gemini-3.8-flash");
        assert_eq!(next_page(&gemini).as_deref(), Some("t"));
        let anthropic = json!({"data": [{"id": "claude"}], "has_more": true, "last_id": "claude"});
        assert_eq!(next_page(&anthropic).as_deref(), Some("claude"));
        assert_eq!(next_page(&json!({"has_more": false, "last_id": "claude"})), None);
        assert!(models_of(&json!({"error": "no"})).is_err());
    }
}
