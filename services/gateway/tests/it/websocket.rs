//! The WebSocket gateway, with real clients of both protocols.

pub mod access;
pub mod client;
mod devices;
mod event_log;
mod memory;
mod methods;
mod snapshot;
pub mod sweep;

use std::{collections::BTreeSet, time::Duration};

use gateway::Config;
use holdfast_directory::{Actor, TenantChanges};
use holdfast_proto::gateway::v1::{
    AddJobRequest, GetJobRequest, schedules_client::SchedulesClient,
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use self::client::{Client, connect_params, hello, is_end, text_of};
use crate::world::{PATIENCE, World, until};

/// Sends a message as a client of OpenClaw, and returns the last event of its turn.
async fn chat(client: &mut Client, key: &str, text: &str, id: &str) -> Value {
    let params = json!({ "sessionKey": key, "message": text, "idempotencyKey": id });
    let started = client.call("chat.send", params).await.unwrap().unwrap();
    assert_eq!(started["runId"], id);
    client.chat_end(id).await.unwrap()
}

/// Ticks come at any time.
fn is_no_tick(frame: &Value) -> bool {
    frame["event"] != "tick"
}

/// Waits until the metrics of the process have this line.
async fn until_metric(world: &World, line: &str) {
    let shown = async || {
        let metrics = world.client.get(world.url("/metrics")).send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        metrics.lines().any(|shown| shown == line).then_some(())
    };
    until(shown).await;
}

#[tokio::test]
async fn a_client_of_openclaw_connects_chats_and_reads_what_was_said() {
    let world = World::start().await.unwrap();
    let params = connect_params(&world.anna.key);
    let (mut client, hello) = Client::connect(world.http, params).await.unwrap();
    let hello = hello.unwrap();

    assert_eq!((&hello["protocol"], &hello["auth"]["role"]), (&json!(4), &json!("operator")));
    assert!(hello["features"]["methods"].as_array().unwrap().contains(&json!("chat.send")));
    assert_eq!(hello["snapshot"]["sessionDefaults"]["mainSessionKey"], "agent:main:main");

    let end = chat(&mut client, "main", "hi", "k1").await;

    assert_eq!((&end["state"], &end["sessionKey"]), (&json!("final"), &json!("agent:main:main")));
    assert_eq!(text_of(&end["message"]), "echo: hi");
    let history = client.call("chat.history", json!({ "sessionKey": "main" })).await.unwrap();
    let history = history.unwrap();
    let texts: Vec<String> = history["messages"].as_array().unwrap().iter().map(text_of).collect();
    assert_eq!(texts, ["hi", "echo: hi"]);
    assert_eq!(history["sessionInfo"]["key"], "agent:main:main");
}

#[tokio::test]
async fn a_turn_is_told_as_it_runs_with_numbers_without_a_gap() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();

    let params = json!({ "sessionKey": "main", "message": "tool please", "idempotencyKey": "k" });
    client.call("chat.send", params).await.unwrap().unwrap();
    let mut frames = std::mem::take(&mut client.events);
    let is_end = |frame: &Value| frame["payload"]["state"] == "final";
    while !frames.last().is_some_and(is_end) {
        frames.push(client.frame().await.unwrap());
    }

    let seqs: Vec<u64> = frames.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let streams: Vec<&str> = frames
        .iter()
        .filter(|frame| frame["event"] == "agent")
        .map(|frame| frame["payload"]["stream"].as_str().unwrap())
        .collect();
    let kinds: BTreeSet<&str> = streams.iter().copied().collect();
    assert_eq!(kinds, BTreeSet::from(["assistant", "lifecycle", "tool"]));
    assert_eq!((streams[0], streams[streams.len() - 1]), ("lifecycle", "lifecycle"));
    let deltas: Vec<&Value> = frames
        .iter()
        .filter(|frame| frame["payload"]["state"] == "delta")
        .map(|frame| &frame["payload"])
        .collect();
    // The text of the second step takes the place of the first one's.
    assert_eq!(deltas[0]["deltaText"], "let me see");
    assert!(deltas.iter().any(|delta| delta["replace"] == true));
    assert_eq!(text_of(&deltas[deltas.len() - 1]["message"]), "echo: tool please");
}

#[tokio::test]
async fn a_step_of_a_behavior_has_a_stream_of_its_own() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();

    let params =
        json!({ "sessionKey": "main", "message": "progress please", "idempotencyKey": "k" });
    client.call("chat.send", params).await.unwrap().unwrap();
    let step = client.event(|frame| frame["payload"]["stream"] == "step").await.unwrap();

    let expected = json!({
        "behavior": "DO", "step": 2, "todo": "T001", "todosDone": 1, "todos": 3,
        "costMicros": 20_000,
    });
    assert_eq!(step["payload"]["data"], expected);
}

#[tokio::test]
async fn a_turn_that_another_client_began_is_told_too() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let mut stranger = Client::openclaw(world.http, &world.ben.key).await.unwrap();

    let sent = world.send(&world.anna, crate::world::message("from gRPC")).await.unwrap();

    let run = sent.message_id.replace("msg_", "run_");
    let end = client.chat_end(&run).await.unwrap();
    assert_eq!(text_of(&end["message"]), "echo: from gRPC");
    let told = timeout(Duration::from_millis(500), stranger.event(is_no_tick)).await;
    assert!(told.is_err(), "{told:?}");
}

