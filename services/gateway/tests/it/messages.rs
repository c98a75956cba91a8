//! Messages of Anthropic's API, as its clients use them.

use holdfast_testkit::openapi::Description;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::world::{Tenant, World, events};

const MESSAGES: &str = "/v1/messages";

fn body(extra: Value) -> Value {
    let mut body = json!({
        "model": "holdfast",
        "max_tokens": 1_000,
        "messages": [{"role": "user", "content": "hi"}],
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// A request with the headers of Anthropic's clients.
fn post(world: &World, who: &Tenant, path: &str) -> RequestBuilder {
    let request = world.client.post(world.url(path)).header("x-api-key", &who.key);
    request.header("anthropic-version", "2023-06-01")
}

async fn send(world: &World, who: &Tenant, extra: Value) -> (u16, Value) {
    let response = post(world, who, MESSAGES).json(&body(extra)).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Events of a stream; checks that each has its type as its name.
async fn stream(response: Response) -> Vec<Value> {
    let events = events(response).await.unwrap();
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn tools(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"name": name, "input_schema": {"type": "object"}});
    names.iter().map(tool).collect()
}

fn result(call: &Value, output: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": call["id"], "content": output})
}

#[tokio::test]
async fn a_message_has_the_form_that_clients_know() {
    let world = World::start().await.unwrap();

    let response = post(&world, &world.anna, MESSAGES).json(&body(json!({}))).send().await.unwrap();

    let id = response.headers()["x-holdfast-message"].to_str().unwrap().to_owned();
    let request = response.headers()["x-request-id"].clone();
    assert_eq!(response.headers()["request-id"], request);
    let answer: Value = response.json().await.unwrap();
    let expected = json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": "holdfast",
        "content": [{"type": "text", "text": "echo: hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": null,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 2,
            "output_tokens": 3,
        },
    });
    assert_eq!(answer, expected);
    let (_, cut) =
        send(&world, &world.anna, json!({"messages": [{"role": "user", "content": "cut"}]})).await;
    assert_eq!(cut["stop_reason"], "max_tokens", "{cut}");
}

#[tokio::test]
async fn a_stream_has_the_events_that_clients_know() {
    let world = World::start().await.unwrap();
    let description = Description::read().unwrap();
    let messages = json!([{"role": "user", "content": "think please"}]);
    let thinking = json!({"type": "enabled", "budget_tokens": 2_000});
    let wanted = body(json!({"stream": true, "messages": messages, "thinking": thinking}));

    let response = post(&world, &world.anna, MESSAGES).json(&wanted).send().await.unwrap();
    let events = stream(response).await;

    for event in &events {
        description.check_value("MessageEvent", event).unwrap();
    }
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["message_start", "ping"]);
    assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"]);
    let thought = json!({"type": "thinking", "thinking": "", "signature": ""});
    let started = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    assert_eq!(events[2], started(0, thought));
    assert_eq!(events[3]["delta"], json!({"type": "thinking_delta", "thinking": "hm"}));
    assert_eq!(events[4], json!({"type": "content_block_stop", "index": 0}));
    assert_eq!(events[5], started(1, json!({"type": "text", "text": ""})));
    let deltas = events.iter().filter(|event| event["index"] == 1);
    let text: String = deltas.filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, "echo: think please");
    let end = &events[events.len() - 2];
    assert_eq!(end["delta"], json!({"stop_reason": "end_turn", "stop_sequence": null}));
    assert_eq!(
        (&end["usage"]["input_tokens"], &end["usage"]["output_tokens"]),
        (&json!(3), &json!(3))
    );
}

#[tokio::test]
async fn thinking_is_not_shown_to_whoever_did_not_ask_for_it() {
    let world = World::start().await.unwrap();
    let messages = json!([{"role": "user", "content": "think please"}]);
    for thinking in [
        json!(null),
        json!({"type": "disabled"}),
        json!({"type": "adaptive", "display": "omitted"}),
    ] {
        let wanted = body(json!({"stream": true, "messages": messages, "thinking": thinking}));

        let response = post(&world, &world.anna, MESSAGES).json(&wanted).send().await.unwrap();
        let events = stream(response).await;

        assert!(
            events.iter().all(|event| event["content_block"]["type"] != "thinking"),
            "{events:?}"
        );
    }
}

#[tokio::test]
async fn a_message_ends_with_calls_and_goes_on_with_their_results() {
    let world = World::start().await.unwrap();
    let asked = json!({"role": "user", "content": "call"});
    let tools = tools(&["look", "ask"]);

    let (_, answer) = send(&world, &world.anna, json!({"messages": [asked], "tools": tools})).await;

    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let content = answer["content"].as_array().unwrap();
    assert_eq!(content[0], json!({"type": "text", "text": "let me see"}));
    assert_eq!((&content[1]["type"], &content[1]["name"]), (&json!("tool_use"), &json!("look")));
    assert_eq!((&content[1]["input"], &content[2]["input"]), (&json!({"n": 0}), &json!({"n": 1})));

    let results = json!([result(&content[2], "two"), result(&content[1], "one")]);
    let history = json!([
        asked,
        {"role": "assistant", "content": content},
        {"role": "user", "content": results},
    ]);
    let (status, next) =
        send(&world, &world.anna, json!({"messages": history, "tools": tools})).await;

    assert_eq!(status, 200, "{next}");
    assert_eq!(next["content"][0]["text"], "results: c0=one, c1=two", "{next}");
    assert_eq!(next["stop_reason"], "end_turn");
}

