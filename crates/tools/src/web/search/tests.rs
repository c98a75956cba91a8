//! Tests of `web_search`, against servers that answer like the providers.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    routing::{get, post},
};
use serde_json::Value;

use super::*;
use crate::{
    Registry,
    mesh::tests::{call, said, tell},
    web::{Web, fake::Server},
};

/// Received requests: headers, and the body or the query.
type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

const DUCKDUCKGO: &str = r#"<html><body><div class="serp__results">
<div class="result results_links result--ad"><a class="result__a" href="//duckduckgo.com/y.js?ad=1">Ad</a>
<a class="result__snippet" href="x">Buy</a></div>
<div class="result results_links results_links_deep web-result">
<h2 class="result__title"><a rel="nofollow" class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Frust%2Dlang.org%2F%3Fa%3D1&amp;rut=abc">Rust &amp; <b>more</b></a></h2>
<a class="result__url" href="x"> rust-lang.org </a>
<a class="result__snippet" href="x">A <b>language</b> for all.</a></div>
<div class="result web-result"><a class="result__a" href="https://two.example/">Two</a></div>
</div></body></html>"#;

/// All providers, each under a path of its own.
async fn providers(seen: &Seen) -> anyhow::Result<Server> {
    async fn asked(seen: &Seen, headers: HeaderMap, said: String) {
        seen.lock().unwrap().push((headers, said));
    }
    let posted = |answer: Value| {
        post(move |State(seen): State<Seen>, headers: HeaderMap, body: String| async move {
            asked(&seen, headers, body).await;
            Json(answer)
        })
    };
    let got = |answer: Value| {
        get(
            move |State(seen): State<Seen>, headers: HeaderMap, RawQuery(query): RawQuery| async move {
                asked(&seen, headers, query.unwrap_or_default()).await;
                Json(answer)
            },
        )
    };
    let hit = |title: &str, text: &str, of: &str| json!({ "title": title, "url": format!("https://{of}.example/"), text: "A <strong>snippet</strong> &amp; more" });
    let routes = Router::new()
        .route(
            "/perplexity/chat/completions",
            posted(json!({
                "id": "1", "model": "sonar", "citations": ["https://one.example/"],
                "search_results": [{ "title": "One", "url": "https://one.example/", "date": null }],
                "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "It is so [1]." } }],
                "usage": { "total_tokens": 9 },
            })),
        )
        .route(
            "/brave/res/v1/web/search",
            got(json!({
                "type": "search", "query": { "original": "q" },
                "web": { "type": "search", "results": [hit("One", "description", "one"), hit("Two", "description", "two")] },
            })),
        )
        .route(
            "/tavily/search",
            posted(json!({
                "query": "q", "answer": null, "images": [], "response_time": 0.4,
                "results": [hit("One", "content", "one")],
            })),
        )
        .route(
            "/searxng/search",
            got(json!({
                "query": "q", "number_of_results": 0, "answers": [],
                "results": [{ "title": "One", "url": "https://one.example/", "content": "c", "engine": "x", "score": 1.0 }, { "title": "bad", "url": "javascript:x" }],
            })),
        )
        .route(
            "/ddg/html/",
            get(|State(seen): State<Seen>, headers: HeaderMap, RawQuery(query): RawQuery| async move {
                asked(&seen, headers, query.unwrap_or_default()).await;
                ([(CONTENT_TYPE, "text/html")], DUCKDUCKGO)
            }),
        )
        .route("/robot/html/", get(|| async { r#"<div class="anomaly-modal__mask"></div>"# }))
        .route("/busy/search", get(|| async { StatusCode::TOO_MANY_REQUESTS }))
        .route("/odd/search", get(|| async { "<html>" }))
        .with_state(Arc::clone(seen));
    Server::start(routes).await
}

fn tools(search: Value) -> anyhow::Result<Registry> {
    let web: Web = serde_json::from_value(json!({ "fetch": false, "search": search }))?;
    Registry::default().with_web(&web, Arc::new(NoAccounts), local())
}

/// A guard that lets this machine be asked.
pub(crate) fn local() -> Guard {
    Guard::with_system_resolver(["127.0.0.1".to_owned()]).unwrap()
}

/// No tenant has a key of its own.
pub(crate) struct NoAccounts;

impl SearchAccounts for NoAccounts {
    async fn accounts(&self, _: &Call) -> anyhow::Result<Vec<SearchAccount>> {
        Ok(Vec::new())
    }
}

async fn search(search: Value) -> anyhow::Result<String> {
    let answer = tools(search)?.call(call(), "web_search", r#"{"query":"a b&c","count":2}"#).await;
    Ok(said(answer))
}

/// Text between the markers.
fn inside(told: &str) -> &str {
    let (_, rest) = told.split_once(">>>\n").unwrap_or_default();
    rest.split_once("\n<<<end").unwrap_or_default().0
}

#[tokio::test]
async fn each_provider_is_asked_as_it_wants_and_told_in_one_form() -> anyhow::Result<()> {
    let seen = Seen::default();
    let server = providers(&seen).await?;
    let at = |path: &str| format!("{}/{path}", server.url());
    let keyed = |path: &str| json!({ "api_key": "k-secret", "base_url": at(path) });

    let told = search(json!({ "perplexity": keyed("perplexity") })).await?;
    assert_eq!(
        inside(&told),
        "Results for: a b&c (via Perplexity)\n1. One\n   https://one.example/\n\nAnswer of the search \
         engine:\nIt is so [1]."
    );
    let told = search(json!({ "brave": keyed("brave") })).await?;
    assert_eq!(
        inside(&told),
        "Results for: a b&c (via Brave)\n1. One\n   https://one.example/\n   A snippet & more\n\
         2. Two\n   https://two.example/\n   A snippet & more"
    );
    let told = search(json!({ "tavily": keyed("tavily") })).await?;
    assert_eq!(
        inside(&told),
        "Results for: a b&c (via Tavily)\n1. One\n   https://one.example/\n   A snippet & more"
    );
    let told = search(json!({ "duckduckgo": { "base_url": at("ddg") } })).await?;
    assert_eq!(
        inside(&told),
        "Results for: a b&c (via DuckDuckGo)\n1. Rust & more\n   https://rust-lang.org/?a=1\n   \
         A language for all.\n2. Two\n   https://two.example/"
    );
    let told = search(json!({ "searxng": { "base_url": at("searxng/") } })).await?;
    assert_eq!(
        inside(&told),
        "Results for: a b&c (via SearXNG)\n1. One\n   https://one.example/\n   c"
    );

    let seen = seen.lock().unwrap();
    let key = |at: usize, name: &str| seen[at].0.get(name).and_then(|key| key.to_str().ok());
    assert_eq!(key(0, "authorization"), Some("Bearer k-secret"));
    assert_eq!(key(1, "x-subscription-token"), Some("k-secret"));
    assert_eq!(key(2, "authorization"), Some("Bearer k-secret"));
    let body: Value = serde_json::from_str(&seen[0].1)?;
    assert_eq!((&body["model"], &body["max_tokens"]), (&json!("sonar"), &json!(1000)));
    assert_eq!(seen[1].1, "q=a+b%26c&count=2");
    let body: Value = serde_json::from_str(&seen[2].1)?;
    assert_eq!((&body["query"], &body["max_results"]), (&json!("a b&c"), &json!(2)));
    assert_eq!(seen[3].1, "q=a+b%26c");
    assert_eq!(seen[4].1, "q=a+b%26c&format=json");
    Ok(())
}

#[tokio::test]
async fn the_first_that_is_given_is_used_and_none_finds_nothing() -> anyhow::Result<()> {
    let seen = Seen::default();
    let server = providers(&seen).await?;
    let keyed =
        |path: &str| json!({ "api_key": "k", "base_url": format!("{}/{path}", server.url()) });
    let both = json!({ "tavily": keyed("tavily"), "brave": keyed("brave") });
    let mut turned = both.clone();
    turned["order"] = json!(["tavily", "brave"]);

    assert!(search(both).await?.contains("(via Brave)"));
    assert!(search(turned).await?.contains("(via Tavily)"));
    for none in [json!({}), json!({ "order": [], "brave": keyed("b") })] {
        let told = tell(tools(none)?.call(call(), "web_search", r#"{"query":"a"}"#).await);
        assert_eq!(told, "no search provider is set up");
    }
    assert!(tools(json!({ "searxng": { "base_url": "file:///x" } })).is_err());
    Ok(())
}

#[tokio::test]
async fn the_same_search_is_made_once_for_each_tenant() -> anyhow::Result<()> {
    let seen = Seen::default();
    let server = providers(&seen).await?;
    let tools = tools(json!({ "searxng": { "base_url": format!("{}/searxng", server.url()) } }))?;
    let (mine, theirs) = (call(), call());

    for call in [&mine, &mine, &theirs] {
        said(tools.call(call.clone(), "web_search", r#"{"query":"x"}"#).await);
    }
    said(tools.call(mine, "web_search", r#"{"q":"x","max_results":3}"#.replace("\"q\"", "\"query\"").replace("max_results", "count").as_str()).await);

    assert_eq!(server.hits(), 3);
    Ok(())
}

#[tokio::test]
async fn a_search_that_fails_is_told_without_its_key() -> anyhow::Result<()> {
    let seen = Seen::default();
    let server = providers(&seen).await?;
    let at = |path: &str| format!("{}/{path}", server.url());
    for (given, why) in [
        (json!({ "duckduckgo": { "base_url": at("robot") } }), "it takes us for a robot"),
        (json!({ "searxng": { "base_url": at("busy") } }), "it was asked too often"),
        (json!({ "searxng": { "base_url": at("odd") } }), "its answer was not understood"),
        (json!({ "searxng": { "base_url": at("none") } }), "it answered 404"),
        (
            json!({ "brave": { "api_key": "k-secret", "base_url": "http://127.0.0.1:1" } }),
            "no connection",
        ),
    ] {
        let told = tell(tools(given)?.call(call(), "web_search", r#"{"query":"x"}"#).await);
        assert!(told.contains(&format!("cannot be searched now: {why}")), "{told}");
        assert!(!told.contains("secret") && !told.contains("127.0.0.1"), "{told}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_searched_for_is_refused() -> anyhow::Result<()> {
    let tools = tools(json!({ "duckduckgo": {} }))?;

    for (input, why) in [
        (r#"{"query":" "}"#, "`query` must have"),
        (r#"{"query":"x","count":11}"#, "`count` must be from 1 to 10"),
        (r#"{"query":"x","count":0}"#, "`count` must be from 1 to 10"),
    ] {
        assert!(tell(tools.call(call(), "web_search", input).await).starts_with(why));
    }
    Ok(())
}

#[test]
fn a_key_is_not_shown_with_the_settings() {
    let web: Web = serde_json::from_str(r#"{"search":{"brave":{"api_key":"k-secret"}}}"#).unwrap();

    let shown = format!("{web:?} {}", serde_json::to_string(&web).unwrap());

    assert!(!shown.contains("k-secret") && shown.contains("********"), "{shown}");
}
