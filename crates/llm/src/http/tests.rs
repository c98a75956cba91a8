//! Each provider against a server that answers as it does: where a request goes, what it is signed
//! with, and that the answer comes through.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request as Asked, State},
    http::HeaderMap,
    response::{IntoResponse as _, Response as Answer},
};
use bytes::Bytes;
use futures::stream;
use holdfast_types::{ChatMessage, ProviderFailure, StopReason};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::{ModelCard, Models, Provider, ProviderKind, scripted_model::tests::request};

/// Request that the server received: path, headers, body.
type Seen = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;

/// A server that always gives this answer, in pieces of 7 bytes.
async fn server(kind: &'static str, status: u16, body: &'static str) -> (String, Seen) {
    type Shared = (Seen, &'static str, u16, &'static str);
    async fn answer(State((seen, kind, status, body)): State<Shared>, asked: Asked) -> Answer {
        let (to, headers) = (asked.uri().to_string(), asked.headers().clone());
        let sent = axum::body::to_bytes(asked.into_body(), 1 << 20).await.unwrap();
        seen.lock().unwrap().push((to, headers, serde_json::from_slice(&sent).unwrap()));
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            body.as_bytes().chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let mut answer =
            ([("content-type", kind)], Body::from_stream(stream::iter(pieces))).into_response();
        *answer.status_mut() = status.try_into().unwrap();
        answer
    }

    let seen = Seen::default();
    let app = Router::new().fallback(answer).with_state((Arc::clone(&seen), kind, status, body));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (format!("http://{address}"), seen)
}

/// A guard that lets this machine be asked.
fn local() -> Guard {
    Guard::with_system_resolver(["127.0.0.1".to_owned()]).unwrap()
}

async fn ask(kind: ProviderKind, url: &str, id: &str) -> Result<Reply, Error> {
    ask_as(kind, url, id, false).await
}

async fn ask_as(kind: ProviderKind, url: &str, id: &str, is_oauth: bool) -> Result<Reply, Error> {
    let (base_url, api_key) = (Some(url.to_owned()), Some("sk-secret".into()));
    let provider = Provider {
        kind,
        base_url,
        api_key,
        is_oauth,
        extras: RequestExtras::default(),
        identity: None,
    };
    ask_provider(provider, id, |_| {}).await
}

/// Asks a provider with the key `sk-secret` once.
async fn ask_provider(
    provider: Provider,
    id: &str,
    change: impl FnOnce(&mut Request),
) -> Result<Reply, Error> {
    let models = Models::demo().with_provider("p", &local(), &provider)?;
    let mut asked = request();
    asked.model = format!("p:{id}").parse().unwrap();
    asked.chat.messages = vec![ChatMessage::user("hi")];
    asked.deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    change(&mut asked);
    let model = models.get(&asked.model)?;
    model.reply(&asked, &mut |_| {}, &CancellationToken::new()).await
}

const SSE: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
const OPENAI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const AZURE: &str = include_str!("../../streams/azure-tools.sse");
const ANTHROPIC: &str = include_str!("../../streams/anthropic-tools.sse");
const RESPONSES: &str = include_str!("../../streams/responses-tools.sse");
const GEMINI: &str = include_str!("../../streams/gemini-tools.sse");
const OLLAMA: &str = include_str!("../../streams/ollama-tools.ndjson");

#[tokio::test]
async fn each_provider_is_asked_where_it_listens_and_with_its_own_key_header() {
    for (kind, content, stream, below, id, to, header, key) in [
        (
            ProviderKind::Anthropic,
            SSE,
            ANTHROPIC,
            "",
            "claude-opus-5-5",
            "/v1/messages",
            "x-api-key",
            "sk-secret",
        ),
        (
            ProviderKind::Anthropic,
            SSE,
            ANTHROPIC,
            "/anthropic/v1/",
            "claude-opus-5-5",
            "/anthropic/v1/messages",
            "x-api-key",
            "sk-secret",
        ),
        (
            ProviderKind::Responses,
            SSE,
            RESPONSES,
            "/v1",
            "gpt-5",
            "/v1/responses",
            "authorization",
            "Bearer sk-secret",
        ),
        (
            ProviderKind::Gemini,
            SSE,
            GEMINI,
            "/v1beta",
            "gemini-3.8-flash",
            "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
            "x-goog-api-key",
            "sk-secret",
        ),
        (
            ProviderKind::Azure,
            SSE,
            AZURE,
            "",
            "my-gpt",
            "/openai/v1/chat/completions",
            "api-key",
            "sk-secret",
        ),
        (
            ProviderKind::Azure,
            SSE,
            AZURE,
            "/?api-version=2025-04-01-preview",
            "my-gpt",
            "/openai/deployments/my-gpt/chat/completions?api-version=2025-04-01-preview",
            "api-key",
            "sk-secret",
        ),
        (
            ProviderKind::Ollama,
            LINES,
            OLLAMA,
            "/",
            "gpt-oss:20b",
            "/api/chat",
            "authorization",
            "Bearer sk-secret",
        ),
    ] {
        let (url, seen) = server(content, 200, stream).await;

        let reply = ask(kind, &format!("{url}{below}"), id).await.unwrap();

        assert_eq!((reply.text.as_str(), reply.calls.len()), ("Grüße, 語 there", 2), "{kind:?}");
        assert_eq!((reply.stop, reply.model), (StopReason::ToolUse, format!("p:{id}")));
        let seen = seen.lock().unwrap();
        let (asked, headers, body) = &seen[0];
        assert_eq!((asked.as_str(), seen.len()), (to, 1), "{kind:?}");
        assert_eq!(headers[header], key, "{kind:?}");
        let says_model = body["model"] == id || to.contains(id);
        assert!(says_model && !body.to_string().contains("secret"), "{kind:?} {body}");
    }
}