#[tokio::test]
async fn changes_of_sessions_are_told_to_clients_that_subscribe_to_them() {
    let world = World::start().await.unwrap();
    let mut talker = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let mut watcher = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let is_change = |frame: &Value| frame["event"] == "sessions.changed";
    done(&mut watcher, "sessions.subscribe", json!({})).await;

    chat(&mut talker, "main", "hi", "k1").await;
    let change = watcher.event(is_change).await.unwrap();
    assert_eq!(change["payload"]["sessionKey"], "agent:main:main");
    let patch = json!({ "key": "agent:main:main", "label": "Trains" });
    done(&mut talker, "sessions.patch", patch.clone()).await;
    assert_eq!(watcher.event(is_change).await.unwrap()["payload"]["reason"], "patch");

    done(&mut watcher, "sessions.unsubscribe", json!({})).await;
    done(&mut talker, "sessions.patch", patch).await;
    // The answers come behind what was told before them.
    for client in [&mut talker, &mut watcher] {
        done(client, "health", json!({})).await;
        assert!(!client.events.iter().any(is_change), "{:?}", client.events);
    }
}

#[tokio::test]
async fn a_session_scoped_client_is_told_of_its_own_turns_and_of_sessions_it_subscribes_to() {
    let world = World::start().await.unwrap();
    let mut params = connect_params(&world.anna.key);
    params["caps"] = json!(["session-scoped-events"]);
    let scoped = async || Client::connect(world.http, params.clone()).await.unwrap().0;
    let (mut talker, mut listener, mut other) = (scoped().await, scoped().await, scoped().await);
    let key = json!({ "key": "agent:main:main" });
    done(&mut listener, "sessions.messages.subscribe", key.clone()).await;

    assert_eq!(chat(&mut talker, "main", "hi", "k1").await["state"], "final");
    assert_eq!(listener.chat_end("k1").await.unwrap()["state"], "final");
    done(&mut other, "health", json!({})).await;
    assert!(!other.events.iter().any(|frame| is_end(frame, "k1")), "{:?}", other.events);

    done(&mut listener, "sessions.messages.unsubscribe", key).await;
    chat(&mut talker, "main", "hi again", "k2").await;
    done(&mut listener, "health", json!({})).await;
    assert!(!listener.events.iter().any(|frame| is_end(frame, "k2")), "{:?}", listener.events);
}

#[tokio::test]
async fn a_missed_answer_is_read_by_the_cursor_after_a_reconnect() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    chat(&mut client, "main", "first", "k1").await;
    let history = client.call("chat.history", json!({ "sessionKey": "main" })).await.unwrap();
    let cursor = history.unwrap()["deltaCursor"].clone();
    let params = json!({ "sessionKey": "main", "message": "hold it", "idempotencyKey": "k2" });
    client.call("chat.send", params).await.unwrap().unwrap();
    drop(client);
    world.runner.release(1);

    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let waited = client.call("agent.wait", json!({ "runId": "k2", "timeoutMs": 20_000 })).await;
    assert_eq!(waited.unwrap().unwrap()["status"], "ok");
    let params = json!({ "sessionKey": "main", "cursor": cursor });
    let missed = client.call("chat.history", params).await.unwrap().unwrap();

    assert_eq!(missed["kind"], "delta");
    let texts: Vec<String> = missed["messages"].as_array().unwrap().iter().map(text_of).collect();
    assert_eq!(texts, ["hold it", "echo: hold it"]);
}

#[tokio::test]
async fn a_client_that_reconnects_gets_the_text_of_the_running_turn_so_far() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let params =
        json!({ "sessionKey": "main", "message": "linger a while", "idempotencyKey": "k" });
    client.call("chat.send", params).await.unwrap().unwrap();
    let is_whole = |frame: &Value| text_of(&frame["payload"]["message"]) == "echo: linger a while";
    client.event(|frame| frame["event"] == "chat" && is_whole(frame)).await.unwrap();
    // It was the tenant's only connection.
    drop(client);
    sleep(Duration::from_millis(500)).await;

    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let missed = client.event(|frame| frame["event"] == "chat").await.unwrap();
    let payload = &missed["payload"];
    assert_eq!((&payload["state"], &payload["replace"]), (&json!("delta"), &json!(true)));
    assert_eq!(
        (&payload["runId"], &payload["deltaText"]),
        (&json!("k"), &json!("echo: linger a while"))
    );
    assert!(is_whole(&missed));
    // A client that wants single sessions gets it with its subscription.
    let mut params = connect_params(&world.anna.key);
    params["caps"] = json!(["session-scoped-events"]);
    let (mut scoped, _) = Client::connect(world.http, params).await.unwrap();
    scoped.call("health", json!({})).await.unwrap().unwrap();
    assert!(scoped.events.iter().all(|frame| frame["event"] != "chat"), "{:?}", scoped.events);
    let key = json!({ "key": "agent:main:main" });
    scoped.call("sessions.messages.subscribe", key).await.unwrap().unwrap();
    assert!(is_whole(&scoped.event(|frame| frame["event"] == "chat").await.unwrap()));

    world.runner.release(1);
    for client in [&mut client, &mut scoped] {
        assert_eq!(client.chat_end("k").await.unwrap()["state"], "final");
    }
    let mut late = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    late.call("health", json!({})).await.unwrap().unwrap();
    assert!(late.events.iter().all(|frame| frame["event"] != "chat"), "{:?}", late.events);
}

