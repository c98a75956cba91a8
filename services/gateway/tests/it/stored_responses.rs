//! Responses that are read again, conversations, embeddings, aborted streams, and calls of web pages.

use std::time::Duration;

use holdfast_testkit::openapi::Description;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{Tenant, World, events, until};

async fn send(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn respond(world: &World, extra: Value) -> Value {
    let mut body = json!({"model": "holdfast"});
    for (name, value) in extra.as_object().unwrap() {
        body[name] = value.clone();
    }
    let (status, response) = send(world.post(&world.anna, "/v1/responses").json(&body)).await;
    assert_eq!(status, 200, "{response}");
    response
}

fn delete(world: &World, who: &Tenant, path: &str) -> RequestBuilder {
    world.client.request(Method::DELETE, world.url(path)).bearer_auth(&who.key)
}

fn path(response: &Value) -> String {
    format!("/v1/responses/{}", response["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_response_is_read_again_as_it_was_with_its_input_and_its_metadata() {
    let world = World::start().await.unwrap();
    let description = Description::read().unwrap();
    let first = respond(
        &world,
        json!({
            "instructions": "Rhyme.",
            "input": [{"role": "user", "content": "call"}],
            "tools": [{"type": "function", "name": "look"}],
            "metadata": {"ticket": "7"},
            "temperature": 0.5,
        }),
    )
    .await;

    let (status, again) = send(world.get(&world.anna, &path(&first))).await;

    assert_eq!((status, &again), (200, &first));
    assert_eq!(again["metadata"]["ticket"], "7");
    description.check_value("Response", &again).unwrap();
    let items = format!("{}/input_items?order=asc", path(&first));
    let (_, items) = send(world.get(&world.anna, &items)).await;
    let texts: Vec<&Value> =
        items["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts, ["Rhyme.", "call"], "{items}");
    description.check_value("ItemList", &items).unwrap();
}

#[tokio::test]
async fn a_background_response_is_polled_and_can_be_cancelled() {
    let world = World::start().await.unwrap();
    let queued = respond(&world, json!({"input": "hold on", "background": true})).await;
    assert_eq!((&queued["status"], &queued["background"]), (&json!("queued"), &json!(true)));

    let (_, running) = send(world.get(&world.anna, &path(&queued))).await;
    assert!(["queued", "in_progress"].contains(&running["status"].as_str().unwrap()), "{running}");
    world.runner.release(1);
    let stream = format!("{}?stream=true", path(&queued));
    let events = events(world.get(&world.anna, &stream).send().await.unwrap()).await.unwrap();
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["type"], "response.completed", "{last}");
    let (_, done) = send(world.get(&world.anna, &path(&queued))).await;
    assert_eq!(done["output"][0]["content"][0]["text"], "echo: hold on", "{done}");

    // A response that has ended stays as it is.
    let cancel = format!("{}/cancel", path(&queued));
    let (status, after) = send(world.post(&world.anna, &cancel)).await;
    assert_eq!((status, &after["status"]), (200, &json!("completed")));
}

/// Events of a response, from its start or after one of them.
async fn resume(world: &World, response: &Value, after: Option<u64>) -> Vec<Value> {
    let after = after.map_or(String::new(), |n| format!("&starting_after={n}"));
    let path = format!("{}?stream=true{after}", path(response));
    let events = events(world.get(&world.anna, &path).send().await.unwrap()).await.unwrap();
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn number(event: &Value) -> u64 {
    event["sequence_number"].as_u64().unwrap()
}

fn texts(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["delta"].as_str()).collect()
}

#[tokio::test]
async fn a_stream_resumes_after_any_of_its_events_and_repeats_none() {
    let world = World::start().await.unwrap();
    let body = json!({"model": "holdfast", "input": "steps", "background": true, "stream": true});
    let live = world.post(&world.anna, "/v1/responses").json(&body).send().await.unwrap();
    let live = tokio::spawn(events(live));
    world.runner.release(1);
    let live = live.await.unwrap().unwrap();
    let live: Vec<Value> = live.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(texts(&live), "let me seeit is noon");
    let response = &live[0]["response"];

    let whole = resume(&world, response, None).await;

    assert_eq!(texts(&whole), "let me seeit is noon");
    assert_eq!(whole.last(), live.last());
    let mut marks: Vec<u64> = live.iter().map(number).collect();
    assert!(marks.is_sorted_by(|one, next| one < next), "{marks:?}");
    // In the middle of a text, too.
    marks.extend([6, 9]);
    for mark in marks {
        let rest = resume(&world, response, Some(mark)).await;

        assert!(rest.iter().all(|event| number(event) > mark), "{mark}: {rest:?}");
        let had: Vec<&Value> = whole.iter().filter(|event| number(event) <= mark).collect();
        let had_text: Vec<Value> = live.iter().filter(|e| number(e) <= mark).cloned().collect();
        if live.iter().any(|event| number(event) == mark) {
            let joined = format!("{}{}", texts(&had_text), texts(&rest));
            assert_eq!(joined, "let me seeit is noon", "{mark}");
        }
        assert!(rest.len() + had.len() >= whole.len(), "{mark}");
        let last = live.last().unwrap();
        assert_eq!(rest.last(), Some(last).filter(|last| number(last) > mark), "{mark}");
    }
    let refused = format!("{}?starting_after=3", path(response));
    let (status, refusal) = send(world.get(&world.anna, &refused)).await;
    assert_eq!((status, &refusal["error"]["param"]), (400, &json!("starting_after")));
}

#[tokio::test]
async fn a_client_that_comes_late_gets_the_steps_before_it_from_the_journal() {
    let world = World::start().await.unwrap();
    let response = respond(&world, json!({"input": "steps", "background": true})).await;
    // The first step is over, and the second one waits.
    sleep(Duration::from_millis(500)).await;

    let release = async {
        sleep(Duration::from_millis(500)).await;
        world.runner.release(1);
    };
    let (late, ()) = tokio::join!(resume(&world, &response, Some(1)), release);

    assert_eq!(texts(&late), "let me seeit is noon");
    assert_eq!(late[0]["type"], "response.output_item.added");
    let output = late.last().unwrap()["response"]["output"].as_array().unwrap();
    assert_eq!(output.len(), 2, "{output:?}");
    let end = number(late.last().unwrap());
    assert_eq!(resume(&world, &response, Some(end)).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_deleted_response_and_one_that_is_not_stored_are_gone() {
    let world = World::start().await.unwrap();
    let first = respond(&world, json!({"input": "one"})).await;
    let next = respond(&world, json!({"input": "two", "previous_response_id": first["id"]})).await;

    let (status, deleted) = send(delete(&world, &world.anna, &path(&first))).await;

    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
    assert_eq!(send(world.get(&world.anna, &path(&first))).await.0, 404);
    // Its conversation goes on from the newer one, which has it.
    let text = json!({"input": "history", "previous_response_id": next["id"]});
    let history = respond(&world, text).await;
    assert!(history["output"][0]["content"][0]["text"].as_str().unwrap().starts_with("user=one"));
    let body = json!({"model": "holdfast", "input": "x", "previous_response_id": first["id"]});
    assert_eq!(send(world.post(&world.anna, "/v1/responses").json(&body)).await.0, 400);

    let unstored = respond(&world, json!({"input": "secret", "store": false})).await;
    assert_eq!(unstored["store"], false);
    assert_eq!(send(world.get(&world.anna, &path(&unstored))).await.0, 404);
    let body = json!({"model": "holdfast", "input": "secret", "store": false, "stream": true});
    let stream = world.post(&world.anna, "/v1/responses").json(&body).send().await.unwrap();
    assert!(events(stream).await.unwrap().last().unwrap().contains("response.completed"));
    let left = world.number("select count(*) from session.inbox where body::text like '%secret%'");
    assert_eq!(left.await.unwrap(), 0, "its session is deleted");
}

#[tokio::test]
async fn a_conversation_is_continued_listed_and_deleted() {
    let world = World::start().await.unwrap();
    let (_, conversation) =
        send(world.post(&world.anna, "/v1/conversations").json(&json!({}))).await;
    let id = &conversation["id"];
    respond(&world, json!({"input": "one", "conversation": id})).await;

    let next = respond(&world, json!({"input": "history", "conversation": {"id": id}})).await;

    assert_eq!(next["conversation"]["id"], *id);
    assert_eq!(
        next["output"][0]["content"][0]["text"],
        "user=one; assistant=echo: one; user=history"
    );
    let path = format!("/v1/conversations/{}", id.as_str().unwrap());
    let (_, items) = send(world.get(&world.anna, &format!("{path}/items?limit=2&order=asc"))).await;
    let texts: Vec<&Value> =
        items["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts, ["one", "echo: one"], "{items}");
    assert_eq!(items["has_more"], true);
    // The same id is another, empty conversation for another tenant.
    let (_, others) = send(world.get(&world.ben, &format!("{path}/items"))).await;
    assert_eq!(others["data"], json!([]));
    assert_eq!(send(delete(&world, &world.anna, &path)).await.1["deleted"], true);
    let (_, items) = send(world.get(&world.anna, &format!("{path}/items"))).await;
    assert_eq!(items["data"], json!([]));
    assert_eq!(send(world.get(&world.anna, "/v1/conversations/conv_1")).await.0, 404);
}

#[tokio::test]
async fn an_aborted_stream_cancels_its_turn_unless_the_client_means_to_come_back() {
    let world = World::start().await.unwrap();
    let start = async |headers: &[(&'static str, &'static str)]| {
        let messages = json!([{"role": "user", "content": "hold on"}]);
        let body = json!({"model": "holdfast", "stream": true, "messages": messages});
        let post = world.post(&world.anna, "/v1/chat/completions").json(&body);
        let post = headers.iter().fold(post, |post, (name, value)| post.header(*name, *value));
        let mut stream = post.send().await.unwrap();
        let message = stream.headers()["x-holdfast-message"].to_str().unwrap().to_owned();
        stream.chunk().await.unwrap();
        drop(stream);
        message.replacen("msg_", "", 1)
    };
    let is_cancelled = async |message: &str| {
        let sql = format!(
            "select count(*) from session.inbox i
             join session.session_lease l using (tenant_id, session_id)
             where i.message_id = '{message}' and l.cancel_upto >= i.seq"
        );
        world.number(&sql).await.unwrap() == 1
    };

    let aborted = start(&[]).await;
    let kept = start(&[("idempotency-key", "k")]).await;
    let asked = start(&[("x-holdfast-on-abort", "continue")]).await;

    until(async || is_cancelled(&aborted).await.then_some(())).await;
    assert!(!is_cancelled(&kept).await && !is_cancelled(&asked).await);
    let post = world.post(&world.anna, "/v1/chat/completions").header("x-holdfast-on-abort", "x");
    assert_eq!(send(post.json(&json!({}))).await.0, 400);
}

#[tokio::test]
async fn texts_become_vectors_of_the_memory_services_model() {
    let world = World::start_with_memory().await.unwrap();
    let embed = async |extra: Value| {
        let mut body = json!({"model": "holdfast", "input": ["tea", "coffee"]});
        for (name, value) in extra.as_object().unwrap() {
            body[name] = value.clone();
        }
        send(world.post(&world.anna, "/v1/embeddings").json(&body)).await
    };

    let (status, answer) = embed(json!({})).await;

    assert_eq!(status, 200, "{answer}");
    Description::read().unwrap().check_value("Embeddings", &answer).unwrap();
    let vectors = answer["data"].as_array().unwrap();
    assert_eq!((vectors.len(), &vectors[1]["index"]), (2, &json!(1)));
    let length = vectors[0]["embedding"].as_array().unwrap().len();
    let (_, encoded) = embed(json!({"encoding_format": "base64", "dimensions": length})).await;
    let encoded = encoded["data"][0]["embedding"].as_str().unwrap().to_owned();
    assert_eq!(encoded.len(), (length * 4).div_ceil(3) * 4);
    assert_eq!(embed(json!({"dimensions": 3})).await.0, 400);
    assert_eq!(embed(json!({"model": "text-embedding-3-small"})).await.0, 404);
}

#[tokio::test]
async fn web_pages_of_listed_origins_may_call_and_others_may_not() {
    let world =
        World::start_with(|config| config.gateway.cors_origins = vec!["https://a.example".into()])
            .await
            .unwrap();
    let call = async |method: Method, origin: &str| {
        let request = world.client.request(method, world.url("/v1/chat/completions"));
        let request = request.header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "authorization").send().await.unwrap()
    };

    let preflight = call(Method::OPTIONS, "https://a.example").await;
    assert_eq!(preflight.status(), 204);
    assert_eq!(preflight.headers()["access-control-allow-origin"], "https://a.example");
    assert_eq!(preflight.headers()["access-control-allow-headers"], "authorization");
    // Without a key it is refused, in a way that the page may read.
    let answer = call(Method::POST, "https://a.example").await;
    assert_eq!(answer.status(), 401);
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://a.example");
    let other = call(Method::OPTIONS, "https://b.example").await;
    assert!(!other.headers().contains_key("access-control-allow-origin"));
    assert!(!answer.headers().contains_key("access-control-allow-credentials"));
}