#[tokio::test]
async fn a_stream_has_each_call_in_a_block_of_its_own() {
    let world = World::start().await.unwrap();
    let messages = json!([{"role": "user", "content": "call"}]);
    let wanted =
        body(json!({"stream": true, "messages": messages, "tools": tools(&["look", "ask"])}));

    let response = post(&world, &world.anna, MESSAGES).json(&wanted).send().await.unwrap();
    let events = stream(response).await;

    let blocks = events.iter().filter(|event| event["content_block"]["type"] == "tool_use");
    let names: Vec<&Value> = blocks.map(|event| &event["content_block"]["name"]).collect();
    assert_eq!(names, ["look", "ask"]);
    let arguments = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str());
    assert_eq!(arguments.collect::<Vec<_>>(), [r#"{"n":0}"#, r#"{"n":1}"#]);
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("content_block_start"), count("content_block_stop")), (3, 3));
    let end = &events[events.len() - 2];
    assert_eq!(end["delta"]["stop_reason"], "tool_use");
}

#[tokio::test]
async fn a_request_is_a_whole_conversation_of_its_user() {
    let world = World::start().await.unwrap();
    let ask = |messages: Value| {
        send(&world, &world.anna, json!({"messages": messages, "metadata": {"user_id": "u1"}}))
    };
    ask(json!([{"role": "user", "content": "first"}])).await;

    let (_, other) = ask(json!([{"role": "user", "content": "history"}])).await;
    let (_, same) = ask(json!([
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "echo: first"},
        {"role": "user", "content": "history"},
    ]))
    .await;

    assert_eq!(other["content"][0]["text"], "user=history", "another conversation began");
    let all = "user=first; assistant=echo: first; user=history";
    assert_eq!(same["content"][0]["text"], all);
    // The agent reads what the user's own conversation holds.
    let (_, added) = (0, world.say(&world.anna, "u1", "history").await.unwrap());
    let text = added["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with(all), "{text}");
}

#[tokio::test]
async fn each_session_of_claude_code_is_a_conversation_of_its_user() {
    let world = World::start().await.unwrap();
    let ask = |session: &str, messages: Value| {
        let ids = json!({"device_id": "d1", "account_uuid": "", "session_id": session});
        let metadata = json!({"user_id": ids.to_string()});
        send(&world, &world.anna, json!({"messages": messages, "metadata": metadata}))
    };
    ask("s1", json!([{"role": "user", "content": "first"}])).await;
    ask("s2", json!([{"role": "user", "content": "second"}])).await;

    let (_, next) = ask(
        "s1",
        json!([
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "echo: first"},
            {"role": "user", "content": "history"},
        ]),
    )
    .await;

    assert_eq!(next["content"][0]["text"], "user=first; assistant=echo: first; user=history");
    let keys = world.texts("select key from session.sessions order by key").await.unwrap();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(keys[0].ends_with("d1/s1") && keys[1].ends_with("d1/s2"), "{keys:?}");
}

#[tokio::test]
async fn what_is_asked_of_the_model_reaches_it() {
    let world = World::start().await.unwrap();
    let (_, answer) = send(
        &world,
        &world.anna,
        json!({
            "messages": [{"role": "user", "content": "options"}],
            "max_tokens": 77,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop_sequences": ["END"],
            "thinking": {"type": "enabled", "budget_tokens": 20_000},
            "tools": tools(&["look"]),
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        }),
    )
    .await;

    let options: Value =
        serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(options["max_output"], 77, "{options}");
    assert_eq!(options["temperature"], 0.5);
    assert_eq!(options["top_p"], 0.9);
    assert_eq!(options["stop"], json!(["END"]));
    assert_eq!((&options["thinking"], &options["shows_thinking"]), (&json!("high"), &json!(true)));
    assert_eq!(options["parallel_tool_calls"], false);
    assert_eq!(options["tools"][0]["name"], "look");
}

#[tokio::test]
async fn what_is_not_followed_is_named() {
    let world = World::start().await.unwrap();
    let wanted = body(json!({
        "top_k": 40,
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "system": [{"type": "text", "text": "Rhyme.", "cache_control": {"type": "ephemeral"}}],
    }));

    let response = post(&world, &world.anna, MESSAGES).json(&wanted).send().await.unwrap();

    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-holdfast-ignored"], "top_k, tools.web_search_20250305");
}