#[tokio::test]
async fn a_message_sent_twice_is_answered_once() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let first = chat(&mut client, "main", "hi", "same").await;

    let again = chat(&mut client, "main", "hi", "same").await;

    assert_eq!(text_of(&first["message"]), text_of(&again["message"]));
    let history = client.call("chat.history", json!({ "sessionKey": "main" })).await.unwrap();
    assert_eq!(history.unwrap()["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_agent_call_is_accepted_and_then_answered_under_one_id() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();

    let params = json!({ "message": "hi", "idempotencyKey": "a1", "sessionKey": "agent:main:x" });
    let id = client.begin("agent", params).await.unwrap();
    let accepted = client.response(&id).await.unwrap().unwrap();
    let answer = client.response(&id).await.unwrap().unwrap();

    assert_eq!((&accepted["status"], &accepted["runId"]), (&json!("accepted"), &json!("a1")));
    assert_eq!(accepted["sessionKey"], "agent:main:x");
    assert_eq!((&answer["status"], &answer["summary"]), (&json!("ok"), &json!("completed")));
    assert_eq!(answer["result"]["payloads"][0]["text"], "echo: hi");
}

#[tokio::test]
async fn who_has_no_valid_credential_is_refused_with_the_protocols_code() {
    let world = World::start().await.unwrap();
    let refused = async |params: Value| {
        let (mut client, answer) = Client::connect(world.http, params).await.unwrap();
        let closed = client.closed().await.unwrap().map(|frame| u16::from(frame.code));
        assert_eq!(closed, Some(1008));
        let error = answer.unwrap_err();
        (error["code"].clone(), error["details"]["code"].clone())
    };
    let mut other = world.anna.key.clone();
    other.push('x');
    let mut without = connect_params("");
    without["auth"] = json!({});
    let mut old = connect_params(&world.anna.key);
    old["maxProtocol"] = json!(2);
    old["minProtocol"] = json!(1);
    let mut node = connect_params(&world.anna.key);
    node["role"] = json!("node");

    let invalid = json!("INVALID_REQUEST");
    let mismatch = json!("AUTH_TOKEN_MISMATCH");
    assert_eq!(refused(connect_params(&other)).await, (invalid.clone(), mismatch));
    let missing = json!("AUTH_TOKEN_MISSING");
    assert_eq!(refused(without).await, (invalid.clone(), missing));
    let protocol = json!("PROTOCOL_MISMATCH");
    assert_eq!(refused(old).await, (invalid.clone(), protocol));
    assert_eq!(refused(node).await.0, invalid);

    let mut password = connect_params("");
    password["auth"] = json!({ "password": world.anna.key });
    assert!(Client::connect(world.http, password).await.unwrap().1.is_ok());
    let mut v3 = connect_params(&world.anna.key);
    v3["maxProtocol"] = json!(3);
    assert_eq!(Client::connect(world.http, v3).await.unwrap().1.unwrap()["protocol"], 3);
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_is_cut_off() {
    let short = |config: &mut Config| {
        config.gateway.websocket.handshake_timeout = Duration::from_millis(500);
    };
    let world = World::start_with(short).await.unwrap();
    let reason = async |mut client: Client| {
        client
            .closed()
            .await
            .unwrap()
            .map(|frame| (u16::from(frame.code), frame.reason.to_string()))
    };

    let silent = Client::open(world.http, "/").await.unwrap();
    assert_eq!(reason(silent).await, Some((1008, "no handshake in time".to_owned())));

    // A refusal comes before a short time is over, or does not.
    let world = World::start().await.unwrap();
    let mut large = Client::open(world.http, "/").await.unwrap();
    large.send_text("x".repeat(65 * 1024)).await.unwrap();
    assert!(reason(large).await.is_none_or(|(code, _)| code == 1009));

    let mut early = Client::open(world.http, "/").await.unwrap();
    early.send(&json!({ "type": "req", "id": "1", "method": "health" })).await.unwrap();
    assert_eq!(reason(early).await, Some((1008, "the first request must be `connect`".to_owned())));

    let mut nonsense = Client::open(world.http, "/").await.unwrap();
    nonsense.send(&json!({ "type": "subscribe" })).await.unwrap();
    let told = reason(nonsense).await.unwrap();
    assert_eq!(told.1, "the first frame must be `connect` or `hello`");
}

#[tokio::test]
async fn a_key_may_do_what_its_scopes_say_and_no_more() {
    let world = World::start().await.unwrap();
    let reader = world.key(&world.anna, &["read"], None).await.unwrap();
    let (mut client, hello) = Client::connect(world.http, connect_params(&reader)).await.unwrap();
    let hello = hello.unwrap();

    assert_eq!(hello["auth"]["scopes"], json!(["operator.read"]));
    let methods = hello["features"]["methods"].as_array().unwrap();
    assert!(methods.contains(&json!("sessions.list")) && !methods.contains(&json!("chat.send")));
    let params = json!({ "sessionKey": "main", "message": "hi", "idempotencyKey": "k" });
    let error = client.call("chat.send", params).await.unwrap().unwrap_err();
    assert_eq!(error["code"], "FORBIDDEN");
    assert_eq!(error["details"]["code"], "MISSING_SCOPE");
    assert_eq!(error["details"]["missingScope"], "operator.write");
    assert!(client.call("sessions.list", json!({})).await.unwrap().is_ok());

    let mut narrow = connect_params(&world.anna.key);
    narrow["scopes"] = json!(["operator.read"]);
    let (mut client, hello) = Client::connect(world.http, narrow).await.unwrap();
    assert_eq!(hello.unwrap()["auth"]["scopes"], json!(["operator.read"]));
    let error = client.call("sessions.reset", json!({ "key": "main" })).await.unwrap();
    assert_eq!(error.unwrap_err()["details"]["missingScope"], "operator.admin");
}

#[tokio::test]
async fn a_revoked_key_ends_its_connections() {
    // A client counts as gone after three intervals.
    let often = |config: &mut Config| {
        config.gateway.websocket.tick_interval = Duration::from_secs(5);
    };
    let world = World::start_with(often).await.unwrap();
    let secret = world.key(&world.anna, &["chat", "read"], None).await.unwrap();
    let mut client = Client::openclaw(world.http, &secret).await.unwrap();
    client.event(|frame| frame["event"] == "tick").await.unwrap();

    let keys = world.directory.keys().list(world.anna.id).await.unwrap();
    let newest = keys.last().unwrap().id;
    let operator = holdfast_directory::Actor::Operator;
    world.directory.keys().revoke(world.anna.id, operator, newest).await.unwrap();

    let closed = client.closed().await.unwrap().unwrap();
    assert_eq!(closed.reason.as_str(), "the credential is no longer valid");
}

#[tokio::test]
async fn a_frame_or_a_parameter_that_is_wrong_is_named_and_nothing_ends() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let told = async |client: &mut Client, method: &str, params: Value| {
        let error = client.call(method, params).await.unwrap().unwrap_err();
        assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
        error["message"].as_str().unwrap().to_owned()
    };

    let error = told(&mut client, "sessions.list", json!({ "limit": "many" })).await;
    assert!(error.starts_with("invalid sessions.list params: limit: invalid type"), "{error}");
    let error = told(&mut client, "chat.abort", json!({ "key": "x" })).await;
    assert!(error.contains("unknown field `key`"), "{error}");
    let error = told(&mut client, "chat.send", json!({ "sessionKey": "x", "message": "y" })).await;
    assert!(error.contains("`idempotencyKey`"), "{error}");
    assert_eq!(told(&mut client, "nothing.here", json!({})).await, "unknown method: nothing.here");
    client.send_text("{".to_owned()).await.unwrap();
    let answer = client.frame().await.unwrap();
    assert_eq!((&answer["id"], &answer["ok"]), (&json!("invalid"), &json!(false)));
    client.send(&json!({ "type": "req", "id": "z", "method": 1 })).await.unwrap();
    let answer = client.frame().await.unwrap();
    assert_eq!(answer["id"], "z");
    assert!(answer["error"]["message"].as_str().unwrap().contains("method: invalid type"));

    assert!(client.call("health", json!({})).await.unwrap().is_ok());
}

#[tokio::test]
async fn each_method_of_features_checks_its_parameters() {
    let world = World::start().await.unwrap();
    let params = connect_params(&world.anna.key);
    let (mut client, hello) = Client::connect(world.http, params).await.unwrap();
    let hello = hello.unwrap();
    let methods = hello["features"]["methods"].as_array().unwrap();
    assert!(methods.len() > 50, "{}", methods.len());

    for method in methods {
        let method = method.as_str().unwrap();
        let params = json!({ "noSuchField": 1 });
        let error = client.call(method, params).await.unwrap().expect_err(method);

        let text = error["message"].as_str().unwrap();
        assert_eq!(error["code"], "INVALID_REQUEST", "{method}: {error}");
        assert!(text.starts_with(&format!("invalid {method} params: ")), "{method}: {text}");
        let error = client.call(method, json!([])).await.unwrap().expect_err(method);
        assert!(error["message"].as_str().unwrap().contains("must be an object"), "{method}");
    }
}

#[tokio::test]
async fn a_slow_reader_is_cut_off_and_harms_nobody() {
    let small = |config: &mut Config| config.gateway.websocket.send_buffer = 1024 * 1024;
    let world = World::start_with(small).await.unwrap();
    let mut slow = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let mut quick = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    // Each answer has more than the socket's buffers hold, and none is read.
    chat(&mut quick, "main", &"x".repeat(200_000), "long").await;
    for _ in 0..60 {
        slow.begin("chat.history", json!({ "sessionKey": "main", "maxChars": 250_000 }))
            .await
            .unwrap();
    }
    sleep(Duration::from_millis(500)).await;

    let end = timeout(PATIENCE, chat(&mut quick, "main", "hi", "k2")).await.unwrap();

    assert_eq!(text_of(&end["message"]), "echo: hi");
    // Before that, nothing is read.
    until_metric(&world, "holdfast_gateway_websocket_slow_readers_total 1").await;
    let closed = slow.closed().await.unwrap();
    assert!(closed.is_none_or(|frame| u16::from(frame.code) == 1008));
}

#[tokio::test]
async fn a_tenant_has_so_many_connections_and_others_have_theirs() {
    let few = |config: &mut Config| config.gateway.websocket.connections_per_tenant = 2;
    let world = World::start_with(few).await.unwrap();
    let first = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let _second = Client::openclaw(world.http, &world.anna.key).await.unwrap();

    let params = connect_params(&world.anna.key);
    let (mut third, refused) = Client::connect(world.http, params).await.unwrap();
    let refused = refused.unwrap_err();
    assert_eq!((&refused["code"], &refused["retryable"]), (&json!("UNAVAILABLE"), &json!(true)));
    assert_eq!(u16::from(third.closed().await.unwrap().unwrap().code), 1013);
    Client::openclaw(world.http, &world.ben.key).await.unwrap();

    drop(first);
    let free = async {
        while Client::openclaw(world.http, &world.anna.key).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, free).await.unwrap();
}

#[tokio::test]
async fn idle_sockets_of_one_network_do_not_shut_others_out() {
    let few = |config: &mut Config| {
        let settings = &mut config.gateway.websocket;
        (settings.handshakes, settings.handshakes_per_address) = (20, 3);
        settings.handshake_timeout = PATIENCE;
    };
    let world = World::start_with(few).await.unwrap();
    let open = async |forwarded: &str| Client::open_from(world.http, forwarded).await.unwrap();
    let mut idle = Vec::new();
    for host in 1..=3 {
        idle.push(open(&format!("2606:4700::{host}")).await.unwrap());
    }

    assert_eq!(open("2606:4700::4").await.err(), Some(429));
    // What the client itself writes counts for nothing.
    assert_eq!(open("9.9.9.9, 2606:4700::4").await.err(), Some(429));
    let mut other = open("8.8.8.8").await.unwrap();
    other.call("connect", connect_params(&world.anna.key)).await.unwrap().unwrap();

    idle.clear();
    let free = async {
        while open("2606:4700::4").await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, free).await.unwrap();
}

#[tokio::test]
async fn sockets_without_a_handshake_take_no_place_of_connections() {
    let few = |config: &mut Config| {
        let settings = &mut config.gateway.websocket;
        (settings.connections, settings.connections_per_tenant) = (2, 2);
        settings.handshakes = 3;
        settings.handshake_timeout = PATIENCE;
    };
    let world = World::start_with(few).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..2 {
        idle.push(Client::open(world.http, "/").await.unwrap());
    }

    let _first = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let _second = Client::openclaw(world.http, &world.ben.key).await.unwrap();

    // The places of handshakes are free again, those of connections are not.
    let params = connect_params(&world.ben.key);
    let (_third, refused) = Client::connect(world.http, params).await.unwrap();
    assert_eq!(refused.unwrap_err()["code"], "UNAVAILABLE");
    let full = async {
        loop {
            match Client::open_from(world.http, "8.8.8.8").await.unwrap() {
                Ok(client) => idle.push(client),
                Err(status) => break status,
            }
        }
    };
    assert_eq!(timeout(PATIENCE, full).await.unwrap(), 503);
}

#[tokio::test]
async fn handshakes_count_against_the_rate_of_their_tenant() {
    let world = World::start().await.unwrap();
    // One call per half minute: the bucket does not refill during the test.
    let changes = TenantChanges { rate: Some(2), ..TenantChanges::default() };
    world.directory.tenants().update(world.anna.id, Actor::Operator, changes).await.unwrap();

    let mut answer = Ok(Value::Null);
    // While Redis is slow the gateway counts by itself: each change permits one call more.
    for _ in 0..5 {
        let params = connect_params(&world.anna.key);
        answer = Client::connect(world.http, params).await.unwrap().1;
        if answer.is_err() {
            break;
        }
    }

    let refused = answer.unwrap_err();
    assert_eq!((&refused["code"], &refused["retryable"]), (&json!("UNAVAILABLE"), &json!(true)));
    Client::openclaw(world.http, &world.ben.key).await.unwrap();
}

#[tokio::test]
async fn a_gateway_that_stops_says_so_and_ends_its_connections() {
    let mut world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();

    world.stop.cancel();

    client.event(|frame| frame["event"] == "shutdown").await.unwrap();
    assert_eq!(u16::from(client.closed().await.unwrap().unwrap().code), 1012);
    timeout(PATIENCE, world.served.take().unwrap()).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_foreign_session_is_not_there() {
    let world = World::start().await.unwrap();
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    chat(&mut anna, "agent:main:private", "my secret", "k1").await;
    let mut ben = Client::openclaw(world.http, &world.ben.key).await.unwrap();

    let listed = ben.call("sessions.list", json!({})).await.unwrap().unwrap();
    assert_eq!(listed["count"], 0);
    let params = json!({ "sessionKey": "agent:main:private" });
    let history = ben.call("chat.history", params).await.unwrap().unwrap();
    assert_eq!(history["messages"], json!([]));
    let sessions = anna.call("sessions.list", json!({})).await.unwrap().unwrap();
    let id = sessions["sessions"][0]["sessionId"].clone();
    let named = json!({ "sessionId": id });
    let error = ben.call("sessions.resolve", named.clone()).await.unwrap().unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("there is no session"), "{error}");
    assert_eq!(
        anna.call("sessions.resolve", named).await.unwrap().unwrap()["key"],
        "agent:main:private"
    );
    let error = ben.call("agent.wait", json!({ "runId": "k1" })).await.unwrap().unwrap_err();
    assert_eq!(error["message"], "unknown run: k1");
}

#[tokio::test]
async fn a_client_of_lurkbot_has_its_own_frames_codes_and_filters() {
    let world = World::start().await.unwrap();
    let (mut client, ok) = Client::lurkbot(world.http, hello(&world.anna.key)).await.unwrap();

    assert_eq!((&ok["type"], &ok["protocol"]), (&json!("hello-ok"), &json!(1)));
    assert_eq!(ok["server"]["version"], "0.1.0");
    assert_eq!(
        ok["features"]["events"],
        json!(["agent.*", "session.*", "cron.*", "config.*", "events.log"])
    );
    assert_eq!(
        ok["snapshot"],
        json!({
            "sessions": [], "sessionsCursor": null, "cronJobs": [], "cronJobsCursor": null,
            "channels": [],
        })
    );
    let methods = ok["features"]["methods"].as_array().unwrap();
    for name in ["agent", "agent.wait", "sessions.delete", "chat.inject", "events.subscribe"] {
        assert!(methods.contains(&json!(name)), "{name}");
    }

    let ask = async |client: &mut Client, id: &str, method: &str, params: Value| {
        let frame = json!({ "id": id, "type": "request", "method": method, "params": params });
        client.send(&frame).await.unwrap();
        loop {
            let frame = client.frame().await.unwrap();
            if frame["type"] == "response" {
                return frame;
            }
        }
    };
    let answer = ask(&mut client, "1", "no.method", json!({})).await;
    assert_eq!(answer["error"]["code"], "METHOD_NOT_FOUND");
    client.send(&json!({ "type": "unknown", "id": "2" })).await.unwrap();
    let answer = ask(&mut client, "3", "agent.wait", json!({ "timeoutMs": 5 })).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("3"), &json!("INVALID_REQUEST")));

    let filter = json!({ "sessionKey": "agent:main:a", "events": ["agent.block"] });
    let answer = ask(&mut client, "4", "events.subscribe", filter).await;
    assert_eq!(answer["result"]["subscribed"], true);
    for (id, key) in [("5", "agent:main:b"), ("6", "agent:main:a")] {
        let params = json!({ "sessionKey": key, "message": format!("hi {id}") });
        let frame = json!({ "id": id, "type": "request", "method": "chat.send", "params": params });
        client.send(&frame).await.unwrap();
    }
    let event = loop {
        let frame = client.frame().await.unwrap();
        if frame["type"] == "event" {
            break frame;
        }
    };
    assert_eq!(
        (&event["event"], &event["sessionKey"]),
        (&json!("agent.block_reply"), &json!("agent:main:a"))
    );
    assert_eq!(text_of(&event["payload"]["message"]), "echo: hi 6");
    assert!(event["at"].is_i64() && event["id"].is_string());
}

