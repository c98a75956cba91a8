//! A repeated request gets the same answer, and changes nothing.

use holdfast_proto::gateway::v1::SendRequest;
use serde_json::{Value, json};
use tonic::Code;

use crate::world::{World, chunks, done, message};

fn keyed(request_id: &str, text: &str) -> SendRequest {
    SendRequest { request_id: request_id.to_owned(), ..message(text) }
}

#[tokio::test]
async fn the_same_request_is_accepted_once() {
    let world = World::start().await.unwrap();

    let first = world.send(&world.anna, keyed("a", "hi")).await.unwrap();
    let again = world.send(&world.anna, keyed("a", "hi")).await.unwrap();
    let followed = world.stream(&world.anna, keyed("a", "hi")).await.unwrap();

    assert!(!first.duplicate && again.duplicate);
    assert_eq!((again.message_id, again.seq), (first.message_id, first.seq));
    assert_eq!(done(&followed).text, "echo: hi");
}

#[tokio::test]
async fn the_same_key_with_another_request_is_refused() {
    let world = World::start().await.unwrap();
    world.send(&world.anna, keyed("a", "hi")).await.unwrap();

    let other_text = world.send(&world.anna, keyed("a", "ho")).await.unwrap_err();
    let other_session = SendRequest { session: "else".into(), ..keyed("a", "hi") };
    let other_session = world.send(&world.anna, other_session).await.unwrap_err();

    for refused in [other_text, other_session] {
        assert_eq!(refused.code(), Code::Aborted);
        assert!(refused.message().contains("use a new key"), "{}", refused.message());
    }
}

#[tokio::test]
async fn many_at_once_with_one_key_are_one() {
    let world = World::start().await.unwrap();

    let sends = (0..8).map(|_| world.send(&world.anna, keyed("a", "hi")));
    let sent = futures::future::try_join_all(sends).await.unwrap();

    assert_eq!(sent.iter().filter(|sent| !sent.duplicate).count(), 1);
    assert!(sent.iter().all(|other| other.message_id == sent[0].message_id));
}

/// Conversation that the client stores itself.
fn completion(last: &str, stream: bool) -> Value {
    json!({
        "model": "holdfast",
        "stream": stream,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": last},
        ],
    })
}

#[tokio::test]
async fn a_completion_that_is_sent_again_brings_the_stored_answer() {
    let world = World::start().await.unwrap();
    let post = |key: &str, body: Value| {
        let request = world.post(&world.anna, "/v1/chat/completions");
        request.header("Idempotency-Key", key).json(&body).send()
    };

    let first: Value = post("k", completion("history", false)).await.unwrap().json().await.unwrap();
    let again: Value = post("k", completion("history", false)).await.unwrap().json().await.unwrap();
    let streamed = chunks(post("k", completion("history", true)).await.unwrap()).await.unwrap();
    let other = post("k", completion("else", false)).await.unwrap();
    let fresh: Value = post("l", completion("history", false)).await.unwrap().json().await.unwrap();

    let answer = "system=be brief; user=a; assistant=b; user=history";
    assert_eq!(first["choices"][0]["message"]["content"], answer);
    assert_eq!(again, first);
    assert_eq!(streamed[1]["choices"][0]["delta"]["content"], answer);
    assert_eq!(streamed[0]["id"], first["id"]);
    assert_eq!(other.status(), 409);
    let other: Value = other.json().await.unwrap();
    assert!(other["error"]["message"].as_str().unwrap().contains("use a new key"), "{other}");
    assert_ne!(fresh["id"], first["id"]);
    assert_eq!(fresh["choices"][0]["message"]["content"], answer);
}

#[tokio::test]
async fn who_is_refused_because_the_database_is_away_is_told_when_to_come_back() {
    let (world, proxy) = World::start_behind_proxy().await.unwrap();
    world.send(&world.anna, message("hi")).await.unwrap();
    proxy.refuse().await.unwrap();
    proxy.cut();

    let refused = world.send(&world.anna, message("ho")).await.unwrap_err();
    let body = json!({"model": "holdfast", "messages": [{"role": "user", "content": "ho"}]});
    let response = world.post(&world.anna, "/v1/chat/completions").json(&body).send().await;
    let response = response.unwrap();

    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(holdfast_grpc::retry_after(&refused), Some(std::time::Duration::from_secs(1)));
    // As `google.rpc.RetryInfo`.
    let details = String::from_utf8_lossy(refused.details()).into_owned();
    assert!(details.contains("google.rpc.RetryInfo"), "{details:?}");
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
}
