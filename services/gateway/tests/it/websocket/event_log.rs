//! Subscriptions to the durable log of events.

use std::{collections::BTreeMap, time::Duration};

use gateway::Config;
use holdfast_proto::gateway::v1::{EventFilter, SendRequest};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{
    client::{Client, connect_params, hello},
    until_metric,
};
use crate::{
    events::{earliest, log_events, read},
    world::{PATIENCE, Tenant, World, message},
};

/// Next frame of a subscription, keep-alives included.
async fn logged(client: &mut Client) -> anyhow::Result<Value> {
    let frame = client.event(|frame| frame["event"] == "events.log").await?;
    Ok(frame["payload"].clone())
}

/// Next frame of a subscription that is no keep-alive.
async fn news(client: &mut Client) -> anyhow::Result<Value> {
    loop {
        let payload = logged(client).await?;
        if payload.get("event").or(payload.get("error")).is_some() {
            return Ok(payload);
        }
    }
}

/// Adds the ids of events that come until there are 240 or the connection ends.
async fn hear(client: &mut Client, cursor: &mut String, heard: &mut Vec<Value>) {
    while heard.len() < 240
        && let Ok(payload) = logged(client).await
    {
        *cursor = payload["cursor"].as_str().unwrap().to_owned();
        heard.extend(payload.get("event").map(|event| event["id"].clone()));
    }
}

async fn subscribe(client: &mut Client, params: Value) -> Value {
    client.call("events.log.subscribe", params).await.unwrap().unwrap()
}

/// Sends a message to a session and waits for its answer.
async fn say(world: &World, of: &Tenant, session: &str, text: &str) -> String {
    let request = SendRequest { session: session.to_owned(), ..message(text) };
    let sent = world.send(of, request).await.unwrap();
    world.follow(of, &sent.message_id).await.unwrap();
    sent.session_id
}

/// All events of a tenant's log, as a subscriber that reads to the end gets them.
async fn all(world: &World, of: &Tenant, count: usize) -> Vec<Value> {
    let mut client = Client::openclaw(world.http, &of.key).await.unwrap();
    subscribe(&mut client, json!({ "start": "earliest" })).await;
    let mut found = Vec::new();
    while found.len() < count {
        let payload = logged(&mut client).await.unwrap();
        found.extend(payload.get("event").cloned());
    }
    found
}

#[tokio::test]
async fn every_event_comes_though_the_connection_is_killed_again_and_again() {
    let world = World::start().await.unwrap();
    let talk = async {
        for n in 0..4 {
            for session in ["one", "two", "three"] {
                let text = format!("hi {n}");
                let annas = say(&world, &world.anna, session, &text);
                tokio::join!(annas, say(&world, &world.ben, session, &text));
            }
            log_events(&world).await;
        }
    };
    // Five events for each of the twelve messages.
    let listen = async |of: &Tenant| {
        let (mut cursor, mut heard, mut connections) = (String::new(), Vec::new(), 0);
        while heard.len() < 60 {
            let mut client = Client::openclaw(world.http, &of.key).await.unwrap();
            let params = match cursor.as_str() {
                "" => json!({ "start": "earliest" }),
                cursor => json!({ "cursor": cursor }),
            };
            subscribe(&mut client, params).await;
            connections += 1;
            // The client is gone without a word, with events on their way.
            for _ in 0..(connections * 5 % 7 + 1) {
                let payload = logged(&mut client).await.unwrap();
                cursor = payload["cursor"].as_str().unwrap().to_owned();
                if let Some(event) = payload.get("event") {
                    heard.push(event.clone());
                }
                if heard.len() == 60 {
                    break;
                }
            }
        }
        assert!(connections > 10, "{connections}");
        heard
    };

    let (annas, bens, ()) = tokio::join!(
        timeout(4 * PATIENCE, listen(&world.anna)),
        timeout(4 * PATIENCE, listen(&world.ben)),
        talk,
    );

    for (heard, of) in [(annas.unwrap(), &world.anna), (bens.unwrap(), &world.ben)] {
        let kept = all(&world, of, 60).await;
        // A cursor is stored when its event was handled, so here each came once.
        assert_eq!(heard, kept);
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for event in &heard {
            let session = event["session"].as_str().unwrap();
            kinds.entry(session).or_default().push(event["type"].as_str().unwrap());
        }
        assert_eq!(kinds.len(), 3);
        let turn =
            ["message.accepted", "run.started", "run.ended", "usage.recorded", "message.answered"];
        assert!(kinds.values().all(|kinds| kinds.chunks(5).all(|one| one == turn)), "{kinds:?}");
        assert!(heard.iter().all(|event| event["schema_version"] == 1 && event["text"].is_null()));
    }
}