#[tokio::test]
async fn a_hello_that_is_wrong_ends_the_connection() {
    let world = World::start().await.unwrap();
    let refused = async |hello: Value| {
        let (mut client, answer) = Client::lurkbot(world.http, hello).await.unwrap();
        assert_eq!(u16::from(client.closed().await.unwrap().unwrap().code), 1008);
        answer["error"]["code"].clone()
    };
    let mut later = hello(&world.anna.key);
    (later["minProtocol"], later["maxProtocol"]) = (json!(2), json!(3));
    let mut without = hello("");
    without["auth"] = json!({});
    let mut wrong = hello(&world.anna.key);
    wrong["client"]["mode"] = json!("toaster");

    assert_eq!(refused(later).await, "INVALID_REQUEST");
    assert_eq!(refused(without).await, "NOT_PAIRED");
    assert_eq!(refused(hello("hf_no_such_key")).await, "NOT_PAIRED");
    assert_eq!(refused(wrong).await, "INVALID_REQUEST");
}

/// Calls a method that must succeed.
async fn done(client: &mut Client, method: &str, params: Value) -> Value {
    client.call(method, params).await.unwrap().unwrap_or_else(|error| panic!("{method}: {error}"))
}

#[tokio::test]
async fn a_text_is_injected_and_a_session_is_deleted() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let params = json!({ "sessionKey": "agent:main:x", "message": "by the way" });
    done(&mut client, "chat.inject", params).await;
    let told = client.event(|frame| frame["event"] == "chat").await.unwrap();
    assert_eq!(text_of(&told["payload"]["message"]), "by the way");

    // It is part of the conversation with its next turn.
    let end = chat(&mut client, "agent:main:x", "history", "k1").await;
    assert!(text_of(&end["message"]).contains("by the way"), "{end}");
    let described = done(&mut client, "sessions.describe", json!({ "key": "agent:main:x" })).await;
    assert_eq!(described["session"]["key"], "agent:main:x");
    let deleted = done(&mut client, "sessions.delete", json!({ "key": "agent:main:x" })).await;
    assert_eq!(deleted["deleted"], true);
    let described = done(&mut client, "sessions.describe", json!({ "key": "agent:main:x" })).await;
    assert_eq!(described["session"], Value::Null);
}

