//! Responses, as used by OpenAI's clients.

use serde_json::{Value, json};

use crate::world::{World, events};

async fn respond(world: &World, body: Value) -> Value {
    let response = world.post(&world.anna, "/v1/responses").json(&body).send().await.unwrap();
    response.json().await.unwrap()
}

#[tokio::test]
async fn a_response_has_the_form_that_clients_know() {
    let world = World::start().await.unwrap();

    let response = respond(&world, json!({"model": "holdfast", "input": "hi"})).await;

    assert_eq!(response["object"], "response");
    assert_eq!(response["status"], "completed");
    assert_eq!(response["error"], Value::Null);
    let item = &response["output"][0];
    assert_eq!((&item["type"], &item["role"]), (&json!("message"), &json!("assistant")));
    let part = json!({"type": "output_text", "text": "echo: hi", "annotations": []});
    assert_eq!(item["content"], json!([part]));
    assert_eq!(response["usage"]["input_tokens_details"]["cached_tokens"], 2);
    assert_eq!(response["usage"]["total_tokens"], 8);
}

#[tokio::test]
async fn a_stream_has_the_official_events_in_their_order() {
    let world = World::start().await.unwrap();
    let body = json!({"model": "holdfast", "input": "hi", "stream": true});

    let response = world.post(&world.anna, "/v1/responses").json(&body).send().await.unwrap();
    let events = events(response).await.unwrap();

    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers: Vec<u64> =
        events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert_eq!(numbers[0], 0);
    let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(text, "echo: hi");
    let whole = &events.last().unwrap()["response"];
    assert_eq!(whole["output"][0]["content"][0]["text"], "echo: hi");
    assert_eq!(whole["usage"]["output_tokens"], 3);
    assert_eq!(whole["id"], events[0]["response"]["id"]);
    assert_eq!(whole["output"][0]["id"], events[2]["item"]["id"]);
}

#[tokio::test]
async fn what_is_said_before_a_tool_is_an_item_of_its_own() {
    let world = World::start().await.unwrap();
    let body = json!({"model": "holdfast", "input": "tool please", "stream": true});

    let response = world.post(&world.anna, "/v1/responses").json(&body).send().await.unwrap();
    let events = events(response).await.unwrap();

    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    let texts: Vec<&str> = last["response"]["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["let me see", "echo: tool please"]);
}

#[tokio::test]
async fn a_stream_without_an_answer_ends_as_failed() {
    let world = World::start().await.unwrap();
    let body = json!({"model": "holdfast", "input": "fail", "stream": true});

    let response = world.post(&world.anna, "/v1/responses").json(&body).send().await.unwrap();
    let events = events(response).await.unwrap();

    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["error"]["code"], "turn_failed");
}

#[tokio::test]
async fn a_response_goes_on_from_another() {
    let world = World::start().await.unwrap();
    let first = respond(&world, json!({"model": "holdfast", "input": "one"})).await;

    let next = json!({
        "model": "holdfast",
        "previous_response_id": first["id"],
        "instructions": "be kind",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "history"}]}],
    });
    let next = respond(&world, next).await;

    assert_eq!(
        next["output"][0]["content"][0]["text"],
        "user=one; assistant=echo: one; system=be kind; user=history"
    );
    assert_eq!(next["previous_response_id"], first["id"]);
}

#[tokio::test]
async fn two_responses_that_go_on_from_one_do_not_see_each_other() {
    let world = World::start().await.unwrap();
    let text = |response: &Value| {
        response["output"][0]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    let next = async |previous: &Value, input: &str, key: &str| {
        let body = json!({"model": "holdfast", "previous_response_id": previous, "input": input});
        let post = world.post(&world.anna, "/v1/responses").header("Idempotency-Key", key);
        post.json(&body).send().await.unwrap().json::<Value>().await.unwrap()
    };
    let a = respond(&world, json!({"model": "holdfast", "input": "one"})).await;
    let b = next(&a["id"], "two", "b").await;

    let c = next(&a["id"], "history", "c").await;
    let again = next(&a["id"], "history", "c").await;
    let of_b = next(&b["id"], "history", "d").await;
    let of_c = next(&c["id"], "history", "e").await;
    let (left, right) =
        tokio::join!(next(&of_b["id"], "x", "f"), next(&of_b["id"], "history", "g"));

    assert_eq!(text(&c), "user=one; assistant=echo: one; user=history", "{c}");
    assert_eq!((text(&again), &again["id"]), (text(&c), &c["id"]));
    let one_two = "user=one; assistant=echo: one; user=two; assistant=echo: two; user=history";
    assert_eq!(text(&of_b), one_two, "{of_b}");
    assert!(text(&of_c).starts_with(&text(&c)), "{of_c}");
    assert_eq!(text(&left), "echo: x");
    assert!(text(&right).starts_with(one_two) && !text(&right).contains("user=x"), "{right}");
}

#[tokio::test]
async fn a_response_of_nobody_and_one_of_another_tenant_look_alike() {
    let world = World::start().await.unwrap();
    let first = respond(&world, json!({"model": "holdfast", "input": "one"})).await;
    let ask = async |id: &Value| {
        let body = json!({"model": "holdfast", "previous_response_id": id, "input": "two"});
        let response = world.post(&world.ben, "/v1/responses").json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };

    let (status, theirs) = ask(&first["id"]).await;
    let nobodys = json!("resp_00000000000000000000000000000000");
    let (other, nobodys) = ask(&nobodys).await;

    assert_eq!((status, other), (400, 400));
    assert_eq!(theirs["error"]["param"], "previous_response_id");
    assert_eq!(theirs["error"]["code"], nobodys["error"]["code"]);
}