#[tokio::test]
async fn a_filter_and_the_right_to_read_decide_what_a_subscriber_gets() {
    let world = World::start().await.unwrap();
    let first = say(&world, &world.anna, "one", "the word is plum").await;
    say(&world, &world.anna, "two", "hello").await;
    log_events(&world).await;
    let key = async |scopes: &[&str]| world.key(&world.anna, scopes, None).await.unwrap();

    // A key for events alone gets ids, and no text.
    let (mut client, hello_ok) =
        Client::connect(world.http, connect_params(&key(&["events"]).await)).await.unwrap();
    let hello_ok = hello_ok.unwrap();
    assert_eq!(hello_ok["auth"]["scopes"], json!(["operator.events"]));
    let methods = hello_ok["features"]["methods"].as_array().unwrap();
    assert!(methods.contains(&json!("events.log.subscribe")), "{methods:?}");
    let params = json!({
        "start": "earliest",
        "types": ["message."],
        "agentId": "main",
        "sessionKey": first,
        "subscription": "mine",
    });
    let answer = subscribe(&mut client, params.clone()).await;
    assert_eq!(answer, json!({ "subscription": "mine", "cursor": "evc1_0" }));
    for kind in ["message.accepted", "message.answered"] {
        let payload = news(&mut client).await.unwrap();
        assert_eq!(payload["subscription"], "mine");
        assert_eq!(
            (&payload["event"]["type"], &payload["event"]["session"]),
            (&json!(kind), &json!(first))
        );
        assert_eq!(
            (&payload["cursor"], payload["event"].get("text")),
            (&payload["event"]["id"], None)
        );
    }
    let mut with_content = params.clone();
    with_content["includeContent"] = json!(true);
    let refused = client.call("events.log.subscribe", with_content.clone()).await.unwrap();
    assert_eq!(refused.unwrap_err()["details"]["missingScope"], "operator.read");

    let mut reader = Client::openclaw(world.http, &key(&["read"]).await).await.unwrap();
    subscribe(&mut reader, with_content).await;
    for text in ["the word is plum", "echo: the word is plum"] {
        assert_eq!(news(&mut reader).await.unwrap()["event"]["text"], text);
    }
    let mut talker = Client::openclaw(world.http, &key(&["chat"]).await).await.unwrap();
    let refused = talker.call("events.log.subscribe", params.clone()).await.unwrap().unwrap_err();
    assert_eq!(refused["details"]["missingScope"], "operator.events");
    // Anna's session is none of Ben's.
    let mut ben = Client::openclaw(world.http, &world.ben.key).await.unwrap();
    let foreign = ben.call("events.log.subscribe", params).await.unwrap().unwrap_err();
    assert!(foreign["message"].as_str().unwrap().contains("there is no session"), "{foreign}");
}

#[tokio::test]
async fn a_client_of_lurkbot_subscribes_beside_its_filter_of_events() {
    let world = World::start().await.unwrap();
    let (mut client, _) = Client::lurkbot(world.http, hello(&world.anna.key)).await.unwrap();
    for (id, method, params) in [
        ("1", "events.subscribe", json!({ "events": ["cron."] })),
        ("2", "events.log.subscribe", json!({ "types": ["run.ended"] })),
    ] {
        let frame = json!({ "id": id, "type": "request", "method": method, "params": params });
        client.send(&frame).await.unwrap();
        assert_eq!(client.frame().await.unwrap()["id"], id);
    }
    say(&world, &world.anna, "one", "hi").await;
    log_events(&world).await;

    let mut frame = client.frame().await.unwrap();
    while frame["event"] == "events.log" && frame["payload"].get("event").is_none() {
        frame = client.frame().await.unwrap();
    }

    assert_eq!((&frame["type"], &frame["event"]), (&json!("event"), &json!("events.log")));
    assert_eq!(frame["payload"]["event"]["type"], "run.ended");
}

