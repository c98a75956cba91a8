//! Requests of another tenant over HTTP.

use std::collections::BTreeSet;

use reqwest::{
    RequestBuilder,
    multipart::{Form, Part},
};
use serde_json::json;

use super::things::Things;
use crate::world::{Tenant, World};

/// Ids of conversations are made without storing anything: anybody's is an empty one here.
const ANNAS_CONVERSATION: &str = "conv_0190f3c4d5e67890abcd1234567890ab";

enum Try {
    /// Looks up an object; another tenant's is answered with this status.
    Found(u16, fn(&World, &Tenant, &Things) -> RequestBuilder),
    /// Uses a provider by its name, which only its own tenant has; others get this status. The tenant
    /// itself is not tried, since its provider is on the internet.
    Used(u16, fn(&World, &Tenant, &Things) -> RequestBuilder),
    /// Lists objects, and nothing of another tenant.
    Shown(fn(&World, &Tenant) -> RequestBuilder),
}

fn routes() -> Vec<(&'static str, Try)> {
    vec![
        ("/healthz", Try::Shown(|world, who| world.get(who, "/healthz"))),
        ("/readyz", Try::Shown(|world, who| world.get(who, "/readyz"))),
        ("/metrics", Try::Shown(|world, who| world.get(who, "/metrics"))),
        ("/openapi.json", Try::Shown(|world, who| world.get(who, "/openapi.json"))),
        // Before Ben writes in a session of the same name.
        ("/mcp", Try::Shown(|world, who| tool(world, who, "list_agents", &json!({})))),
        ("/mcp", Try::Shown(|world, who| tool(world, who, "list_sessions", &json!({})))),
        (
            "/chat",
            Try::Found(404, |world, who, of| {
                let messages = json!([{"id": "1", "role": "user", "content": "hi"}]);
                let body = json!({"threadId": "t", "runId": "r", "messages": messages});
                world.post(who, &format!("/chat?agent={}", of.agent_name)).json(&body)
            }),
        ),
        (
            "/chat",
            // The same thread is another thread here, without messages.
            Try::Shown(|world, who| {
                let messages = json!([{"id": "1", "role": "user", "content": "history"}]);
                let body = json!({"threadId": "shared", "runId": "r", "messages": messages});
                world.post(who, "/chat").json(&body)
            }),
        ),
        (
            "/v1/chat/completions",
            Try::Found(404, |world, who, of| {
                let model = format!("holdfast/{}", of.agent_name);
                let messages = json!([{"role": "user", "content": "history"}]);
                let body = json!({"model": model, "user": of.user, "messages": messages});
                world.post(who, "/v1/chat/completions").json(&body)
            }),
        ),
        (
            "/v1/chat/completions",
            // The same user name is another user here, without messages.
            Try::Shown(|world, who| {
                let messages = json!([{"role": "user", "content": "history"}]);
                let body = json!({"model": "holdfast", "user": "annas-user", "messages": messages});
                world.post(who, "/v1/chat/completions").json(&body)
            }),
        ),
        (
            "/v1/messages",
            Try::Found(404, |world, who, of| {
                let body = to_messages(&format!("holdfast/{}", of.agent_name), "any-user");
                world.post(who, "/v1/messages").json(&body)
            }),
        ),
        (
            "/v1/messages",
            // The same user name is another user here, without messages.
            Try::Shown(|world, who| {
                world.post(who, "/v1/messages").json(&to_messages("holdfast", "annas-user"))
            }),
        ),
        (
            "/v1/messages/count_tokens",
            Try::Found(404, |world, who, of| {
                let body = to_messages(&format!("holdfast/{}", of.agent_name), "any-user");
                world.post(who, "/v1/messages/count_tokens").json(&body)
            }),
        ),
        (
            "/v1/responses",
            Try::Found(404, |world, who, of| {
                let body = json!({"model": format!("holdfast/{}", of.agent_name), "input": "hi"});
                world.post(who, "/v1/responses").json(&body)
            }),
        ),
        (
            "/v1/responses",
            Try::Found(400, |world, who, of| {
                // As OpenAI answers it.
                let previous = of.previous_response();
                let body =
                    json!({"model": "holdfast", "previous_response_id": previous, "input": "hi"});
                world.post(who, "/v1/responses").json(&body)
            }),
        ),
        (
            "/v1/responses/{response}",
            Try::Found(404, |world, who, of| {
                world.get(who, &format!("/v1/responses/{}", of.response))
            }),
        ),
        (
            "/v1/responses/{response}/cancel",
            Try::Found(404, |world, who, of| {
                world.post(who, &format!("/v1/responses/{}/cancel", of.response))
            }),
        ),
        (
            "/v1/responses/{response}/input_items",
            Try::Found(404, |world, who, of| {
                world.get(who, &format!("/v1/responses/{}/input_items", of.response))
            }),
        ),
        (
            "/v1/conversations",
            Try::Shown(|world, who| world.post(who, "/v1/conversations").json(&json!({}))),
        ),
        (
            "/v1/conversations/{conversation}",
            Try::Shown(|world, who| {
                world.get(who, &format!("/v1/conversations/{ANNAS_CONVERSATION}"))
            }),
        ),
        (
            "/v1/conversations/{conversation}/items",
            Try::Shown(|world, who| {
                world.get(who, &format!("/v1/conversations/{ANNAS_CONVERSATION}/items"))
            }),
        ),
        (
            "/v1/embeddings",
            Try::Shown(|world, who| {
                let body = json!({"model": "holdfast", "input": "hi"});
                world.post(who, "/v1/embeddings").json(&body)
            }),
        ),
        (
            "/v1/audio/transcriptions",
            Try::Used(422, |world, who, of| {
                let file = Part::bytes(&b"OggS\0"[..]).file_name("a.ogg");
                let form = Form::new().part("file", file).text("model", model_of(of));
                world.post(who, "/v1/audio/transcriptions").multipart(form)
            }),
        ),
        (
            "/v1/audio/speech",
            Try::Used(422, |world, who, of| {
                let body = json!({"model": model_of(of), "input": "hi", "voice": "alloy"});
                world.post(who, "/v1/audio/speech").json(&body)
            }),
        ),
        ("/v1/models", Try::Shown(|world, who| world.get(who, "/v1/models"))),
        (
            "/mcp",
            Try::Found(200, |world, who, of| {
                tool(world, who, "ask", &json!({"agent": of.agent_name, "message": "hi"}))
            }),
        ),
        (
            "/mcp",
            Try::Found(200, |world, who, of| {
                tool(world, who, "read_history", &json!({"session": of.session}))
            }),
        ),
        (
            "/mcp",
            Try::Found(200, |world, who, of| {
                tool(world, who, "list_files", &json!({"agent": of.agent}))
            }),
        ),
        (
            "/mcp",
            Try::Found(200, |world, who, of| {
                tool(world, who, "read_file", &json!({"agent": of.agent, "path": "SOUL.md"}))
            }),
        ),
        (
            "/mcp",
            Try::Found(200, |world, who, of| {
                let input = json!({"agent": of.agent, "path": "a.md", "content": "a"});
                tool(world, who, "write_file", &input)
            }),
        ),
        (
            "/v1/models/{*model}",
            Try::Found(404, |world, who, of| {
                world.get(who, &format!("/v1/models/holdfast/{}", of.agent_name))
            }),
        ),
    ]
}