#[tokio::test]
async fn errors_have_the_form_and_the_status_that_clients_know() {
    let world = World::start().await.unwrap();
    let error = async |request: RequestBuilder| {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["type"], "error", "{body}");
        // A route that is not there has no id.
        let id = headers.get("request-id").map(|id| id.to_str().unwrap());
        assert_eq!(body["request_id"].as_str(), id, "{body}");
        assert!(!body["error"]["message"].as_str().unwrap().is_empty());
        (status, body["error"]["type"].as_str().unwrap().to_owned())
    };
    let by = |who: &Tenant, extra: Value| post(&world, who, MESSAGES).json(&body(extra));
    let anna = &world.anna;
    let nobody = anna.by("hf_x");
    let say = |text: &str| json!({"messages": [{"role": "user", "content": text}]});

    for (request, status, kind) in [
        (by(anna, json!({"max_tokens": null})), 400, "invalid_request_error"),
        (post(&world, anna, MESSAGES).body("{"), 400, "invalid_request_error"),
        (by(&nobody, json!({})), 401, "authentication_error"),
        (
            world.client.post(world.url(MESSAGES)).json(&body(json!({}))),
            401,
            "authentication_error",
        ),
        (by(anna, json!({"model": "gpt-5"})), 404, "not_found_error"),
        (by(anna, say("fail")), 500, "api_error"),
        (post(&world, anna, "/v1/messages/batches").json(&json!({})), 404, "not_found_error"),
        (post(&world, anna, MESSAGES).body("x".repeat(29 * 1024 * 1024)), 413, "request_too_large"),
    ] {
        assert_eq!(error(request).await, (status, kind.to_owned()));
    }

    let wanted = body(json!({"stream": true, "messages": say("fail")["messages"]}));
    let response = post(&world, anna, MESSAGES).json(&wanted).send().await.unwrap();
    let events = stream(response).await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("api_error")));
    // Other clients are answered as OpenAI's.
    let other = world.post(anna, "/v1/chat/completions").body("{").send().await.unwrap();
    let other: Value = other.json().await.unwrap();
    assert_eq!(other["error"]["code"], "invalid_body", "{other}");
}

#[tokio::test]
async fn a_key_without_the_right_is_refused() {
    let world = World::start().await.unwrap();
    let anna = &world.anna;
    let reads = anna.by(&world.key(anna, &["read"], None).await.unwrap());
    let guest = anna.by(&world.key(anna, &["guest"], None).await.unwrap());

    for path in [MESSAGES, "/v1/messages/count_tokens"] {
        let refused = post(&world, &reads, path).json(&body(json!({}))).send().await.unwrap();
        assert_eq!(refused.status(), 403, "{path}");
        let refused: Value = refused.json().await.unwrap();
        assert_eq!(refused["error"]["type"], "permission_error", "{refused}");
    }
    let (status, _) = send(&world, &guest, json!({})).await;
    assert_eq!(status, 200, "a guest begins a conversation");
    let (status, refused) = send(&world, &guest, json!({"metadata": {"user_id": "u1"}})).await;
    assert_eq!(status, 403, "a guest names none: {refused}");
}

#[tokio::test]
async fn tokens_are_estimated_without_a_turn() {
    let world = World::start().await.unwrap();
    let count = async |extra: Value| {
        let mut wanted = body(extra);
        wanted.as_object_mut().unwrap().remove("max_tokens");
        let response = post(&world, &world.anna, "/v1/messages/count_tokens").json(&wanted);
        let response = response.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let counted: Value = response.json().await.unwrap();
        counted["input_tokens"].as_u64().unwrap()
    };

    let short = count(json!({})).await;
    let system = count(json!({"system": "x".repeat(400)})).await;
    let with_tools = count(json!({"tools": tools(&["look"])})).await;

    assert_eq!((short, system), (1, 102));
    assert!(with_tools > short, "{with_tools}");
    let sessions = world.number("select count(*) from session.sessions").await.unwrap();
    assert_eq!(sessions, 0);
}

#[tokio::test]
async fn models_are_listed_as_anthropics_and_a_built_in_name_is_the_default_agent() {
    let world = World::start().await.unwrap();
    let get = async |path: &str| {
        let request = world.get(&world.anna, path).header("anthropic-version", "2023-06-01");
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.json::<Value>().await.unwrap()
    };

    let list = get("/v1/models").await;
    let model = get("/v1/models/claude-sonnet-4-5").await;
    let (_, answer) = send(&world, &world.anna, json!({"model": "claude-sonnet-4-5"})).await;

    let names: Vec<&Value> =
        list["data"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(names, ["holdfast", "holdfast/main"]);
    assert_eq!((&list["has_more"], &list["first_id"]), (&json!(false), &json!("holdfast")));
    assert_eq!((&model["type"], &model["id"]), (&json!("model"), &json!("claude-sonnet-4-5")));
    assert!(model["created_at"].as_str().unwrap().ends_with('Z'), "{model}");
    assert_eq!(
        (&answer["model"], &answer["content"][0]["text"]),
        (&json!("claude-sonnet-4-5"), &json!("echo: hi"))
    );
}

#[tokio::test]
async fn instructions_behind_the_last_message_hold_for_it() {
    let world = World::start().await.unwrap();
    let (status, answer) = send(
        &world,
        &world.anna,
        json!({"messages": [
            {"role": "user", "content": "history"},
            {"role": "system", "content": "Rhyme."},
        ]}),
    )
    .await;

    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["content"][0]["text"], "system=Rhyme.; user=history");
}
