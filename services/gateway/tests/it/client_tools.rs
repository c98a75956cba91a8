//! Tools of a client of OpenAI's API: calls, their results, and who may send them.

use reqwest::Response;
use serde_json::{Value, json};

use crate::world::{Tenant, World, chunks, events};

fn tools(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"type": "function", "function": {"name": name}});
    names.iter().map(tool).collect()
}

async fn send(world: &World, who: &Tenant, path: &str, body: &Value) -> Response {
    world.post(who, path).json(body).send().await.unwrap()
}

/// Status and body of a chat.
async fn chat(world: &World, who: &Tenant, messages: &Value, extra: Value) -> (u16, Value) {
    let mut body =
        json!({"model": "holdfast", "messages": messages, "tools": tools(&["look", "ask"])});
    for (name, value) in extra.as_object().unwrap() {
        body[name] = value.clone();
    }
    let response = send(world, who, "/v1/chat/completions", &body).await;
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn respond(world: &World, who: &Tenant, extra: Value) -> (u16, Value) {
    let mut body = json!({
        "model": "holdfast",
        "tools": [{"type": "function", "name": "look"}, {"type": "function", "name": "ask"}],
    });
    for (name, value) in extra.as_object().unwrap() {
        body[name] = value.clone();
    }
    let response = send(world, who, "/v1/responses", &body).await;
    (response.status().as_u16(), response.json().await.unwrap())
}

fn result(call: &Value, output: &str) -> Value {
    json!({"role": "tool", "tool_call_id": call["id"], "content": output})
}

/// Asks, and returns the messages with the calls.
async fn called(world: &World, who: &Tenant, extra: Value) -> (Vec<Value>, Vec<Value>) {
    let mut messages = vec![json!({"role": "user", "content": "call"})];
    let (status, answer) = chat(world, who, &json!(messages), extra).await;
    assert_eq!(status, 200, "{answer}");
    let message = answer["choices"][0]["message"].clone();
    let calls = message["tool_calls"].as_array().unwrap().clone();
    messages.push(message);
    (messages, calls)
}

#[tokio::test]
async fn a_completion_ends_with_calls_and_goes_on_with_their_results() {
    let world = World::start().await.unwrap();
    let messages = json!([{"role": "user", "content": "call"}]);

    let (_, answer) = chat(&world, &world.anna, &messages, json!({})).await;

    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    assert_eq!(choice["message"]["content"], "let me see");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{answer}");
    let function = json!({"name": "look", "arguments": r#"{"n":0}"#});
    assert_eq!((&calls[0]["type"], &calls[0]["function"]), (&json!("function"), &function));
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert_eq!(answer["usage"]["total_tokens"], 8);

    let history =
        json!(
            [messages[0], choice["message"], result(&calls[1], "two"), result(&calls[0], "one"),]
        );
    let (status, next) = chat(&world, &world.anna, &history, json!({})).await;

    assert_eq!(status, 200, "{next}");
    let answer = &next["choices"][0];
    assert_eq!(answer["message"]["content"], "results: c0=one, c1=two", "{next}");
    assert_eq!(answer["finish_reason"], "stop");
}

#[tokio::test]
async fn a_stream_has_the_calls_after_the_text() {
    let world = World::start().await.unwrap();
    let body = json!({
        "model": "holdfast",
        "stream": true,
        "messages": [{"role": "user", "content": "call"}],
        "tools": tools(&["look", "ask"]),
    });

    let response = send(&world, &world.anna, "/v1/chat/completions", &body).await;
    let chunks = chunks(response).await.unwrap();

    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    let text: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, "let me see");
    let calls: Vec<&Value> = deltas.iter().filter_map(|delta| delta["tool_calls"].get(0)).collect();
    let names: Vec<&Value> = calls.iter().map(|call| &call["function"]["name"]).collect();
    assert_eq!(names, ["look", "ask"]);
    assert_eq!(calls[1]["index"], 1);
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn a_response_ends_with_calls_and_goes_on_with_their_outputs() {
    let world = World::start().await.unwrap();

    let (_, first) = respond(&world, &world.anna, json!({"input": "call"})).await;

    assert_eq!(first["status"], "completed", "{first}");
    let output = first["output"].as_array().unwrap();
    let kinds: Vec<&str> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call"]);
    assert_eq!(
        (&output[1]["name"], &output[1]["arguments"]),
        (&json!("look"), &json!(r#"{"n":0}"#))
    );
    assert_eq!(first["tools"][1]["name"], "ask");
    let done = |call: &Value, output: &str| json!({"type": "function_call_output", "call_id": call["call_id"], "output": output});
    let results = json!([done(&output[1], "one"), done(&output[2], "two")]);

    let (status, next) = respond(
        &world,
        &world.anna,
        json!({"input": results, "previous_response_id": first["id"]}),
    )
    .await;
    assert_eq!(status, 200, "{next}");
    assert_eq!(next["output"][0]["content"][0]["text"], "results: c0=one, c1=two", "{next}");

    // The whole history, without the id of the response: the calls wait no more, and the session of
    // their answer stays as it is.
    let mut history = vec![json!({"role": "user", "content": "call"})];
    history.extend(output.iter().cloned());
    history.extend(results.as_array().unwrap().iter().cloned());
    let (status, again) = respond(&world, &world.anna, json!({"input": history})).await;
    assert_eq!(status, 200, "{again}");
    assert_eq!(again["output"][0]["content"][0]["text"], "results: c0=one, c1=two", "{again}");
}

/// As the Vercel AI SDK sends what it was answered before.
#[tokio::test]
async fn a_reference_stands_for_an_item_of_an_earlier_answer() {
    let world = World::start().await.unwrap();
    let (_, first) = respond(&world, &world.anna, json!({"input": "call"})).await;
    let output = first["output"].as_array().unwrap();
    let refer = |item: &Value| json!({"type": "item_reference", "id": item["id"]});
    let done = |call: &Value, output: &str| json!({"type": "function_call_output", "call_id": call["call_id"], "output": output});
    let results = [done(&output[1], "one"), done(&output[2], "two")];

    for answer in [
        vec![refer(&output[0]), output[1].clone(), output[2].clone()],
        // Now the calls wait no more, so they have to be in the history.
        output.iter().map(refer).collect(),
    ] {
        let user = json!({"role": "user", "content": "call"});
        let history: Value = [user].into_iter().chain(answer).chain(results.clone()).collect();
        let (status, next) = respond(&world, &world.anna, json!({"input": history})).await;
        assert_eq!(status, 200, "{next}");
        assert_eq!(next["output"][0]["content"][0]["text"], "results: c0=one, c1=two", "{next}");
    }

    let (_, said) = respond(&world, &world.anna, json!({"input": "first"})).await;
    let input = json!([
        {"role": "user", "content": "first"},
        {"id": said["output"][0]["id"]},
        {"role": "user", "content": "history"},
    ]);
    let (_, next) = respond(&world, &world.anna, json!({"input": input})).await;
    let history = next["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(history.contains("assistant=echo: first"), "{history}");
}

#[tokio::test]
async fn a_reference_to_an_item_that_the_caller_may_not_read_or_that_is_gone_is_refused() {
    let world = World::start().await.unwrap();
    let (_, kept) = respond(&world, &world.anna, json!({"input": "one"})).await;
    let (_, unstored) = respond(&world, &world.anna, json!({"input": "two", "store": false})).await;
    let (_, deleted) = respond(&world, &world.anna, json!({"input": "three"})).await;
    let path = format!("/v1/responses/{}", deleted["id"].as_str().unwrap());
    let deletion = world.client.delete(world.url(&path)).bearer_auth(&world.anna.key);
    assert_eq!(deletion.send().await.unwrap().status(), 200);

    for (who, item) in [
        (&world.ben, &kept["output"][0]["id"]),
        (&world.anna, &unstored["output"][0]["id"]),
        (&world.anna, &deleted["output"][0]["id"]),
        (&world.anna, &json!("fc_0190f3c4d5e67890abcd1234567890ab_0")),
        (&world.anna, &json!("rs_1")),
    ] {
        let input =
            json!([{"type": "item_reference", "id": item}, {"role": "user", "content": "x"}]);
        let (status, refused) = respond(&world, who, json!({ "input": input })).await;
        assert_eq!((status, &refused["error"]["param"]), (400, &json!("input")), "{refused}");
        let told = refused["error"]["message"].as_str().unwrap();
        assert!(told.contains(item.as_str().unwrap()), "{told}");
    }
}

#[tokio::test]
async fn a_stream_of_a_response_has_the_official_events_of_calls() {
    let world = World::start().await.unwrap();
    let body = json!({
        "model": "holdfast",
        "input": "call",
        "stream": true,
        "tools": [{"type": "function", "name": "look"}],
    });

    let response = send(&world, &world.anna, "/v1/responses", &body).await;
    let events = events(response).await.unwrap();

    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let at = events.iter().position(|event| event["item"]["type"] == "function_call").unwrap();
    let kinds: Vec<&str> =
        events[at..].iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(events[at]["output_index"], 1);
    assert_eq!(events[at + 3]["item"]["arguments"], r#"{"n":0}"#);
    assert_eq!(events.last().unwrap()["response"]["output"][1], events[at + 3]["item"]);
}

#[tokio::test]
async fn results_find_their_session_by_the_calls_with_and_without_a_user() {
    let world = World::start().await.unwrap();
    for extra in [json!({}), json!({"user": "u1"})] {
        let (mut messages, calls) = called(&world, &world.anna, extra.clone()).await;
        messages.extend([result(&calls[0], "1"), result(&calls[1], "2")]);
        messages.push(json!({"role": "user", "content": "history"}));

        let (status, answer) = chat(&world, &world.anna, &json!(messages), extra).await;

        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            answer["choices"][0]["message"]["content"],
            "user=call; assistant=let me see; tool=[c0 1][c1 2]; user=history"
        );
    }
}

#[tokio::test]
async fn a_history_with_calls_begins_a_session_that_has_them() {
    let world = World::start().await.unwrap();
    let call =
        json!({"id": "x1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "before"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        result(&call, "seen"),
        {"role": "assistant", "content": "I saw"},
        {"role": "user", "content": "history"},
    ]);

    let (status, answer) = chat(&world, &world.anna, &messages, json!({})).await;

    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        "user=before; assistant=[x1 look]; tool=[x1 seen]; assistant=I saw; user=history"
    );
}

#[tokio::test]
async fn results_of_another_tenant_or_key_and_incomplete_ones_are_refused() {
    let world = World::start().await.unwrap();
    let (messages, calls) = called(&world, &world.anna, json!({})).await;
    let bare = json!([result(&calls[0], "1"), result(&calls[1], "2")]);

    let (status, refused) = chat(&world, &world.ben, &bare, json!({})).await;
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("messages")), "{refused}");
    let told = refused["error"]["message"].as_str().unwrap();
    assert!(told.contains(calls[0]["id"].as_str().unwrap()), "{told}");

    // Only one of two results: the calls go on waiting.
    let (status, _) = chat(&world, &world.anna, &json!([bare[0]]), json!({})).await;
    assert_eq!(status, 400);
    let mut whole = messages.clone();
    whole.extend(bare.as_array().unwrap().iter().cloned());
    let (status, answer) = chat(&world, &world.anna, &json!(whole), json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(answer["choices"][0]["message"]["content"], "results: c0=1, c1=2");

    let (_, first) = respond(&world, &world.anna, json!({"input": "call"})).await;
    let output = |call: &Value| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "x"});
    for (who, input) in [
        (&world.anna, json!([output(&first["output"][1])])),
        (
            &world.anna,
            json!([{"type": "function_call_output", "call_id": "call_1", "output": "x"}]),
        ),
        (&world.ben, json!([output(&first["output"][1]), output(&first["output"][2])])),
    ] {
        let body = json!({"input": input, "previous_response_id": first["id"]});
        let (status, refused) = respond(&world, who, body).await;
        assert_eq!(status, 400, "{refused}");
    }
}

#[tokio::test]
async fn results_after_the_deadline_are_refused_or_begin_a_session_with_their_history() {
    let world = World::start().await.unwrap();
    let (_, first) = respond(&world, &world.anna, json!({"input": "call 1"})).await;
    let items: Vec<Value> = first["output"].as_array().unwrap().iter().skip(1).cloned().collect();
    let output = |call: &Value| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "late"});
    let late: Vec<Value> = items.iter().map(output).collect();

    let body = json!({"input": late, "previous_response_id": first["id"]});
    let (status, refused) = respond(&world, &world.anna, body).await;

    assert_eq!(status, 400, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("deadline"), "{refused}");
    let history: Vec<Value> = [json!({"role": "user", "content": "call 1"})]
        .into_iter()
        .chain(items)
        .chain(late)
        .collect();
    let (status, answer) = respond(&world, &world.anna, json!({"input": history})).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer["output"][0]["content"][0]["text"].as_str().unwrap().contains("=late"));
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_calls_and_the_same_answer() {
    let world = World::start().await.unwrap();
    let post = async |messages: &Value, key: &str| {
        let body = json!({"model": "holdfast", "messages": messages, "tools": tools(&["look"])});
        let post = world.post(&world.anna, "/v1/chat/completions").header("Idempotency-Key", key);
        post.json(&body).send().await.unwrap().json::<Value>().await.unwrap()
    };
    let messages = json!([{"role": "user", "content": "call"}]);
    let first = post(&messages, "k1").await;
    let message = &first["choices"][0]["message"];
    let history = json!([messages[0], message, result(&message["tool_calls"][0], "1")]);

    let answer = post(&history, "k2").await;
    let (again, calls) = (post(&history, "k2").await, post(&messages, "k1").await);

    assert_eq!(answer["choices"][0]["message"]["content"], "results: c0=1");
    assert_eq!((&again["id"], &again["choices"]), (&answer["id"], &answer["choices"]));
    assert_eq!((&calls["id"], &calls["choices"]), (&first["id"], &first["choices"]));
}

#[tokio::test]
async fn two_continuations_of_one_call_do_not_see_each_other() {
    let world = World::start().await.unwrap();
    let (messages, calls) = called(&world, &world.anna, json!({})).await;
    let next = async |output: &str, say: &str| {
        let mut messages = messages.clone();
        messages.extend([result(&calls[0], output), result(&calls[1], output)]);
        messages.push(json!({"role": "user", "content": say}));
        chat(&world, &world.anna, &json!(messages), json!({})).await.1
    };

    next("one", "hi").await;
    let second = next("two", "history").await;

    assert_eq!(
        second["choices"][0]["message"]["content"],
        "user=call; assistant=let me see[c0 look][c1 ask]; tool=[c0 two][c1 two]; user=history"
    );
}