/// A model of Anna's provider.
fn model_of(of: &Things) -> String {
    format!("{}:whisper-1", of.provider)
}

/// Request of Anthropic's API.
fn to_messages(model: &str, user: &str) -> serde_json::Value {
    let messages = json!([{"role": "user", "content": "history"}]);
    let metadata = json!({"user_id": user});
    json!({"model": model, "max_tokens": 9, "metadata": metadata, "messages": messages})
}

/// Calls an MCP tool.
fn tool(world: &World, who: &Tenant, name: &str, input: &serde_json::Value) -> RequestBuilder {
    let params = json!({"name": name, "arguments": input});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let accept = "application/json, text/event-stream";
    world.post(who, "/mcp").header("accept", accept).json(&body)
}

/// Axum's router cannot list its routes, so they are read from the source.
#[test]
fn every_route_is_in_the_table() {
    let own = include_str!("../../../src/http.rs");
    // Those that every service has.
    let source = [own, include_str!("../../../../../crates/doors/src/lib.rs")].concat();
    let there =
        source.split(".route(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    let there = there.filter_map(|rest| rest.split('"').next());
    let there: BTreeSet<&str> = there.collect();

    let tried: BTreeSet<&str> = routes().into_iter().map(|(route, _)| route).collect();

    assert!(there.contains("/v1/models"), "{there:?}");
    assert_eq!(tried, there, "each route needs a row of the table, and each row a route");
    for nested in [".nest(", ".route_service(", ".nest_service("] {
        assert!(!source.contains(nested), "the test above does not see what is behind {nested}");
    }
}

#[tokio::test]
async fn nothing_of_another_tenant_is_found_or_shown_by_any_route() {
    let world = World::start_with_memory().await.unwrap();
    let annas = Things::of_anna(&world).await.unwrap();
    let nobodys = Things::of_nobody();
    let answer = async |request: RequestBuilder| {
        let response = request.send().await.unwrap();
        let id = response.headers().get("x-request-id").cloned();
        let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
        // Anthropic's errors have the id of the request.
        let id = id.as_ref().map_or("", |id| id.to_str().unwrap());
        (status, if id.is_empty() { text } else { text.replace(id, "<request>") })
    };

    for (route, tried) in routes() {
        match tried {
            Try::Found(expected, ask) => {
                let (status, foreign) = answer(ask(&world, &world.ben, &annas)).await;
                let (_, never) = answer(ask(&world, &world.ben, &nobodys)).await;
                let (own, shown) = answer(ask(&world, &world.anna, &annas)).await;

                assert_eq!(status, expected, "{route}: {foreign}");
                assert_eq!(annas.masked(&foreign), nobodys.masked(&never), "{route}");
                assert_eq!(own, 200, "{route}: {shown}");
            }
            Try::Used(expected, ask) => {
                let (status, foreign) = answer(ask(&world, &world.ben, &annas)).await;
                let (_, never) = answer(ask(&world, &world.ben, &nobodys)).await;

                assert_eq!(status, expected, "{route}: {foreign}");
                assert_eq!(annas.masked(&foreign), nobodys.masked(&never), "{route}");
            }
            Try::Shown(ask) => {
                let (status, shown) = answer(ask(&world, &world.ben)).await;

                assert_eq!(status, 200, "{route}: {shown}");
                annas.assert_absent(route, &shown);
            }
        }
    }
}
