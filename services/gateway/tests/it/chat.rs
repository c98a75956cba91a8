//! Chat Completions, as used by OpenAI's clients.

use std::time::Duration;

use futures::StreamExt as _;
use holdfast_directory::{Actor, NewAgent};
use holdfast_llm::ModelCard;
use holdfast_types::{AgentName, QueueMode};
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, chunks, done, events};

fn body(extra: Value) -> Value {
    let mut body = json!({
        "model": "holdfast",
        "messages": [{"role": "user", "content": "hi"}],
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_completion_has_the_form_that_clients_know() {
    let world = World::start().await.unwrap();

    let response = world.post(&world.anna, "/v1/chat/completions").json(&body(json!({})));
    let response = response.send().await.unwrap();

    let message = response.headers()["x-holdfast-message"].to_str().unwrap().to_owned();
    let answer: Value = response.json().await.unwrap();
    let id = format!("chatcmpl-{}", message.strip_prefix("msg_").unwrap());
    assert_eq!(answer["id"], id);
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "holdfast");
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
    let choice = json!({
        "index": 0,
        "message": {"role": "assistant", "content": "echo: hi", "refusal": null},
        "logprobs": null,
        "finish_reason": "stop",
    });
    assert_eq!(answer["choices"], json!([choice]));
    let usage = json!({
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
    });
    assert_eq!(answer["usage"], usage);
}

#[tokio::test]
async fn a_stream_has_a_role_the_text_an_end_and_what_it_cost() {
    let world = World::start().await.unwrap();
    let wanted = body(json!({"stream": true, "stream_options": {"include_usage": true}}));

    let response = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send();
    let chunks = chunks(response.await.unwrap()).await.unwrap();

    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    assert_eq!(*deltas[0], json!({"role": "assistant", "content": ""}));
    let text: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, "echo: hi");
    let [.., end, usage] = chunks.as_slice() else { panic!("{chunks:?}") };
    assert_eq!(end["choices"][0]["finish_reason"], "stop");
    assert_eq!(end["usage"], Value::Null);
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["total_tokens"], 8);
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk"));
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
}

#[tokio::test]
async fn a_stream_that_cannot_take_back_ends_with_an_error_and_its_key_brings_the_answer() {
    let world = World::start().await.unwrap();
    let wanted = |text: &str, stream: bool| {
        let messages = json!([{"role": "user", "content": text}]);
        let body = body(json!({"stream": stream, "messages": messages}));
        let post = world.post(&world.anna, "/v1/chat/completions");
        post.header("Idempotency-Key", text).json(&body).send()
    };

    let same = chunks(wanted("same words", true).await.unwrap()).await.unwrap();
    let other = events(wanted("other words", true).await.unwrap()).await.unwrap();

    let text = |chunks: &[Value]| -> String {
        let content = |chunk: &Value| {
            chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
        };
        chunks.iter().map(content).collect()
    };
    assert_eq!(text(&same), "echo: same words");
    let last: Value = serde_json::from_str(other.last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "stream_restarted");
    let stored: Value = wanted("other words", false).await.unwrap().json().await.unwrap();
    assert_eq!(stored["choices"][0]["message"]["content"], "echo: other words", "{stored}");
}

#[tokio::test]
async fn what_is_said_before_a_tool_is_told_apart() {
    let world = World::start().await.unwrap();
    let messages = json!([{"role": "user", "content": "tool please"}]);
    let wanted = body(json!({"stream": true, "messages": messages}));

    let response = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send();
    let chunks = chunks(response.await.unwrap()).await.unwrap();

    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "let me see\n\necho: tool please");
}

#[tokio::test]
async fn a_user_goes_on_where_the_last_conversation_ended() {
    let world = World::start().await.unwrap();
    world.say(&world.anna, "u1", "first").await.unwrap();

    let messages = json!([
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "echo: first"},
        {"role": "user", "content": "history"},
    ]);
    let wanted = body(json!({"user": "u1", "messages": messages}));
    let response = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send();
    let answer: Value = response.await.unwrap().json().await.unwrap();

    assert_eq!(
        answer["choices"][0]["message"]["content"],
        "user=first; assistant=echo: first; user=history"
    );
    let other = world.say(&world.anna, "u2", "history").await.unwrap();
    assert_eq!(other["choices"][0]["message"]["content"], "user=history");
}

