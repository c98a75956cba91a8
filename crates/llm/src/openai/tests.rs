//! Single attempts against a scripted server.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response as Answer},
    routing::post,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use holdfast_types::{Chat, ChatMessage, Fault as _, Kind};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Delta, Models, Provider, ProviderKind, scripted_model::tests::request};

/// Request that the server received: headers and body.
type Seen = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

/// Starts a server that gives these answers in turn and records the requests.
async fn server(answers: Vec<Answer>) -> (String, Seen) {
    type Shared = (Seen, Arc<Mutex<std::vec::IntoIter<Answer>>>);
    async fn answer(
        State((seen, answers)): State<Shared>,
        headers: HeaderMap,
        Json(body): Json<Value>,
    ) -> Answer {
        seen.lock().unwrap().push((headers, body));
        let next = answers.lock().unwrap().next();
        next.unwrap_or_else(|| StatusCode::IM_A_TEAPOT.into_response())
    }

    let seen = Seen::default();
    let state: Shared = (Arc::clone(&seen), Arc::new(Mutex::new(answers.into_iter())));
    let app = Router::new().route("/v1/chat/completions", post(answer)).with_state(state);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (format!("http://{address}/v1"), seen)
}

/// A stream of these texts; it breaks off, or hangs, or ends after them.
enum Then {
    Ends,
    Breaks,
    Hangs,
}

fn events(texts: &[&str], then: Then) -> Answer {
    let texts: Vec<Result<Bytes, std::io::Error>> =
        texts.iter().map(|text| Ok(Bytes::from((*text).to_owned()))).collect();
    let texts = stream::iter(texts);
    let body = match then {
        Then::Ends => Body::from_stream(texts),
        Then::Breaks => {
            let broken = Err(std::io::Error::other("cut"));
            Body::from_stream(texts.chain(stream::once(async {
                // The data sent so far must arrive before the connection is closed.
                tokio::time::sleep(Duration::from_millis(50)).await;
                broken
            })))
        }
        Then::Hangs => Body::from_stream(texts.chain(stream::pending())),
    };
    ([("content-type", "text/event-stream")], body).into_response()
}

const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn good() -> Answer {
    events(&[HELLO, STOP, DONE], Then::Ends)
}

/// A guard that lets this machine be asked.
fn local() -> Guard {
    Guard::with_system_resolver(["127.0.0.1".to_owned()]).unwrap()
}

fn models(url: &str, key: Option<&str>) -> Models {
    let provider = Provider {
        kind: ProviderKind::OpenAi,
        base_url: Some(url.to_owned()),
        api_key: key.map(SecretString::from),
        is_oauth: false,
        extras: crate::RequestExtras::default(),
        identity: None,
    };
    Models::demo().with_provider("openai", &local(), &provider).unwrap()
}

fn asking() -> Request {
    let messages = vec![ChatMessage::user("the private question")];
    Request {
        model: "openai:gpt-5".parse().unwrap(),
        chat: Chat { messages, ..Chat::default() },
        deadline: Instant::now() + Duration::from_secs(10),
        ..request()
    }
}

/// Asks a server with these answers; returns the pieces and the reply.
async fn ask(answers: Vec<Answer>) -> (Vec<Delta>, Result<Reply, Error>) {
    let (url, _) = server(answers).await;
    ask_at(&url).await
}

async fn ask_at(url: &str) -> (Vec<Delta>, Result<Reply, Error>) {
    let request = asking();
    let model = models(url, Some("sk-secret")).get(&request.model).unwrap();
    let mut deltas = vec![];
    let mut note = |delta| deltas.push(delta);
    let answer = model.reply(&request, &mut note, &CancellationToken::new()).await;
    (deltas, answer)
}

fn refusal(status: u16, body: &Value) -> Answer {
    (StatusCode::from_u16(status).unwrap(), Json(body.clone())).into_response()
}

#[tokio::test]
async fn a_stream_is_passed_on_piece_by_piece_and_returned_whole() {
    let (deltas, reply) = ask(vec![good()]).await;

    assert_eq!(deltas, [Delta::Text("hello".into())]);
    assert_eq!(reply.unwrap().text, "hello");
}

#[tokio::test]
async fn the_key_is_sent_only_when_there_is_one() {
    let (url, seen) = server(vec![good(), good(), good()]).await;
    let request = asking();
    for key in [Some("sk-secret"), Some(""), None] {
        let model = models(&url, key).get(&request.model).unwrap();
        model.reply(&request, &mut |_| {}, &CancellationToken::new()).await.unwrap();
    }

    let seen = seen.lock().unwrap();
    let keys: Vec<Option<&[u8]>> = seen
        .iter()
        .map(|(headers, _)| headers.get("authorization").map(|v| v.as_bytes()))
        .collect();
    assert_eq!(keys, [Some(&b"Bearer sk-secret"[..]), None, None]);
    assert_eq!(seen[0].1["model"], "gpt-5");
}

#[tokio::test]
async fn an_answer_that_is_no_stream_is_read_all_the_same() {
    let body = json!({ "choices": [{ "message": { "content": "whole" } }] });

    let (deltas, reply) = ask(vec![refusal(200, &body)]).await;

    assert_eq!(deltas, [Delta::Text("whole".into())]);
    assert_eq!(reply.unwrap().text, "whole");
}

