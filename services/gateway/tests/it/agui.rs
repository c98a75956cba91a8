//! `POST /chat`: runs of AG-UI.

use holdfast_testkit::openapi::Description;
use serde_json::{Value, json};

use crate::world::{Tenant, World, events};

/// Input of a run with one message of the user.
fn input(thread: &str, run: &str, text: &str) -> Value {
    json!({
        "threadId": thread,
        "runId": run,
        "protocolVersion": "1.0",
        "state": {},
        "messages": [{ "id": "1", "role": "user", "content": text }],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    })
}

/// Events of a run, each of which is as `/openapi.json` describes it.
async fn run(world: &World, who: &Tenant, input: &Value) -> Vec<Value> {
    let response = world.post(who, "/chat").json(input).send().await.unwrap();
    let description = Description::read().unwrap();
    description.check_value("RunAgentInput", input).unwrap();
    let events = events(response).await.unwrap();
    let events: Vec<Value> = events.iter().map(|one| serde_json::from_str(one).unwrap()).collect();
    for event in &events {
        description.check_value("AgUiEvent", event).unwrap();
    }
    events
}

/// Types of the events, without repetitions of `TEXT_MESSAGE_CONTENT`.
fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

/// Text of each message, in order.
fn texts(events: &[Value]) -> Vec<String> {
    let mut texts: Vec<(Value, String)> = Vec::new();
    for event in events.iter().filter(|event| event["delta"].is_string()) {
        let id = event["messageId"].clone();
        match texts.last_mut() {
            Some((last, text)) if *last == id => text.push_str(event["delta"].as_str().unwrap()),
            _ if id.is_null() => {}
            _ => texts.push((id, event["delta"].as_str().unwrap().to_owned())),
        }
    }
    texts.into_iter().map(|(_, text)| text).collect()
}

/// A client's history: the messages that it builds of a run's events.
fn with_answer(input: &Value, run: &str, answer: &str, next: &str) -> Value {
    let mut input = input.clone();
    input["runId"] = json!(run);
    let messages = input["messages"].as_array_mut().unwrap();
    messages.push(json!({ "id": "2", "role": "assistant", "content": answer }));
    messages.push(json!({ "id": "3", "role": "user", "content": next }));
    input
}

#[tokio::test]
async fn a_run_has_the_events_of_the_protocol_and_its_thread_goes_on() {
    let world = World::start().await.unwrap();
    let first = input("t", "r1", "hi");

    let events = run(&world, &world.anna, &first).await;

    let text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];
    assert_eq!(kinds(&events), [&["RUN_STARTED"], &text[..], &["RUN_FINISHED"]].concat());
    assert_eq!(texts(&events), ["echo: hi"]);
    let end = events.last().unwrap();
    assert_eq!((&end["threadId"], &end["runId"]), (&json!("t"), &json!("r1")));
    assert_eq!(end["outcome"], json!({ "type": "success" }));
    assert_eq!(end["usage"][0]["totalTokens"], 8);

    // The same run again is the same answer, and one turn.
    let again = run(&world, &world.anna, &first).await;
    assert_eq!(texts(&again), ["echo: hi"]);
    let other =
        world.post(&world.anna, "/chat").json(&input("t", "r1", "ho")).send().await.unwrap();
    assert_eq!(other.status(), 409);

    let mut next = with_answer(&first, "r2", "echo: hi", "history");
    next["context"] = json!([{ "description": "page", "value": "orders" }]);
    let events = run(&world, &world.anna, &next).await;
    let heard = texts(&events).remove(0);
    assert_eq!(heard.matches("user=hi;").count(), 1, "{heard}");
    assert!(heard.contains("page: orders"), "{heard}");
    // Another tenant's thread of the same name is another conversation.
    let events = run(&world, &world.ben, &input("t", "r2", "history")).await;
    assert_eq!(texts(&events), ["user=history"]);
    let sessions = world.number("select count(*) from session.sessions").await.unwrap();
    assert_eq!(sessions, 2);
}