#[tokio::test]
async fn an_approval_is_told_and_decided() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let params = json!({ "sessionKey": "main", "message": "ask first", "idempotencyKey": "k1" });
    client.call("chat.send", params).await.unwrap().unwrap();

    let asked = client.event(|frame| frame["event"] == "exec.approval.requested").await.unwrap();
    let id = asked["payload"]["id"].clone();
    let pending = done(&mut client, "exec.approval.list", json!({})).await;
    assert_eq!(pending[0]["id"], id);
    assert_eq!(pending[0]["request"]["sessionKey"], "agent:main:main");
    let mut ben = Client::openclaw(world.http, &world.ben.key).await.unwrap();
    let decision = json!({ "id": id, "decision": "allow-once" });
    let refused = ben.call("exec.approval.resolve", decision.clone()).await.unwrap().unwrap_err();
    assert_eq!(refused["code"], "APPROVAL_NOT_FOUND");
    done(&mut client, "exec.approval.resolve", decision).await;

    // The turn may end before its approval is told to be decided.
    let (mut resolved, mut end) = (None, None);
    while resolved.is_none() || end.is_none() {
        let is_resolved = |frame: &Value| frame["event"] == "exec.approval.resolved";
        let frame = client.event(|frame| is_resolved(frame) || is_end(frame, "k1")).await.unwrap();
        let kept = if is_resolved(&frame) { &mut resolved } else { &mut end };
        *kept = Some(frame["payload"].clone());
    }
    assert_eq!(resolved.unwrap()["decision"], "allow-once");
    assert_eq!(end.unwrap()["state"], "final");
    assert_eq!(done(&mut client, "exec.approval.list", json!({})).await, json!([]));
    let history = done(&mut client, "approval.history", json!({})).await;
    assert_eq!(history["approvals"][0]["status"], "allowed");
}