#[tokio::test]
async fn a_subscription_that_is_wrong_is_refused_and_one_that_ended_sends_nothing() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let refused = async |client: &mut Client, params: Value| {
        client.call("events.log.subscribe", params).await.unwrap().unwrap_err()
    };

    let far = refused(&mut client, json!({ "cursor": "evc1_ffff" })).await;
    assert_eq!(
        (&far["code"], &far["details"]["code"]),
        (&json!("INVALID_REQUEST"), &json!("CURSOR_OUT_OF_RANGE"))
    );
    let bad = refused(&mut client, json!({ "cursor": "4711" })).await;
    assert!(bad["message"].as_str().unwrap().contains("`cursor`"), "{bad}");
    let start = refused(&mut client, json!({ "start": "yesterday" })).await;
    assert!(start["message"].as_str().unwrap().contains("start: unknown variant"), "{start}");
    for n in 0..8 {
        subscribe(&mut client, json!({ "subscription": n.to_string() })).await;
    }
    let ninth = refused(&mut client, json!({})).await;
    assert!(ninth["message"].as_str().unwrap().contains("end one"), "{ninth}");
    // One of the same name takes the place of the other.
    subscribe(&mut client, json!({ "subscription": "7", "types": ["run.ended"] })).await;
    for n in 0..7 {
        let named = json!({ "subscription": n.to_string() });
        let answer = client.call("events.log.unsubscribe", named).await.unwrap().unwrap();
        assert_eq!(answer["unsubscribed"], true);
    }
    let unknown = json!({ "subscription": "no such" });
    let answer = client.call("events.log.unsubscribe", unknown).await.unwrap().unwrap();
    assert_eq!(answer["unsubscribed"], false);

    say(&world, &world.anna, "one", "hi").await;
    log_events(&world).await;

    let payload = news(&mut client).await.unwrap();
    assert_eq!(
        (&payload["subscription"], &payload["event"]["type"]),
        (&json!("7"), &json!("run.ended"))
    );
    let more = timeout(Duration::from_secs(1), news(&mut client)).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_is_cut_off_slows_nobody_and_goes_on_later() {
    // A client that does not read counts as gone after three intervals.
    let often = |config: &mut Config| {
        config.gateway.websocket.tick_interval = Duration::from_secs(3);
    };
    let world = World::start_with(often).await.unwrap();
    // More than the buffers of the sockets hold, with the answers.
    let text = "x".repeat(200_000);
    for n in 0..8 {
        let sessions: Vec<String> = (0..6).map(|m| format!("s{n}-{m}")).collect();
        let told = sessions.iter().map(|session| say(&world, &world.anna, session, &text));
        futures::future::join_all(told).await;
        log_events(&world).await;
    }
    let mut slow = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let params = json!({ "start": "earliest", "includeContent": true });
    subscribe(&mut slow, params.clone()).await;

    sleep(Duration::from_secs(5)).await;
    let begun = Instant::now();
    say(&world, &world.anna, "quick", "hi").await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    until_metric(&world, "holdfast_gateway_websocket_connections 0").await;

    let (mut cursor, mut heard) = (String::new(), Vec::new());
    hear(&mut slow, &mut cursor, &mut heard).await;
    assert!((1..240).contains(&heard.len()), "it was not cut off: {}", heard.len());
    while heard.len() < 240 {
        // On a slow machine this connection may be cut off, too.
        let mut again = Client::openclaw(world.http, &world.anna.key).await.unwrap();
        subscribe(&mut again, json!({ "cursor": cursor, "includeContent": true })).await;
        hear(&mut again, &mut cursor, &mut heard).await;
    }
    let kept = read(&world, &world.anna, earliest(EventFilter::default())).await.unwrap();
    assert_eq!(heard, kept.iter().map(|event| json!(event.id)).collect::<Vec<_>>());
}
