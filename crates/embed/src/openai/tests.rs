//! Tests against a local server that follows the protocol, or violates it.

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use holdfast_types::{Fault, Kind};
use serde_json::{Value, json};

use super::{Config, OpenAi};
use crate::{Embedder, Error, Purpose};

/// Serves one handler at `/v1/embeddings`. Returns an embedder of dimension 2 that calls it.
async fn server(handler: fn(&HeaderMap, &Value) -> Response) -> anyhow::Result<OpenAi> {
    let route =
        post(async move |headers: HeaderMap, Json(body): Json<Value>| handler(&headers, &body));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let base_url = format!("http://{}/v1/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, Router::new().route("/v1/embeddings", route)).into_future());
    Ok(OpenAi::new(Config { base_url, ..config() })?)
}

fn config() -> Config {
    Config {
        base_url: String::new(),
        model: "small".into(),
        dimension: 2,
        api_key: Some("sekret".into()),
        shorten: false,
        question_prefix: "query: ".into(),
        passage_prefix: String::new(),
        timeout_seconds: 5,
    }
}

async fn ask(embedder: &OpenAi, count: usize) -> Result<Vec<Vec<f32>>, Error> {
    let texts: Vec<_> = (0..count).map(|i| i.to_string()).collect();
    embedder.embed(&texts, Purpose::Question).await
}

#[test]
fn vectors_that_are_shortened_are_known_by_their_length_too() {
    let whole = OpenAi::new(Config { base_url: "http://x/v1".into(), ..config() }).unwrap();
    let shortened =
        OpenAi::new(Config { base_url: "http://x/v1".into(), shorten: true, ..config() }).unwrap();

    assert_eq!((whole.model(), shortened.model()), ("small", "small@2"));
}

/// Answers in reverse order; the second number identifies the text.
fn honest(headers: &HeaderMap, body: &Value) -> Response {
    if headers["authorization"] != "Bearer sekret" || body["model"] != "small" {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let texts = body["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let data: Vec<_> = texts
        .iter()
        .enumerate()
        .rev()
        .map(|(index, text)| {
            let sent = text.as_str().and_then(|t| t.strip_prefix("query: "));
            let number: f32 = sent.and_then(|n| n.parse().ok()).unwrap_or(f32::MAX);
            json!({"index": index, "embedding": [1.0, number]})
        })
        .collect();
    Json(json!({"data": data, "usage": {"total_tokens": 1}})).into_response()
}

#[tokio::test]
async fn vectors_come_in_the_order_of_the_texts_over_several_requests_and_have_length_one() {
    let embedder = server(honest).await.unwrap();

    let vectors = ask(&embedder, 150).await.unwrap();

    assert_eq!(vectors.len(), 150);
    for (at, vector) in (0u16..).zip(&vectors) {
        assert!((vector[1] / vector[0] - f32::from(at)).abs() < 0.01, "{at}: {vector:?}");
        assert!((vector[0].hypot(vector[1]) - 1.0).abs() < 1e-5);
    }
}

#[tokio::test]
async fn a_blank_text_is_not_sent_and_has_no_direction() {
    let embedder = server(honest).await.unwrap();

    let texts = ["".into(), "3".into(), " \n".into()];
    let vectors = embedder.embed(&texts, Purpose::Question).await.unwrap();

    assert_eq!((&vectors[0], &vectors[2]), (&vec![0.0, 0.0], &vec![0.0, 0.0]));
    assert!((vectors[1][1] / vectors[1][0] - 3.0).abs() < 0.01);
}

#[tokio::test]
async fn each_refusal_is_told_by_what_one_can_do_about_it() {
    let kinds = [
        (StatusCode::UNAUTHORIZED, Kind::Internal),
        (StatusCode::TOO_MANY_REQUESTS, Kind::Exhausted),
        (StatusCode::NOT_FOUND, Kind::Internal),
        (StatusCode::BAD_GATEWAY, Kind::Unavailable),
    ];
    for (status, kind) in kinds {
        let handler: fn(&HeaderMap, &Value) -> Response = match status {
            StatusCode::UNAUTHORIZED => |_, _| StatusCode::UNAUTHORIZED.into_response(),
            StatusCode::TOO_MANY_REQUESTS => {
                |_, _| (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")]).into_response()
            }
            StatusCode::NOT_FOUND => |_, _| StatusCode::NOT_FOUND.into_response(),
            _ => |_, _| StatusCode::BAD_GATEWAY.into_response(),
        };
        let error = ask(&server(handler).await.unwrap(), 1).await.unwrap_err();

        assert_eq!(error.kind(), kind, "{status}: {error}");
        if let Error::RateLimited { retry_after } = error {
            assert_eq!(retry_after.map(|d| d.as_secs()), Some(7));
        }
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_an_error_and_never_a_wrong_vector() {
    let answers: [fn(&HeaderMap, &Value) -> Response; 4] = [
        |_, _| Json(json!({"data": []})).into_response(),
        |_, _| Json(json!({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]})).into_response(),
        |_, _| Json(json!({"data": [{"index": 7, "embedding": [1.0, 2.0]}]})).into_response(),
        |_, _| "<html>".into_response(),
    ];
    for handler in answers {
        let refused = ask(&server(handler).await.unwrap(), 1).await;

        assert!(matches!(refused, Err(Error::Answer(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_for_another_time() {
    let embedder = OpenAi::new(Config { base_url: "http://127.0.0.1:1/v1".into(), ..config() });

    let error = ask(&embedder.unwrap(), 1).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable);
}

#[test]
fn an_address_that_is_none_is_refused_at_once() {
    for base_url in ["", "ftp://x/v1", "127.0.0.1"] {
        let made = OpenAi::new(Config { base_url: base_url.into(), ..config() });

        assert!(matches!(made, Err(Error::Setup(_))), "{base_url}");
    }
}
