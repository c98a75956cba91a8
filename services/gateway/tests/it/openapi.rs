//! Answers of the running gateway have the forms that `/openapi.json` describes.

use std::collections::BTreeSet;

use anyhow::Context as _;
use holdfast_testkit::openapi::{Answer, Description};
use reqwest::{Client, RequestBuilder, Response, redirect::Policy};
use serde_json::{Value, json};

use crate::world::{World, chunks, events};

/// Compares one answer with the description.
async fn check(
    description: &Description,
    operation: &str,
    request: RequestBuilder,
) -> anyhow::Result<u16> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    let media_type = media_type(&response);
    let body = response.text().await?;
    let answer = Answer { operation, status, media_type: &media_type, body: &body };
    description.check_answer(&answer).context(body.clone())?;
    Ok(status)
}

fn media_type(response: &Response) -> String {
    let given = response.headers().get("content-type").map(|value| value.to_str().unwrap());
    // The MCP library does not name the type of its refusals.
    given.unwrap_or("text/plain").split(';').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn each_operation_answers_as_its_description_says() {
    let world = World::start_with_memory().await.unwrap();
    let served = world.client.get(world.url("/openapi.json")).send().await.unwrap();
    let description = Description::parse(&served.text().await.unwrap()).unwrap();
    let (chat, responses) = ("/v1/chat/completions", "/v1/responses");
    let say = json!({"model": "holdfast", "messages": [{"role": "user", "content": "hi"}]});
    let input = json!({"model": "holdfast", "input": "hi", "instructions": "Rhyme."});
    let embed = json!({"model": "holdfast", "input": "hi"});
    let speech = json!({"model": "holdfast", "input": "hi", "voice": "alloy"});
    description.check_value("SpeechRequest", &speech).unwrap();
    let (messages, count) = ("/v1/messages", "/v1/messages/count_tokens");
    let message = json!({"model": "holdfast", "max_tokens": 9, "messages": say["messages"]});
    let anthropic =
        |path: &str| world.get(&world.anna, path).header("anthropic-version", "2023-06-01");
    description.check_value("MessagesRequest", &message).unwrap();
    description.check_value("ChatRequest", &say).unwrap();
    description.check_value("ResponsesRequest", &input).unwrap();
    let run = json!({"threadId": "t", "runId": "r", "messages": say["messages"]});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let mcp =
        || world.post(&world.anna, "/mcp").header("accept", "application/json, text/event-stream");
    let without_key = |path: &str| world.client.get(world.url(path));
    let with_key = |key: &str| {
        let post = world.post(&world.anna, chat).header("Idempotency-Key", key);
        post.json(&json!({"model": "holdfast", "messages": [{"role": "user", "content": key}]}))
    };
    let reused = with_key("k").json(&say);
    let made = world.post(&world.anna, responses).json(&input).send().await.unwrap();
    let made: Value = made.json().await.unwrap();
    let stored = format!("{responses}/{}", made["id"].as_str().unwrap());
    let (cancel, items) = (format!("{stored}/cancel"), format!("{stored}/input_items"));
    let conversations = "/v1/conversations";
    let conversation = format!("{conversations}/conv_0190f3c4d5e67890abcd1234567890ab");
    let of_it = format!("{conversation}/items");
    let delete = |path: &str| {
        let request = world.client.request(reqwest::Method::DELETE, world.url(path));
        request.bearer_auth(&world.anna.key)
    };

    let browser = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let sign_in = |body: &Value| browser.post(world.url("/console/sign-in")).json(body);
    let unknown_session = format!("/console/ws?session={}", "0".repeat(32));

    let mut seen = BTreeSet::new();
    for (operation, request, status) in [
        ("post /v1/chat/completions", world.post(&world.anna, chat).json(&say), 200),
        ("post /v1/chat/completions", with_key("k"), 200),
        ("post /v1/chat/completions", reused, 409),
        ("post /v1/chat/completions", world.post(&world.anna, chat).body("{"), 400),
        ("post /v1/chat/completions", world.client.post(world.url(chat)).json(&say), 401),
        ("post /v1/messages", world.post(&world.anna, messages).json(&message), 200),
        ("post /v1/messages", world.post(&world.anna, messages).json(&json!({})), 400),
        ("post /v1/messages", world.client.post(world.url(messages)).json(&message), 401),
        ("post /v1/messages/count_tokens", world.post(&world.anna, count).json(&message), 200),
        ("post /v1/messages/count_tokens", world.post(&world.anna, count).json(&json!({})), 400),
        ("post /chat", world.post(&world.anna, "/chat").json(&run), 200),
        ("post /chat", world.post(&world.anna, "/chat").json(&json!({})), 400),
        ("post /v1/responses", world.post(&world.anna, responses).json(&input), 200),
        ("post /v1/responses", world.post(&world.anna, responses).json(&json!({})), 400),
        ("get /v1/responses/{response}", world.get(&world.anna, &stored), 200),
        ("get /v1/responses/{response}", world.get(&world.ben, &stored), 404),
        ("post /v1/responses/{response}/cancel", world.post(&world.anna, &cancel), 200),
        ("get /v1/responses/{response}/input_items", world.get(&world.anna, &items), 200),
        ("delete /v1/responses/{response}", delete(&stored), 200),
        ("post /v1/conversations", world.post(&world.anna, conversations).json(&json!({})), 200),
        ("get /v1/conversations/{conversation}", world.get(&world.anna, &conversation), 200),
        ("get /v1/conversations/{conversation}/items", world.get(&world.anna, &of_it), 200),
        ("delete /v1/conversations/{conversation}", delete(&conversation), 200),
        ("post /v1/embeddings", world.post(&world.anna, "/v1/embeddings").json(&embed), 200),
        ("post /v1/embeddings", world.post(&world.anna, "/v1/embeddings").json(&json!({})), 400),
        (
            "post /v1/audio/transcriptions",
            world.post(&world.anna, "/v1/audio/transcriptions").json(&json!({})),
            400,
        ),
        ("post /v1/audio/speech", world.post(&world.anna, "/v1/audio/speech").json(&speech), 422),
        ("get /v1/models", world.get(&world.anna, "/v1/models"), 200),
        ("get /v1/models", without_key("/v1/models"), 401),
        ("get /v1/models", anthropic("/v1/models"), 200),
        ("get /v1/models/{model}", anthropic("/v1/models/claude-sonnet-4-5"), 200),
        ("get /v1/models/{model}", anthropic("/v1/models/gpt-5"), 404),
        ("get /v1/models/{model}", world.get(&world.anna, "/v1/models/holdfast"), 200),
        ("get /v1/models/{model}", world.get(&world.anna, "/v1/models/gpt-5"), 404),
        ("post /mcp", mcp().json(&list), 200),
        ("post /mcp", world.client.post(world.url("/mcp")).json(&list), 401),
        ("post /mcp", world.post(&world.anna, "/mcp").json(&list), 406),
        ("get /", without_key("/"), 404),
        ("get /ws", without_key("/ws"), 404),
        ("post /console/sign-in", sign_in(&json!({"key": world.anna.key})), 200),
        ("post /console/sign-in", sign_in(&json!({"key": "hf_x"})), 401),
        ("post /console/sign-in", sign_in(&json!({})), 400),
        ("post /console/sign-in", sign_in(&json!({})).header("origin", "https://x"), 403),
        ("get /console/sign-in/methods", without_key("/console/sign-in/methods"), 200),
        ("post /console/sign-out", browser.post(world.url("/console/sign-out")), 204),
        ("get /console/oidc/start", browser.get(world.url("/console/oidc/start?issuer=x")), 303),
        ("get /console/oidc/start", browser.get(world.url("/console/oidc/start")), 400),
        ("get /console/oidc/callback", browser.get(world.url("/console/oidc/callback")), 303),
        ("get /console/ws", without_key("/console/ws"), 400),
        ("get /console/ws", without_key(&unknown_session), 403),
        ("get /console/ws", without_key(&unknown_session).header("origin", world.url("")), 401),
        (
            "get /.well-known/oauth-protected-resource",
            without_key("/.well-known/oauth-protected-resource"),
            404,
        ),
        (
            "get /.well-known/oauth-protected-resource/mcp",
            without_key("/.well-known/oauth-protected-resource/mcp"),
            404,
        ),
        ("get /openapi.json", without_key("/openapi.json"), 200),
        ("get /healthz", without_key("/healthz"), 200),
        ("get /readyz", without_key("/readyz"), 200),
        ("get /metrics", without_key("/metrics"), 200),
        ("get /metrics", without_key("/metrics").header("via", "a proxy"), 404),
    ] {
        let answered = check(&description, operation, request).await;
        assert_eq!(answered.context(operation).unwrap(), status, "{operation}");
        seen.insert(operation.to_owned());
    }

    // The rest is the channel bridge's, whose tests compare it.
    let rest: BTreeSet<_> = description.operations().difference(&seen).cloned().collect();
    let channels = ["matrix", "slack", "telegram", "webhook", "whatsapp", "widget"];
    let of_bridge = channels.map(|channel| format!("post /{channel}/{{account}}"));
    assert_eq!(rest, BTreeSet::from(of_bridge));
}

#[tokio::test]
async fn each_event_of_a_stream_is_as_described() {
    let world = World::start().await.unwrap();
    let description = Description::read().unwrap();
    let chat = json!({"model": "holdfast", "stream": true, "messages": [{"role": "user", "content": "tool please"}], "stream_options": {"include_usage": true}});
    let respond = json!({"model": "holdfast", "stream": true, "input": "tool please"});
    let post = |path: &str, body: &Value| world.post(&world.anna, path).json(body).send();

    let chunks = chunks(post("/v1/chat/completions", &chat).await.unwrap()).await.unwrap();
    let events = events(post("/v1/responses", &respond).await.unwrap()).await.unwrap();

    assert!(chunks.len() > 3 && events.len() > 8, "{chunks:?} {events:?}");
    for chunk in &chunks {
        description.check_value("ChatChunk", chunk).unwrap();
    }
    for event in &events {
        let event = serde_json::from_str(event).unwrap();
        description.check_value("ResponseEvent", &event).unwrap();
    }
}