#[tokio::test]
async fn a_tool_of_the_client_ends_the_run_and_the_next_run_has_its_result() {
    let world = World::start().await.unwrap();
    let tool =
        |name: &str| json!({ "name": name, "description": "", "parameters": { "type": "object" } });
    let mut first = input("t", "r1", "call");
    first["tools"] = json!([tool("look"), tool("ask")]);

    let events = run(&world, &world.anna, &first).await;

    let calls = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];
    let text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];
    let expected =
        [&["RUN_STARTED"], &text[..], &calls[..], &calls[..], &["RUN_FINISHED"]].concat();
    assert_eq!(kinds(&events), expected);
    let starts: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "TOOL_CALL_START").collect();
    assert_eq!(
        (&starts[0]["toolCallName"], &starts[1]["toolCallName"]),
        (&json!("look"), &json!("ask"))
    );
    let said = &events[1]["messageId"];
    assert!(starts.iter().all(|start| start["parentMessageId"] == *said), "{events:?}");
    let ids: Vec<Value> = starts.iter().map(|start| start["toolCallId"].clone()).collect();
    assert_eq!(events.last().unwrap()["outcome"]["pendingToolCallIds"], json!(ids));

    // The history that a client makes of these events, with the results.
    let mut next = first.clone();
    next["runId"] = json!("r2");
    let arguments = events.iter().filter(|event| event["type"] == "TOOL_CALL_ARGS");
    let made: Vec<Value> = starts
        .iter()
        .zip(arguments)
        .map(|(start, arguments)| {
            let function =
                json!({ "name": start["toolCallName"], "arguments": arguments["delta"] });
            json!({ "id": start["toolCallId"], "type": "function", "function": function })
        })
        .collect();
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(
        json!({ "id": said, "role": "assistant", "content": "let me see", "toolCalls": made }),
    );
    messages.push(json!({ "id": "a", "role": "tool", "toolCallId": ids[1], "content": "two" }));
    messages.push(json!({ "id": "b", "role": "tool", "toolCallId": ids[0], "content": "", "error": "no camera" }));
    let mut foreign = next.clone();
    foreign["messages"].as_array_mut().unwrap().remove(1);
    let refused = world.post(&world.ben, "/chat").json(&foreign).send().await.unwrap();
    assert_eq!(refused.status(), 400);

    let events = run(&world, &world.anna, &next).await;

    assert_eq!(texts(&events), ["results: c0=error: no camera, c1=two"]);
    assert_eq!(events.last().unwrap()["outcome"], json!({ "type": "success" }));
}

#[tokio::test]
async fn a_tool_of_the_agent_is_told_with_its_end() {
    let world = World::start().await.unwrap();

    let events = run(&world, &world.anna, &input("t", "r", "tool please")).await;

    let text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];
    let call = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"];
    let expected = [&["RUN_STARTED"], &text[..], &call[..], &text[..], &["RUN_FINISHED"]].concat();
    assert_eq!(kinds(&events), expected);
    assert_eq!(texts(&events), ["let me see", "echo: tool please"]);
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    assert_eq!(of("TOOL_CALL_RESULT")["toolCallId"], of("TOOL_CALL_START")["toolCallId"]);
    assert_eq!(of("TOOL_CALL_RESULT")["content"], "done");
    // The thread goes on with what the client has made of them.
    let mut next = input("t", "r2", "tool please");
    let function = json!({ "name": of("TOOL_CALL_START")["toolCallName"], "arguments": "{}" });
    let made = json!([{ "id": of("TOOL_CALL_START")["toolCallId"], "type": "function", "function": function }]);
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(
        json!({ "id": "2", "role": "assistant", "content": "let me see", "toolCalls": made }),
    );
    messages.push(json!({ "id": "3", "role": "tool", "toolCallId": of("TOOL_CALL_START")["toolCallId"], "content": "done" }));
    messages.push(json!({ "id": "4", "role": "assistant", "content": "echo: tool please" }));
    messages.push(json!({ "id": "5", "role": "user", "content": "thanks" }));
    assert_eq!(texts(&run(&world, &world.anna, &next).await), ["echo: thanks"]);
    assert_eq!(world.number("select count(*) from session.sessions").await.unwrap(), 1);
}

#[tokio::test]
async fn a_run_that_fails_says_so_and_a_request_that_is_wrong_gets_a_status() {
    let world = World::start().await.unwrap();

    let events = run(&world, &world.anna, &input("t", "r", "fail")).await;

    assert_eq!(events.last().unwrap()["type"], "RUN_ERROR");
    assert_eq!(events.last().unwrap()["code"], "turn_failed");
    assert!(!kinds(&events).contains(&"RUN_FINISHED"));
    let reader = world.key(&world.anna, &["read"], None).await.unwrap();
    let mut without_user = input("t", "r2", "hi");
    without_user["messages"][0]["role"] = json!("assistant");
    let hi = input("t", "r3", "hi");
    for (request, status) in [
        (world.client.post(world.url("/chat")).json(&hi), 401),
        (world.post(&world.anna.by(&reader), "/chat").json(&hi), 403),
        (world.post(&world.anna, "/chat?agent=nobody").json(&hi), 404),
        (world.post(&world.anna, "/chat").json(&without_user), 400),
        (world.post(&world.anna, "/chat").json(&json!({ "messages": [] })), 400),
        (world.get(&world.anna, "/chat"), 405),
    ] {
        assert_eq!(request.send().await.unwrap().status(), status);
    }
}
