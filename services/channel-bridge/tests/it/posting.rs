//! Bot whose updates Telegram posts to us.

use holdfast_testkit::telegram::Incoming;
use serde_json::json;
use tonic::Status;

use crate::programs::described;
use crate::world::{TOKEN, World, eventually};

const HOOK: &str = "a-webhook-secret-of-ours";

#[tokio::test]
async fn telegram_is_told_where_to_call_and_calls_again_until_the_gateway_has_it() {
    let world = World::new().await;
    let (settings, secrets) =
        (json!({"mode": "webhook", "allow": [7]}), json!({"token": TOKEN, "webhook_secret": HOOK}));
    world.account("telegram", settings, secrets).await;
    // The port is known only once it is bound: one bridge serves, and another registers its URL.
    let serving = world.bridge().await;
    let mut config = world.config.clone();
    config.bridge.public_url = Some(serving.url.clone());
    let registering = world.bridge_with(config).await;
    world.gateway.refuse(Some(Status::unavailable("restarting")));

    world.telegram.push(TOKEN, Incoming::private(7, "hello"));
    eventually("it was offered", async || world.gateway.calls() > 1).await;
    assert_eq!(world.telegram.pending(TOKEN), 1);
    world.gateway.refuse(None);
    world.taken(1).await;
    world.confirmed().await;

    assert_eq!(world.gateway.texts(), ["hello"]);
    serving.stop().await;
    registering.stop().await;
}

#[tokio::test]
async fn whoever_has_not_the_secret_gets_nowhere() {
    let world = World::new().await;
    let (settings, secrets) = (
        json!({"mode": "webhook", "allow": ["*"]}),
        json!({"token": TOKEN, "webhook_secret": HOOK}),
    );
    let account = world.account("telegram", settings, secrets).await;
    let bridge = world.bridge().await;
    let update = json!({"update_id": 1, "message": {"message_id": 1, "date": 1, "text": "hi",
        "chat": {"id": 7, "type": "private"}, "from": {"id": 7, "first_name": "A"}}});
    let post = async |account: &str, secret: Option<&str>| {
        let mut request =
            reqwest::Client::new().post(format!("{}/telegram/{account}", bridge.url)).json(&update);
        if let Some(secret) = secret {
            request = request.header("X-Telegram-Bot-Api-Secret-Token", secret);
        }
        let answer = request.send().await.unwrap();
        described("post /telegram/{account}", answer).await
    };
    let ours = account.id.to_string();
    let nobodys = holdfast_types::AccountId::generate().to_string();

    let refused = (401, r#"{"error":"not authenticated"}"#.to_owned());
    assert_eq!(post(&ours, None).await, refused);
    assert_eq!(post(&ours, Some("a-webhook-secret-of-theirs")).await, refused);
    assert_eq!(post(&nobodys, Some(HOOK)).await, refused);
    assert_eq!(post("nonsense", Some(HOOK)).await, refused);
    assert_eq!(world.gateway.calls(), 0);
    assert_eq!(post(&ours, Some(HOOK)).await.0, 200);
    assert_eq!(world.gateway.texts(), ["hi"]);
    bridge.stop().await;
}

#[tokio::test]
async fn a_body_that_is_none_does_not_come_again_for_ever() {
    let world = World::new().await;
    let (settings, secrets) = (
        json!({"mode": "webhook", "allow": ["*"]}),
        json!({"token": TOKEN, "webhook_secret": HOOK}),
    );
    let account = world.account("telegram", settings, secrets).await;
    let bridge = world.bridge().await;

    for body in ["", "{", "[]", r#"{"update_id": 1, "message": {}}"#] {
        let answer = reqwest::Client::new()
            .post(format!("{}/telegram/{}", bridge.url, account.id))
            .header("X-Telegram-Bot-Api-Secret-Token", HOOK)
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{body}");
    }
    bridge.stop().await;
}