#[tokio::test]
async fn each_family_of_methods_does_its_work() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let client = &mut client;

    let made = done(client, "agents.create", json!({ "name": "coach" })).await;
    assert_eq!(made["agentId"], "coach");
    let named = json!({ "agentId": "coach", "name": "SOUL.md", "content": "Be brief." });
    done(client, "agents.files.set", named).await;
    let read = json!({ "agentId": "coach", "name": "SOUL.md" });
    assert_eq!(done(client, "agents.files.get", read).await["file"]["content"], "Be brief.");
    let files = done(client, "agents.files.list", json!({ "agentId": "coach" })).await;
    assert!(files["files"].as_array().unwrap().iter().any(|file| file["name"] == "SOUL.md"));

    let config = done(client, "config.get", json!({})).await;
    let list = config["config"]["agents"]["list"].clone();
    let mut changed = list.as_array().unwrap().clone();
    let coach = changed.iter_mut().find(|agent| agent["id"] == "coach").unwrap();
    coach["description"] = json!("Trains people.");
    let raw = json!({ "agents": { "list": changed } }).to_string();
    let patch = json!({ "raw": raw, "baseHash": config["hash"] });
    done(client, "config.patch", patch.clone()).await;
    let stale = client.call("config.patch", patch).await.unwrap().unwrap_err();
    assert!(stale["message"].as_str().unwrap().contains("config changed"), "{stale}");
    let raw = json!({ "raw": "{\"gateway\": {\"port\": 1}}" });
    let refused = client.call("config.patch", raw).await.unwrap().unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("unknown field `gateway`"), "{refused}");

    let job = json!({
        "name": "tea",
        "schedule": { "kind": "every", "everyMs": 3_600_000 },
        "sessionTarget": "main",
        "wakeMode": "now",
        "payload": { "kind": "systemEvent", "text": "Time for tea." },
    });
    let job = done(client, "cron.add", job).await;
    let id = job["id"].clone();
    client.event(|frame| frame["event"] == "cron").await.unwrap();
    let patch = json!({ "id": id, "patch": { "name": "coffee", "enabled": false } });
    assert_eq!(done(client, "cron.update", patch).await["name"], "coffee");
    let listed = done(client, "cron.list", json!({ "includeDisabled": true })).await;
    assert_eq!((&listed["total"], &listed["jobs"][0]["enabled"]), (&json!(1), &json!(false)));
    assert_eq!(listed["jobs"][0]["payload"]["text"], "Time for tea.");
    assert_eq!(done(client, "cron.runs", json!({ "id": id })).await["entries"], json!([]));
    assert_eq!(done(client, "cron.remove", json!({ "id": id })).await["removed"], true);
    let gone = client.call("cron.get", json!({ "id": id })).await.unwrap().unwrap_err();
    assert_eq!(gone["details"]["code"], "CRON_JOB_NOT_FOUND");

    let models = done(client, "models.list", json!({})).await;
    assert!(!models["models"].as_array().unwrap().is_empty());
    chat(client, "main", "hi", "k1").await;
    let logs = done(client, "logs.tail", json!({})).await;
    assert_eq!(logs["lines"].as_array().unwrap().len(), 1);
    let after = json!({ "cursor": logs["cursor"] });
    assert_eq!(done(client, "logs.tail", after).await["lines"], json!([]));
    assert_eq!(done(client, "agents.delete", json!({ "agentId": "coach" })).await["ok"], true);
    let unknown = client.call("agents.delete", json!({ "agentId": "coach" })).await.unwrap();
    assert_eq!(unknown.unwrap_err()["details"]["code"], "UNKNOWN_AGENT_ID");
    for method in [
        "status",
        "health",
        "system-presence",
        "last-heartbeat",
        "channels.status",
        "skills.status",
        "tools.catalog",
        "tasks.list",
        "node.list",
        "node.pair.list",
        "usage.cost",
        "usage.status",
        "sessions.usage",
        "commands.list",
        "config.schema",
        "models.authStatus",
        "exec.approvals.get",
    ] {
        done(client, method, json!({})).await;
    }
}

