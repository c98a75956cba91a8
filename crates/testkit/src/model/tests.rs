//! Tests of the fake model as its clients see it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::http;

async fn ask(model: &FakeModel, body: &Value) -> anyhow::Result<http::Answer> {
    let url = format!("{}/chat/completions", model.url());
    let headers = [("content-type", "application/json"), ("authorization", "Bearer key-1")];
    http::request("POST", &url, &headers, body.to_string().as_bytes()).await
}

fn hello() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
}

fn streamed(with_usage: Value) -> Value {
    let mut body = hello();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": with_usage});
    body
}

/// The events of a stream; the last must be `[DONE]`.
fn events(body: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(body).unwrap();
    let mut data: Vec<&str> =
        text.split("\n\n").filter(|e| !e.is_empty()).map(|e| &e["data: ".len()..]).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[tokio::test]
async fn it_echoes_when_it_is_told_nothing() {
    let model = FakeModel::start().await.unwrap();

    let answer = ask(&model, &hello()).await.unwrap();

    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "echo: hello");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert!(body["usage"]["total_tokens"].as_u64().unwrap() > 0);
    let requests = model.requests();
    assert_eq!(requests[0].last_user_text(), "hello");
    assert_eq!(requests[0].key.as_deref(), Some("key-1"));
}

#[tokio::test]
async fn text_is_streamed_in_pieces_and_usage_comes_last_when_asked_for() {
    let model = FakeModel::start().await.unwrap();
    let usage = Usage { prompt: 10, cached: 4, completion: 2 };
    let text = "a text that is long enough to come in pieces";
    model.queue([Reply::text(text).usage(usage), Reply::text(text)]);

    let with = events(&ask(&model, &streamed(json!(true))).await.unwrap().body);
    let without = events(&ask(&model, &streamed(json!(false))).await.unwrap().body);

    let deltas: Vec<&str> =
        with.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
    assert!(deltas.len() > 3);
    assert_eq!(deltas.concat(), text);
    let last = with.last().unwrap();
    assert_eq!(last["usage"]["total_tokens"], 12);
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
    assert_eq!(with[with.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert!(without.iter().all(|e| e["usage"].is_null()));
}

#[tokio::test]
async fn calls_are_whole_in_json_and_in_pieces_in_a_stream() {
    let model = FakeModel::start().await.unwrap();
    let reply = Reply::calls([("c1", "read", r#"{"path":"a file"}"#), ("c2", "list", "{}")]);
    model.queue([reply.clone(), reply.saying("let me see")]);

    let whole = ask(&model, &hello()).await.unwrap();
    let stream = events(&ask(&model, &streamed(json!(true))).await.unwrap().body);

    let whole: Value = serde_json::from_slice(&whole.body).unwrap();
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], Value::Null);
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"path":"a file"}"#);
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");

    let mut arguments = [String::new(), String::new()];
    let mut names = Vec::new();
    for call in stream.iter().filter_map(|e| e["choices"][0]["delta"]["tool_calls"].get(0)) {
        let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
        names.extend(call["function"]["name"].as_str());
        arguments[index].push_str(call["function"]["arguments"].as_str().unwrap());
    }
    assert_eq!(names, ["read", "list"]);
    assert_eq!(arguments, [r#"{"path":"a file"}"#, "{}"]);
}

#[tokio::test]
async fn a_function_answers_from_the_request_and_the_queue_goes_first() {
    let model = FakeModel::start().await.unwrap();
    model.answer(|request| Reply::text(request.last_user_text().to_uppercase()));
    model.queue([Reply::text("queued")]);

    let mut said = Vec::new();
    for _ in 0..2 {
        let body: Value =
            serde_json::from_slice(&ask(&model, &hello()).await.unwrap().body).unwrap();
        said.push(body["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
    }

    assert_eq!(said, ["queued", "HELLO"]);
    assert_eq!(model.queued(), 0);
}

#[tokio::test]
async fn errors_have_their_status_and_body() {
    let model = FakeModel::start().await.unwrap();
    model.queue([
        Reply::rate_limited(Duration::from_secs(2)),
        Reply::status(401).body("go away"),
        Reply::malformed("{\"choices\": ["),
    ]);

    let limited = ask(&model, &hello()).await.unwrap();
    let refused = ask(&model, &hello()).await.unwrap();
    let malformed = ask(&model, &hello()).await.unwrap();

    assert_eq!(limited.status, 429);
    assert!(String::from_utf8_lossy(&limited.body).contains("rate_limit_exceeded"));
    assert_eq!((refused.status, refused.body.as_slice()), (401, b"go away".as_slice()));
    assert_eq!((malformed.status, malformed.body.as_slice()), (200, b"{\"choices\": [".as_slice()));
}

#[tokio::test]
async fn a_cut_stream_has_its_text_and_no_end() {
    let model = FakeModel::start().await.unwrap();
    model.queue([Reply::cut_mid_stream("half of an answer")]);

    // The bare client does not mind that the last chunk is missing.
    let cut = ask(&model, &streamed(json!(true))).await.unwrap();

    let text = String::from_utf8_lossy(&cut.body).into_owned();
    assert!(text.contains("half of"), "{text}");
    assert!(!text.contains("[DONE]") && !text.contains("stop"), "{text}");
}

#[tokio::test]
async fn latency_and_hanging_take_their_time() {
    let model = FakeModel::start().await.unwrap();
    model.latency(Duration::from_millis(40));
    model.queue([Reply::hang(Duration::from_millis(40))]);

    let begun = Instant::now();
    let hung = ask(&model, &hello()).await.unwrap();

    assert_eq!(hung.status, 504);
    assert!(begun.elapsed() >= Duration::from_millis(80));
}

#[tokio::test]
async fn a_call_without_a_result_is_a_violation() {
    let model = FakeModel::start().await.unwrap();
    let call = json!({"id": "c1", "function": {"name": "f", "arguments": "{}"}});
    let body = json!({"messages": [
        {"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "well?"}]});

    ask(&model, &hello()).await.unwrap();
    assert!(model.violations().is_empty());
    ask(&model, &body).await.unwrap();

    assert_eq!(model.violations(), ["request 2: the call `c1` has no result before message 1"]);
}

#[tokio::test]
async fn a_forgetful_model_counts_only() {
    let model = FakeModel::start().await.unwrap();
    model.forget_requests();

    ask(&model, &hello()).await.unwrap();

    assert_eq!(model.count(), 1);
    assert!(model.requests().is_empty());
}