#[tokio::test]
async fn an_access_token_goes_where_rfc_6750_has_it_whoever_is_asked() {
    for (kind, content, stream, id, own) in [
        (ProviderKind::Anthropic, SSE, ANTHROPIC, "claude-opus-5-5", "x-api-key"),
        (ProviderKind::Responses, SSE, RESPONSES, "gpt-5", "x-api-key"),
        (ProviderKind::Gemini, SSE, GEMINI, "gemini-3.8-flash", "x-goog-api-key"),
    ] {
        let (url, seen) = server(content, 200, stream).await;

        ask_as(kind, &url, id, true).await.unwrap();

        let seen = seen.lock().unwrap();
        let headers = &seen[0].1;
        assert_eq!(headers["authorization"], "Bearer sk-secret", "{kind:?}");
        assert!(!headers.contains_key(own), "{kind:?}");
    }
}

#[tokio::test]
async fn anthropic_is_told_the_version_and_what_becomes_of_old_thoughts() {
    let (url, seen) = server(SSE, 200, ANTHROPIC).await;

    ask(ProviderKind::Anthropic, &url, "claude-opus-5-5").await.unwrap();
    ask(ProviderKind::Anthropic, &url, "claude-haiku-4-5").await.unwrap();

    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].1["anthropic-version"], "2023-06-01");
    assert_eq!(seen[0].1["anthropic-beta"], "thinking-binding-controls-2026-08-01");
    assert_eq!(seen[1].1.get("anthropic-beta"), None);
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_known_with_every_provider() {
    for (kind, status, body) in [
        (
            ProviderKind::OpenAi,
            400,
            r#"{"error":{"code":"context_length_exceeded","type":"invalid_request_error"}}"#,
        ),
        (
            ProviderKind::Responses,
            400,
            r#"{"error":{"code":"context_length_exceeded","type":"invalid_request_error"}}"#,
        ),
        (
            ProviderKind::Anthropic,
            400,
            r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 2 > 1"}}"#,
        ),
        (
            ProviderKind::Gemini,
            400,
            r#"{"error":{"status":"INVALID_ARGUMENT","message":"The input token count (2) exceeds"}}"#,
        ),
        (
            ProviderKind::Ollama,
            400,
            r#"{"error":"{\"error\":{\"type\":\"exceed_context_size_error\"}}"}"#,
        ),
    ] {
        let (url, seen) = server("application/json", status, body).await;

        let error = ask(kind, &url, "m").await.unwrap_err();

        assert!(matches!(error, Error::ContextOverflow), "{kind:?} {error:?}");
        // A retry would fail again.
        assert_eq!(seen.lock().unwrap().len(), 1);
    }
}

/// Asks a server that fails, and returns the error's class and what the request's log has of it.
async fn failures(
    kind: ProviderKind,
    url: &str,
    said: &str,
) -> (&'static str, Vec<ProviderFailure>) {
    let (base_url, api_key) = (Some(url.to_owned()), Some("key-of-anna".into()));
    let extras = RequestExtras::default();
    let provider = Provider { kind, base_url, api_key, is_oauth: false, extras, identity: None };
    let models = Models::demo().with_provider("p", &local(), &provider).unwrap();
    let mut asked = request();
    asked.model = "p:m".parse().unwrap();
    asked.chat.messages = vec![ChatMessage::user(said)];
    asked.deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let model = models.get(&asked.model).unwrap();
    let error = model.reply(&asked, &mut |_| {}, &CancellationToken::new()).await.unwrap_err();
    (error.class(), asked.failures.take())
}

#[tokio::test]
async fn a_failure_is_recorded_in_the_servers_words_without_the_key_and_the_conversation() {
    let body = r#"{"error":{"message":"the text 'Anna lives in the old town' with key-of-anna is wrong","type":"bad_text"}}"#;
    for kind in [ProviderKind::OpenAi, ProviderKind::Responses, ProviderKind::Anthropic] {
        let (url, _) = server("application/json", 400, body).await;

        let (class, found) = failures(kind, &url, "Anna lives in the old town").await;

        let failure = ProviderFailure {
            model: "p:m".into(),
            class: "bad_request".into(),
            status: Some(400),
            code: "bad_text".into(),
            text: "the text '[…]' with […] is wrong".into(),
            attempts: 1,
            repair: String::new(),
        };
        assert_eq!((class, found), ("bad_request", vec![failure]), "{kind:?}");
    }
}