#[tokio::test]
async fn a_text_that_a_job_says_is_shown_as_an_event_and_stays_what_it_is_when_it_is_changed() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let mut schedules = SchedulesClient::new(world.channel().await.unwrap());
    let session = "agent:main:api:anna";
    let payload = json!({ "kind": "message", "message": "Good morning.", "session": session });
    let job = json!({ "name": "morning", "payload": payload }).to_string();
    let add = AddJobRequest { job, ..Default::default() };
    let added = schedules.add_job(world.anna.request(add)).await.unwrap().into_inner();
    let job = added.job.unwrap().id;

    let shown = done(&mut client, "cron.get", json!({ "id": job })).await;
    let event = json!({ "kind": "systemEvent", "text": "Good day." });
    let patch = json!({ "id": job, "patch": { "payload": event } });
    done(&mut client, "cron.update", patch).await;
    let changed = schedules.get_job(world.anna.request(GetJobRequest { job })).await.unwrap();

    assert_eq!(shown["payload"], json!({ "kind": "systemEvent", "text": "Good morning." }));
    let what = changed.into_inner().job.unwrap().what;
    let what: Value = serde_json::from_str(&what).unwrap();
    let payload = json!({ "kind": "message", "message": "Good day.", "session": session });
    assert_eq!(what["payload"], payload);
}