#[tokio::test]
async fn a_new_user_and_no_user_begin_with_all_that_was_said() {
    let world = World::start().await.unwrap();
    let messages = json!([
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "history"},
    ]);
    let expected = "system=be kind; user=one; assistant=two; user=history";

    for extra in [json!({"messages": messages, "user": "new"}), json!({"messages": messages})] {
        let response = world.post(&world.anna, "/v1/chat/completions").json(&body(extra)).send();
        let answer: Value = response.await.unwrap().json().await.unwrap();

        assert_eq!(answer["choices"][0]["message"]["content"], expected);
    }
}

#[tokio::test]
async fn a_very_long_history_is_taken_in() {
    let world = World::start().await.unwrap();
    let mut messages: Vec<Value> = (0..300)
        .map(|n| json!({"role": if n % 2 == 0 { "user" } else { "assistant" }, "content": "x"}))
        .collect();
    messages.push(json!({"role": "user", "content": "hi"}));

    let wanted = body(json!({"messages": messages}));
    let response = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send();

    let answer: Value = response.await.unwrap().json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "echo: hi", "{answer}");
}

#[tokio::test]
async fn what_is_asked_of_the_model_goes_with_the_message() -> anyhow::Result<()> {
    let world = World::start().await?;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let named = json!({"name": "number", "schema": schema, "strict": true});
    let chat = body(json!({
        "messages": [{"role": "user", "content": "options"}],
        "temperature": 0.25,
        "top_p": 1,
        "max_completion_tokens": 77,
        "stop": "END",
        "seed": 7,
        "frequency_penalty": -1,
        "presence_penalty": 1.5,
        "reasoning_effort": "minimal",
        "response_format": {"type": "json_schema", "json_schema": named},
    }));
    let format = json!({"type": "json_schema", "name": "number", "schema": schema, "strict": true});
    let responses = json!({
        "model": "holdfast",
        "input": "options",
        "temperature": 0.25,
        "max_output_tokens": 77,
        "reasoning": {"effort": "minimal"},
        "text": {"format": format},
    });

    let answer: Value =
        world.post(&world.anna, "/v1/chat/completions").json(&chat).send().await?.json().await?;
    let stored = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    let told: Value =
        world.post(&world.anna, "/v1/responses").json(&responses).send().await?.json().await?;
    let by_responses = told["output"][0]["content"][0]["text"].as_str().unwrap_or_default();

    let expected = json!({
        "temperature": 0.25,
        "top_p": 1,
        "max_output": 77,
        "stop": ["END"],
        "seed": 7,
        "frequency_penalty": -1,
        "presence_penalty": 1.5,
        "effort": "minimal",
        "format": format,
    });
    assert_eq!(serde_json::from_str::<Value>(stored)?, expected, "{answer}");
    let expected = json!({
        "temperature": 0.25,
        "max_output": 77,
        "effort": "minimal",
        "format": format,
    });
    assert_eq!(serde_json::from_str::<Value>(by_responses)?, expected, "{told}");
    assert_eq!((&told["max_output_tokens"], &told["text"]["format"]), (&json!(77), &format));
    assert_eq!(told["reasoning"]["effort"], "minimal");
    Ok(())
}