#[tokio::test]
async fn every_codec_sends_the_headers_and_fields_of_the_settings() {
    for (kind, content, stream) in [
        (ProviderKind::OpenAi, SSE, OPENAI),
        (ProviderKind::Anthropic, SSE, ANTHROPIC),
        (ProviderKind::Responses, SSE, RESPONSES),
        (ProviderKind::Gemini, SSE, GEMINI),
        (ProviderKind::Ollama, LINES, OLLAMA),
    ] {
        let (url, seen) = server(content, 200, stream).await;
        let headers = [("X-Team".to_owned(), "blue".into())].into();
        let body = json!({ "top_k": 40, "model": "never", "routing": { "zone": "eu" } });
        let body = body.as_object().unwrap().clone();
        let extras = RequestExtras { headers, body };
        let (base_url, api_key) = (Some(url), Some("sk-secret".into()));
        let provider =
            Provider { kind, base_url, api_key, is_oauth: false, extras, identity: None };

        let reply = ask_provider(provider, "one", |request| {
            let extra_body = json!({ "routing": { "zone": "us", "tier": "flex" } });
            let extra_body = extra_body.as_object().unwrap().clone();
            request.card = Some(Arc::new(ModelCard { extra_body, ..ModelCard::default() }));
        });

        reply.await.unwrap();
        let (_, headers, body) = seen.lock().unwrap().pop().unwrap();
        assert_eq!(headers["x-team"], "blue", "{kind:?}");
        assert_eq!(body["top_k"], 40, "{kind:?}");
        // The model's own fields come before the provider's.
        assert_eq!(body["routing"], json!({ "zone": "us", "tier": "flex" }), "{kind:?}");
        // Gemini has the model in the path.
        if kind != ProviderKind::Gemini {
            assert_eq!(body["model"], "one", "{kind:?}");
        }
    }
}

#[tokio::test]
async fn an_error_within_a_stream_is_recorded_and_each_attempt_is_counted() {
    let stream = "data: {\"error\":{\"message\":\"the disk is full\",\"code\":500}}\n\n";
    let (url, seen) = server(SSE, 200, stream).await;

    let (class, found) = failures(ProviderKind::OpenAi, &url, "hi").await;

    assert_eq!((class, found.len(), seen.lock().unwrap().len()), ("unavailable", 1, 3));
    assert_eq!((found[0].text.as_str(), found[0].attempts), ("the disk is full", 3));
    assert_eq!(found[0].status, Some(500));
}

#[tokio::test]
async fn what_cannot_be_read_is_the_models_text_and_is_not_recorded() {
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"a secret pla\n\n";
    let (url, _) = server(SSE, 200, stream).await;

    let (class, found) = failures(ProviderKind::OpenAi, &url, "hi").await;

    assert_eq!(class, "malformed");
    assert!(!format!("{found:?}").contains("secret"), "{found:?}");
}

#[tokio::test]
async fn a_web_page_is_no_answer_and_is_asked_for_once() {
    let (url, seen) = server("text/html; charset=utf-8", 200, "<!doctype html><p>hello").await;

    let (class, found) = failures(ProviderKind::OpenAi, &url, "hi").await;

    assert_eq!((class, seen.lock().unwrap().len()), ("setup", 1));
    assert!(found[0].text.contains("the base url leads to a web page"), "{found:?}");
}

#[tokio::test]
async fn a_header_of_credentials_in_stored_settings_is_not_sent() {
    let headers = [("Authorization".to_owned(), "Bearer other".into())].into();
    let extras = RequestExtras { headers, ..RequestExtras::default() };
    let (base_url, api_key) = (Some("http://127.0.0.1:9".to_owned()), None);
    let provider = Provider {
        kind: ProviderKind::OpenAi,
        base_url,
        api_key,
        is_oauth: false,
        extras,
        identity: None,
    };

    let refused = ask_provider(provider, "one", |_| {}).await;

    assert!(matches!(refused, Err(Error::Setup(_))), "{refused:?}");
}

#[tokio::test]
async fn a_prompt_that_azures_filter_refuses_is_filtered() {
    const REFUSED: &str = r#"{"error":{"message":"The response was filtered","type":null,
        "param":"prompt","code":"content_filter","status":400,
        "innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{}}}}"#;
    let (url, _) = server("application/json", 400, REFUSED).await;

    let refused = ask(ProviderKind::Azure, &url, "my-gpt").await;

    assert!(matches!(refused, Err(Error::Filtered)), "{refused:?}");
}

#[tokio::test]
async fn a_provider_without_a_key_gets_no_identity_that_nobody_allowed() {
    for kind in [ProviderKind::Vertex, ProviderKind::Bedrock] {
        let base_url = Some("https://aiplatform.googleapis.com/v1/projects/p".to_owned());
        let extras = RequestExtras::default();
        let provider =
            Provider { kind, base_url, api_key: None, is_oauth: false, extras, identity: None };

        let refused = ask_provider(provider, "one", |_| {}).await;

        assert!(matches!(refused, Err(Error::Setup(_))), "{kind:?} {refused:?}");
    }
}
