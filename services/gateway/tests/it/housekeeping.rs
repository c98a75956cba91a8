//! Housekeeping requests of front ends.

use reqwest::Response;
use serde_json::{Value, json};

use crate::world::{World, chunks};

/// A request as Open WebUI's default templates make it.
const TITLE: &str = "### Task:\nGenerate a concise title.\n### Output:\nJSON format\n\
                     ### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>";

const SESSIONS: &str = "select count(*) from session.sessions";

async fn ask(world: &World, extra: Value) -> Response {
    let mut body = json!({
        "model": "holdfast", "user": "anna", "messages": [{"role": "user", "content": TITLE}],
    });
    for (name, value) in extra.as_object().unwrap() {
        body[name] = value.clone();
    }
    world.post(&world.anna, "/v1/chat/completions").json(&body).send().await.unwrap()
}

#[tokio::test]
async fn a_title_is_no_part_of_the_users_conversation_and_leaves_no_session() {
    let world = World::start().await.unwrap();
    world.say(&world.anna, "anna", "first").await.unwrap();

    let answer: Value = ask(&world, json!({})).await.json().await.unwrap();
    let streamed = chunks(ask(&world, json!({"stream": true})).await).await.unwrap();

    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("echo: ### Task:"), "{text}");
    assert!(streamed.len() > 3, "{streamed:?}");
    assert_eq!(world.number(SESSIONS).await.unwrap(), 1, "the user's own");
    let runs = world.number("select count(*) from session.runs").await.unwrap();
    assert_eq!(runs, 3, "what it used is counted");
    let next = world.say(&world.anna, "anna", "history").await.unwrap();
    let history = next["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(history, "user=first; assistant=echo: first; user=history");
}

/// As LibreChat labels the calls of an agent.
#[tokio::test]
async fn a_label_of_an_activity_leaves_no_session() {
    let world = World::start().await.unwrap();
    let label = "Write a short label describing what this block of agent activity accomplished.";
    let subject = "Tool: get_weather";
    let messages =
        json!([{"role": "system", "content": label}, {"role": "user", "content": subject}]);

    let answer: Value = ask(&world, json!({ "messages": messages })).await.json().await.unwrap();

    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("echo: ") && text.contains(subject), "{text}");
    assert_eq!(world.number(SESSIONS).await.unwrap(), 0);
}

#[tokio::test]
async fn the_runner_is_told_that_a_request_is_housekeeping() {
    let world = World::start().await.unwrap();
    for (task, is_housekeeping) in
        [(None, false), (Some("housekeeping"), true), (Some("chat"), false)]
    {
        let messages = json!([{"role": "user", "content": "options"}]);
        let body = json!({"model": "holdfast", "messages": messages});
        let mut request = world.post(&world.anna, "/v1/chat/completions").json(&body);
        if let Some(task) = task {
            request = request.header("x-holdfast-task", task);
        }

        let answer: Value = request.send().await.unwrap().json().await.unwrap();

        let options = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert_eq!(options.contains(r#""is_housekeeping":true"#), is_housekeeping, "{options}");
    }
}

#[tokio::test]
async fn a_request_with_tools_or_with_the_header_for_a_chat_is_the_users() {
    let world = World::start().await.unwrap();
    let tool = json!({"type": "function", "function": {"name": "look"}});

    assert_eq!(ask(&world, json!({"tools": [tool]})).await.status(), 200);

    assert_eq!(world.number(SESSIONS).await.unwrap(), 1);
    let refused =
        world.post(&world.anna, "/v1/chat/completions").header("x-holdfast-task", "title");
    let body = json!({"model": "holdfast", "messages": [{"role": "user", "content": "hi"}]});
    let refused = refused.json(&body).send().await.unwrap();
    assert_eq!(refused.status(), 400);
}

#[tokio::test]
async fn a_key_without_the_right_may_not_keep_house_either() {
    let world = World::start().await.unwrap();
    let reads = world.anna.by(&world.key(&world.anna, &["read"], None).await.unwrap());
    let body = json!({"model": "holdfast", "messages": [{"role": "user", "content": TITLE}]});

    let refused = world.post(&reads, "/v1/chat/completions").json(&body).send().await.unwrap();

    assert_eq!(refused.status(), 403);
    assert_eq!(world.number(SESSIONS).await.unwrap(), 0);
}