#[tokio::test]
async fn a_key_belongs_to_a_request_with_its_options() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ask = async |temperature: f64| {
        let wanted = body(json!({"temperature": temperature}));
        let post = world.post(&world.anna, "/v1/chat/completions").header("Idempotency-Key", "k");
        post.json(&wanted).send().await.map(|response| response.status())
    };

    assert_eq!(ask(0.5).await?, 200);
    assert_eq!(ask(0.5).await?, 200);
    assert_eq!(ask(0.6).await?, 409);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_told_as_such() -> anyhow::Result<()> {
    let world = World::start().await?;
    let messages = json!([{"role": "user", "content": "cut me"}]);
    let post = |path| world.post(&world.anna, path);

    let chat = body(json!({"messages": messages}));
    let answer: Value = post("/v1/chat/completions").json(&chat).send().await?.json().await?;
    let chat = body(json!({"messages": messages, "stream": true}));
    let chunks = chunks(post("/v1/chat/completions").json(&chat).send().await?).await?;
    let wanted = json!({"model": "holdfast", "input": "cut me"});
    let response: Value = post("/v1/responses").json(&wanted).send().await?.json().await?;
    let wanted = json!({"model": "holdfast", "input": "cut me", "stream": true});
    let streamed = events(post("/v1/responses").json(&wanted).send().await?).await?;

    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    let last = chunks.last().map(|chunk| chunk["choices"][0]["finish_reason"].clone());
    assert_eq!(last, Some(json!("length")), "{chunks:?}");
    assert_eq!(response["status"], "incomplete", "{response}");
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    let last: Value = serde_json::from_str(streamed.last().unwrap())?;
    assert_eq!(last["type"], "response.incomplete", "{last}");
    assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
    Ok(())
}

#[tokio::test]
async fn an_answer_that_a_filter_cuts_off_has_its_text_and_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    let messages = json!([{"role": "user", "content": "cut by a filter"}]);
    let post = |path| world.post(&world.anna, path);

    let chat = body(json!({"messages": messages}));
    let answer: Value = post("/v1/chat/completions").json(&chat).send().await?.json().await?;
    let wanted = json!({"model": "holdfast", "input": "cut by a filter"});
    let response: Value = post("/v1/responses").json(&wanted).send().await?.json().await?;

    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "content_filter", "{answer}");
    assert_eq!(choice["message"]["content"], "echo: cut by a filter");
    assert_eq!(response["status"], "incomplete", "{response}");
    assert_eq!(response["incomplete_details"]["reason"], "content_filter");
    assert_eq!(response["output"][0]["content"][0]["text"], "echo: cut by a filter");
    Ok(())
}

#[tokio::test]
async fn a_stream_of_an_answer_with_a_form_has_nothing_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    let messages = json!([{"role": "user", "content": "tool please"}]);
    let format = json!({"type": "json_object"});
    let wanted = body(json!({"stream": true, "messages": messages, "response_format": format}));

    let response = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send().await?;
    let chunks = chunks(response).await?;

    let content = |chunk: &Value| {
        chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
    };
    let text: String = chunks.iter().map(content).collect();
    assert_eq!(text, "echo: tool please");
    Ok(())
}

#[tokio::test]
async fn a_turn_that_fails_is_an_error_with_its_reason() {
    let world = World::start().await.unwrap();
    let messages = json!([{"role": "user", "content": "fail"}]);

    let wanted = body(json!({"messages": messages}));
    let response = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send();
    let response = response.await.unwrap();
    let wanted = body(json!({"messages": messages, "stream": true}));
    let streamed = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send();
    let streamed = events(streamed.await.unwrap()).await.unwrap();

    assert_eq!(response.status(), 502);
    let told: Value = response.json().await.unwrap();
    assert_eq!(told["error"]["code"], "turn_failed");
    assert_eq!(told["error"]["message"], "the turn failed: it would not work");
    let last: Value = serde_json::from_str(streamed.last().unwrap()).unwrap();
    assert_eq!(last, told);
}

#[tokio::test]
async fn a_refusal_that_would_come_again_is_no_failure_of_the_server() {
    let world = World::start().await.unwrap();
    for (class, status, kind) in [
        ("budget_spent", 429, "insufficient_quota"),
        ("rate_limited", 429, "rate_limit_error"),
        ("filtered", 422, "invalid_request_error"),
        ("unavailable", 502, "server_error"),
    ] {
        let messages = json!([{"role": "user", "content": format!("fail {class}")}]);
        let wanted = body(json!({"messages": messages}));

        let response = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send();
        let response = response.await.unwrap();

        assert_eq!(response.status(), status, "{class}");
        let after = response.headers().get("retry-after").map(|after| after.to_str().unwrap());
        assert_eq!(after, (class == "rate_limited").then_some("60"), "{class}");
        let told: Value = response.json().await.unwrap();
        assert_eq!(told["error"]["type"], kind, "{told}");
    }
}