#[tokio::test]
async fn no_method_finds_what_another_tenant_has() {
    let world = World::start().await.unwrap();
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    done(&mut anna, "agents.create", json!({ "name": "annas-agent" })).await;
    let job = json!({
        "name": "annas job",
        "agentId": "annas-agent",
        "schedule": { "kind": "every", "everyMs": 3_600_000 },
        "payload": { "kind": "systemEvent", "text": "annas text" },
    });
    let job = done(&mut anna, "cron.add", job).await["id"].clone();
    // The gateway keeps a tenant's agents for a second.
    sleep(Duration::from_millis(1100)).await;
    chat(&mut anna, "agent:annas-agent:annas-session", "annas words", "annas-run").await;
    let params = connect_params(&world.ben.key);
    let (mut ben, answer) = Client::connect(world.http, params).await.unwrap();
    let methods = answer.unwrap()["features"]["methods"].as_array().unwrap().clone();

    let mut tried = 0;
    for method in methods.iter().filter_map(Value::as_str) {
        for params in [
            json!({}),
            json!({ "agentId": "annas-agent" }),
            json!({ "key": "agent:annas-agent:annas-session" }),
            json!({ "keys": ["agent:annas-agent:annas-session"] }),
            json!({ "sessionKey": "agent:annas-agent:annas-session" }),
            json!({ "sessionKey": "agent:annas-agent:annas-session", "message": "x", "idempotencyKey": "b" }),
            json!({ "agentId": "annas-agent", "name": "SOUL.md" }),
            json!({ "agentId": "annas-agent", "name": "SOUL.md", "content": "x" }),
            json!({ "id": job }),
            json!({ "id": job, "patch": { "name": "bens" } }),
            json!({ "runId": "annas-run" }),
        ] {
            let answer = ben.call(method, params.clone()).await.unwrap();
            let text = match &answer {
                Ok(payload) => payload.to_string(),
                // An error may repeat what was asked for, and nothing else.
                Err(error) => error["message"].as_str().unwrap_or_default().to_owned(),
            };
            for secret in ["annas words", "annas job", "annas text"] {
                assert!(!text.contains(secret), "{method} {params}: {text}");
            }
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried}");
    // The other connection has answered no pings meanwhile.
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let kept = done(&mut anna, "cron.get", json!({ "id": job })).await;
    assert_eq!(kept["name"], "annas job");
    let agents = done(&mut anna, "agents.list", json!({})).await.to_string();
    assert!(agents.contains("annas-agent"));
}
