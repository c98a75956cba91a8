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
use holdfast_types::{ChatMessage, StopReason};
use serde_json::Value;
use tokio::net::TcpListener;

use super::*;
use crate::{Models, Provider, ProviderKind, scripted_model::tests::request};

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
    let provider = Provider { kind, base_url, api_key, is_oauth };
    let models = Models::demo().with_provider("p", &local(), &provider).unwrap();
    let mut asked = request();
    asked.model = format!("p:{id}").parse().unwrap();
    asked.chat.messages = vec![ChatMessage::user("hi")];
    asked.deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let model = models.get(&asked.model).unwrap();
    model.reply(&asked, &mut |_| {}, &CancellationToken::new()).await
}

const SSE: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
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
