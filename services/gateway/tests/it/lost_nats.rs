//! Without NATS everything is still answered, with a short delay.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{World, chunks, done, message};

/// Much longer than the second of silence before a journal query, plus a turn.
const SOON: Duration = Duration::from_secs(30);

async fn without_nats() -> World {
    // Nothing listens on port 1.
    let world = World::start_with(|config| config.nats.url = "nats://127.0.0.1:1".into());
    world.await.unwrap()
}

#[tokio::test]
async fn a_message_is_answered_by_the_journal() {
    let world = without_nats().await;
    let began = Instant::now();

    let events = world.stream(&world.anna, message("hi")).await.unwrap();

    assert_eq!(done(&events).text, "echo: hi");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_completion_and_a_stream_are_answered_by_the_journal() {
    let world = without_nats().await;
    let began = Instant::now();

    let answer = world.say(&world.anna, "u", "hi").await.unwrap();
    let first = began.elapsed();
    let body = json!({
        "model": "holdfast",
        "stream": true,
        "messages": [{"role": "user", "content": "hi"}],
    });
    let response = world.post(&world.anna, "/v1/chat/completions").json(&body).send().await;
    let chunks = chunks(response.unwrap()).await.unwrap();

    assert_eq!(answer["choices"][0]["message"]["content"], "echo: hi");
    assert_eq!(chunks[1]["choices"][0]["delta"]["content"], "echo: hi");
    assert!(first < SOON && began.elapsed() - first < SOON, "{first:?} {:?}", began.elapsed());
}

#[tokio::test]
async fn a_turn_whose_news_are_all_lost_is_answered_by_the_journal() {
    let world = World::start().await.unwrap();
    let began = Instant::now();

    let events = world.stream(&world.anna, message("quiet please")).await.unwrap();

    assert_eq!(done(&events).text, "echo: quiet please");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn with_nats_nobody_waits_for_the_journal() {
    let world = World::start().await.unwrap();
    world.stream(&world.anna, message("warm up")).await.unwrap();

    let mut took = Vec::new();
    for n in 0..10 {
        let began = Instant::now();
        world.stream(&world.anna, message(&format!("hi {n}"))).await.unwrap();
        took.push(began.elapsed());
    }

    // A client that waits for the journal needs at least that second of silence.
    assert!(took.iter().any(|took| *took < Duration::from_secs(1)), "{took:?}");
}