#[tokio::test]
async fn a_stream_without_done_is_whole_once_it_was_said_why_it_ends() {
    let (_, reply) = ask(vec![events(&[HELLO, STOP.trim_end()], Then::Ends)]).await;

    assert_eq!(reply.unwrap().text, "hello");
}

#[tokio::test]
async fn each_refusal_is_classed_by_who_can_act_and_never_repeats_what_was_said() {
    let error = |code: &str| json!({ "error": { "message": "sk-secret said so", "code": code } });
    for (status, body, class, kind) in [
        (401, error("invalid_api_key"), "auth", Kind::Forbidden),
        (402, error("none"), "quota", Kind::Exhausted),
        (429, error("insufficient_quota"), "quota", Kind::Exhausted),
        (400, error("context_length_exceeded"), "context_overflow", Kind::Invalid),
        (400, error("invalid_value"), "bad_request", Kind::Invalid),
        (404, error("model_not_found"), "no_model", Kind::NotFound),
    ] {
        let (_, reply) = ask(vec![refusal(status, &body), good()]).await;

        let error = reply.unwrap_err();
        assert_eq!((error.class(), error.kind()), (class, kind));
        let text = format!("{error} {error:?}");
        assert!(!text.contains("secret") && !text.contains("private"), "{text}");
    }
}

#[tokio::test]
async fn trouble_of_the_server_is_tried_again() {
    for trouble in [
        refusal(500, &json!({})),
        refusal(503, &json!({ "error": "busy" })),
        events(&["data: nonsense\n\n"], Then::Ends),
        events(&[STOP, DONE], Then::Ends),
        ([("content-type", "application/json")], "{\"choices\"").into_response(),
    ] {
        let (_, reply) = ask(vec![trouble, good()]).await;

        assert_eq!(reply.unwrap().text, "hello");
    }
}

#[tokio::test]
async fn a_server_in_trouble_for_long_is_given_up() {
    let (url, seen) = server((0..9).map(|_| refusal(500, &json!({}))).collect()).await;

    let (_, reply) = ask_at(&url).await;

    assert!(matches!(reply, Err(Error::Unavailable { status: Some(500), .. })));
    assert_eq!(seen.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn what_broke_off_begins_anew_and_those_who_watch_are_told() {
    let (deltas, reply) = ask(vec![events(&[HELLO], Then::Breaks), good()]).await;

    let hello = || Delta::Text("hello".into());
    assert_eq!(deltas, [hello(), Delta::Restarted, hello()]);
    assert_eq!(reply.unwrap().text, "hello");
}

#[tokio::test]
async fn a_limited_rate_is_waited_for_as_told() {
    let limited = (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response();
    let start = Instant::now();

    let (_, reply) = ask(vec![limited, good()]).await;

    assert_eq!(reply.unwrap().text, "hello");
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_rate_that_is_limited_for_longer_than_there_is_time_is_said_at_once() {
    let limited = (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3600")]).into_response();

    let (_, reply) = ask(vec![limited, good()]).await;

    match reply {
        Err(Error::RateLimited { retry_after }) => {
            assert_eq!(retry_after, Some(Duration::from_secs(3_600)));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let (_, reply) = ask_at("http://127.0.0.1:1/v1").await;

    let error = reply.unwrap_err();
    assert!(matches!(error, Error::Unavailable { status: None, source: Some(_) }), "{error:?}");
    assert!(!format!("{error:?}").contains("http://"), "{error:?}");
}

#[tokio::test]
async fn one_that_hangs_meets_its_deadline() {
    let (url, _) = server(vec![events(&[HELLO], Then::Hangs)]).await;
    let request = Request { deadline: Instant::now() + Duration::from_millis(200), ..asking() };
    let model = models(&url, None).get(&request.model).unwrap();

    let reply = model.reply(&request, &mut |_| {}, &CancellationToken::new()).await;

    assert!(matches!(reply, Err(Error::Timeout)));
}

#[tokio::test]
async fn one_that_hangs_is_left_when_the_answer_is_no_longer_wanted() {
    let (url, _) = server(vec![events(&[HELLO], Then::Hangs)]).await;
    let (request, cancelled) = (asking(), CancellationToken::new());
    let model = models(&url, None).get(&request.model).unwrap();
    let start = Instant::now();
    // Cancelled at the first piece, after which the server would hang.
    let mut cancel = |_| cancelled.cancel();

    let reply = model.reply(&request, &mut cancel, &cancelled).await;

    assert!(matches!(reply, Err(Error::Cancelled)));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_stream_that_stays_open_after_its_reason_to_stop_is_not_waited_for() {
    let start = Instant::now();

    let (_, reply) = ask(vec![events(&[HELLO, STOP], Then::Hangs)]).await;

    assert_eq!(reply.unwrap().text, "hello");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_stream_after_done_is_not_waited_for() {
    let start = Instant::now();

    let (_, reply) = ask(vec![events(&[HELLO, DONE], Then::Hangs)]).await;

    assert_eq!(reply.unwrap().text, "hello");
    assert!(start.elapsed() < Duration::from_secs(20));
}