#[tokio::test]
async fn a_conversation_that_a_client_has_edited_is_answered_as_the_client_shows_it() {
    let world = World::start().await.unwrap();
    let ask = async |turns: &[(&str, &str)], key: Option<&str>| {
        let messages: Vec<Value> =
            turns.iter().map(|(role, text)| json!({"role": role, "content": text})).collect();
        let mut post = world.post(&world.anna, "/v1/chat/completions");
        if let Some(key) = key {
            post = post.header("Idempotency-Key", key);
        }
        let post = post.json(&body(json!({"user": "u1", "messages": messages})));
        let answer: Value = post.send().await.unwrap().json().await.unwrap();
        answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    };
    let (u, a) = ("user", "assistant");
    ask(&[(u, "one")], None).await;
    ask(&[(u, "one"), (a, "echo: one"), (u, "two")], None).await;

    let edited = ask(&[(u, "uno"), (a, "echo: uno"), (u, "history")], Some("k")).await;
    let again = ask(&[(u, "uno"), (a, "echo: uno"), (u, "history")], Some("k")).await;
    let regenerated = ask(&[(u, "one"), (a, "echo: one"), (u, "history")], None).await;
    let kept = ask(&[(u, "two"), (a, "echo: two"), (u, "history")], None).await;

    assert_eq!(edited, "user=uno; assistant=echo: uno; user=history");
    assert_eq!(again, edited);
    assert_eq!(regenerated, "user=one; assistant=echo: one; user=history");
    assert_eq!(kept, "user=one; assistant=echo: one; user=two; assistant=echo: two; user=history");
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_the_turn_running() {
    let world = World::start_with(|config| {
        config.gateway.heartbeat = Duration::from_millis(50);
        config.gateway.calls_per_tenant = 1;
    });
    let world = world.await.unwrap();
    let messages = json!([{"role": "user", "content": "hold on"}]);
    let wanted = body(json!({"stream": true, "messages": messages}));
    let post = world.post(&world.anna, "/v1/chat/completions").header("Idempotency-Key", "k");
    let response = post.json(&wanted).send().await.unwrap();
    let message = response.headers()["x-holdfast-message"].to_str().unwrap().to_owned();
    let mut bytes = response.bytes_stream();
    let first = bytes.next().await.unwrap().unwrap();
    let beat = bytes.next().await.unwrap().unwrap();
    let busy = world.get(&world.anna, "/v1/models").send().await.unwrap();

    drop(bytes);

    assert!(first.starts_with(b"data: "), "{first:?}");
    assert_eq!(&beat[..], b": waiting\n\n");
    assert_eq!(busy.status(), 429);
    // The tenant's only open call is freed once the disconnected client is noticed.
    let free = async {
        loop {
            let again = world.get(&world.anna, "/v1/models").send().await.unwrap();
            match again.status().as_u16() {
                200 => break,
                429 => tokio::time::sleep(Duration::from_millis(20)).await,
                other => panic!("{other}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, free).await.unwrap();
    world.runner.release(1);
    let events = world.follow(&world.anna, &message).await.unwrap();
    assert_eq!(done(&events).text, "echo: hold on");
}

#[tokio::test]
async fn who_waits_too_long_is_told_how_to_get_the_answer() {
    let world =
        World::start_with(|config| config.gateway.answer_timeout = Duration::from_millis(200));
    let world = world.await.unwrap();
    let messages = json!([{"role": "user", "content": "hold on"}]);
    let wanted = body(json!({"messages": messages}));
    let post = || {
        let post = world.post(&world.anna, "/v1/chat/completions");
        post.header("Idempotency-Key", "k").json(&wanted).send()
    };

    let response = post().await.unwrap();

    assert_eq!(response.status(), 504);
    let told: Value = response.json().await.unwrap();
    assert!(told["error"]["message"].as_str().unwrap().contains("idempotency key"), "{told}");
    world.runner.release(1);
    let answer = async {
        loop {
            let again = post().await.unwrap();
            if again.status() == 200 {
                break again.json::<Value>().await.unwrap();
            }
        }
    };
    let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "echo: hold on");
}

#[tokio::test]
async fn models_are_the_tenants_agents() {
    let world = World::start().await.unwrap();
    world.agent(&world.anna, "coach", QueueMode::Steer).await.unwrap();

    let list: Value =
        world.get(&world.anna, "/v1/models").send().await.unwrap().json().await.unwrap();
    let one = world.get(&world.anna, "/v1/models/holdfast/coach").send().await.unwrap();
    let none = world.get(&world.ben, "/v1/models/holdfast/coach").send().await.unwrap();
    let wanted = body(json!({"model": "holdfast/coach"}));
    let answer = world.post(&world.anna, "/v1/chat/completions").json(&wanted).send();

    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["holdfast", "holdfast/main", "holdfast/coach"]);
    let one = one.json::<Value>().await.unwrap();
    assert_eq!(one["id"], "holdfast/coach");
    assert_eq!(one, list["data"][2]);
    assert_eq!(none.status(), 404);
    assert_eq!(none.json::<Value>().await.unwrap()["error"]["code"], "model_not_found");
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_model_tells_its_context_and_its_abilities_if_they_are_known() {
    let world = World::start().await.unwrap();
    let (directory, tenant) = (&world.directory, world.anna.id);
    let name = AgentName::new("seer");
    let new = NewAgent { name, model: Some("demo:seer".to_owned()), ..NewAgent::default() };
    directory.agents().create(tenant, Actor::Operator, new).await.unwrap();
    let card = ModelCard { context: 8_192, max_output: 512, images: true, ..ModelCard::default() };
    let seen = async || {
        let one = world.get(&world.anna, "/v1/models/holdfast/seer").send().await.unwrap();
        one.json::<Value>().await.unwrap()
    };

    let unknown = seen().await;
    let model = "demo:seer".parse().unwrap();
    directory.models().put(tenant, Actor::Operator, &model, &card).await.unwrap();
    let known = seen().await;

    assert_eq!(unknown["context_length"], Value::Null);
    assert_eq!(
        (&known["context_length"], &known["max_output_tokens"]),
        (&json!(8_192), &json!(512))
    );
    let can =
        |model: &Value, what: &str| model["abilities"].as_array().unwrap().contains(&json!(what));
    assert!(can(&known, "image_input") && can(&known, "tools") && !can(&known, "reasoning"));
    assert!(can(&unknown, "tools") && !can(&unknown, "image_input"));
}

#[tokio::test]
async fn a_picture_in_a_message_is_kept_and_named_in_it() {
    let world = World::start().await.unwrap();
    // Image of a single dot.
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let url = format!("data:image/png;base64,{png}");
    let content =
        json!([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]);
    let body = json!({"model": "holdfast", "user": "pictures",
        "messages": [{"role": "user", "content": content}]});

    let answer = world.post(&world.anna, "/v1/chat/completions").json(&body).send().await.unwrap();

    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    let filter = holdfast_session::SessionFilter { limit: 10, ..Default::default() };
    let session =
        world.sessions.views().sessions(world.anna.id, filter).await.unwrap().remove(0).id;
    let journal = world.sessions.views().history(world.anna.id, session, 10, None).await.unwrap();
    let heard = serde_json::to_value(&journal[0].entry).unwrap();
    let file = &heard["body"]["attachments"][0]["file"];
    assert_eq!((&file["media_type"], &file["size"]), (&json!("image/png"), &json!(70)));
    assert!(!heard.to_string().contains(&png[..20]), "the journal holds the picture");
}
