//! Methods of OpenClaw's Control UI: sessions that people name, options of messages, channels, and
//! what a hosted mesh does not have.

use serde_json::{Value, json};

use super::{
    chat,
    client::{Client, connect_params, text_of},
    done,
};
use crate::world::World;

async fn keys(client: &mut Client, params: Value) -> Vec<String> {
    let listed = done(client, "sessions.list", params).await;
    let rows = listed["sessions"].as_array().unwrap().iter();
    rows.map(|row| row["key"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn sessions_are_listed_by_their_last_use_with_labels_pins_and_a_search() {
    let world = World::start().await.unwrap();
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    for (n, name) in ["first", "second", "third", "first"].into_iter().enumerate() {
        chat(&mut anna, &format!("agent:main:{name}"), "hi", &format!("k{n}")).await;
    }

    let by_use = ["agent:main:first", "agent:main:third", "agent:main:second"];
    assert_eq!(keys(&mut anna, json!({})).await, by_use);
    let patch = json!({ "key": "agent:main:second", "label": " Tea with Ann ", "pinned": true });
    let patched = done(&mut anna, "sessions.patch", patch).await;
    assert_eq!(
        (&patched["entry"]["label"], &patched["entry"]["pinned"]),
        (&json!("Tea with Ann"), &json!(true))
    );
    // A label is no use of the session.
    assert_eq!(keys(&mut anna, json!({})).await, by_use);
    for params in [
        json!({ "search": "tea WITH" }),
        json!({ "label": "Tea with Ann" }),
        json!({ "pinned": true }),
    ] {
        assert_eq!(keys(&mut anna, params.clone()).await, ["agent:main:second"], "{params}");
    }
    assert_eq!(keys(&mut anna, json!({ "label": "Tea" })).await.len(), 0);
    assert_eq!(keys(&mut anna, json!({ "pinned": false })).await, &by_use[..2]);
    for none in
        [json!({ "archived": true }), json!({ "group": "work" }), json!({ "hasBoard": true })]
    {
        assert_eq!(keys(&mut anna, none.clone()).await.len(), 0, "{none}");
    }
    let named = done(&mut anna, "sessions.resolve", json!({ "label": "Tea with Ann" })).await;
    assert_eq!(named["key"], "agent:main:second");

    let unpin = json!({ "key": "agent:main:second", "label": null, "pinned": false });
    let patched = done(&mut anna, "sessions.patch", unpin).await;
    assert_eq!(
        (&patched["entry"]["label"], &patched["entry"]["pinned"]),
        (&json!("second"), &json!(false))
    );
    let targets = json!([{ "key": "agent:main:first" }, { "key": "agent:main:none" }]);
    let many = json!({ "targets": targets, "patch": { "pinned": true } });
    let many = done(&mut anna, "sessions.patchMany", many).await;
    assert_eq!(
        (&many["outcomes"][0]["ok"], &many["outcomes"][1]["ok"]),
        (&json!(true), &json!(false))
    );

    // Another tenant neither finds the session nor changes it.
    let mut ben = Client::openclaw(world.http, &world.ben.key).await.unwrap();
    let patch = json!({ "key": "agent:main:first", "label": "Ben's" });
    let refused = ben.call("sessions.patch", patch).await.unwrap().unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("there is no session"), "{refused}");
    let described =
        done(&mut anna, "sessions.describe", json!({ "key": "agent:main:first" })).await;
    assert_eq!(described["session"]["label"], "first");
}

#[tokio::test]
async fn options_of_a_message_are_honoured_or_refused() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let send = |id: &str, more: Value| {
        let mut params =
            json!({ "sessionKey": "main", "message": "options", "idempotencyKey": id });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };

    done(&mut client, "chat.send", send("k1", json!({ "thinking": "high" }))).await;
    let end = client.chat_end("k1").await.unwrap();
    assert_eq!(text_of(&end["message"]), r#"{"effort":"high"}"#);
    done(&mut client, "chat.send", send("k2", json!({ "queueMode": "collect" }))).await;
    client.chat_end("k2").await.unwrap();
    let mode = "select body->'options'->'queue'->>'mode' from session.inbox where idem_key = 'k2'";
    assert_eq!(world.texts(mode).await.unwrap(), ["collect"]);
    for (wrong, named) in [
        (json!({ "thinking": "much" }), "thinking"),
        (json!({ "queueMode": "stack" }), "queueMode"),
    ] {
        let refused = client.call("chat.send", send("k3", wrong)).await.unwrap().unwrap_err();
        assert_eq!(refused["code"], "INVALID_REQUEST");
        assert!(refused["message"].as_str().unwrap().contains(named), "{refused}");
    }

    // A session's settings are set by commands, in order with its messages.
    let levels = json!({ "key": "main", "thinkingLevel": "low", "queueMode": "followup" });
    let patched = done(&mut client, "sessions.patch", levels).await;
    assert_eq!(patched["answers"], json!(["echo: /think low", "echo: /queue followup"]));
    for wrong in [
        json!({ "key": "main", "thinkingLevel": "much" }),
        json!({ "key": "main", "queueMode": "stack" }),
        json!({ "key": "main", "icon": "star" }),
        json!({ "key": "main", "unread": true }),
        json!({ "key": "main", "pinned": true, "expectedSessionId": "ses_other" }),
    ] {
        let refused = client.call("sessions.patch", wrong.clone()).await.unwrap().unwrap_err();
        assert_eq!(refused["code"], "INVALID_REQUEST", "{wrong}");
    }
    let model = json!({ "message": "hi", "idempotencyKey": "a", "model": "openai/gpt-5" });
    let refused = client.call("agent", model).await.unwrap().unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("sessions.patch"), "{refused}");
}

#[tokio::test]
async fn the_queue_mode_of_a_message_counts_before_that_of_its_session() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    chat(&mut client, "main", "hi", "k0").await;
    let set = "update session.sessions set settings = '{\"queue\": {\"mode\": \"followup\"}}' \
               returning 1::bigint";
    assert_eq!(world.number(set).await.unwrap(), 1);

    for (id, more) in [("k1", json!({})), ("k2", json!({ "queueMode": "collect" }))] {
        let mut params = json!({ "sessionKey": "main", "message": "hi", "idempotencyKey": id });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        done(&mut client, "chat.send", params).await;
        client.chat_end(id).await.unwrap();
    }

    let modes = "select body->'options'->'queue'->>'mode' from session.inbox \
                 where idem_key in ('k1', 'k2') order by seq";
    assert_eq!(world.texts(modes).await.unwrap(), ["followup", "collect"]);
}

#[tokio::test]
async fn a_channel_account_is_stopped_and_started_and_keeps_its_secrets() {
    let world = World::start().await.unwrap();
    let mut client = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let account = holdfast_directory::NewAccount {
        channel: "telegram".into(),
        name: "bot".into(),
        enabled: true,
        settings: json!({}),
        secrets: Some(json!({ "token": "1:abc" })),
    };
    let by = holdfast_directory::Actor::Operator;
    world.directory.accounts().create(world.anna.id, by, account).await.unwrap();
    let enabled =
        "select enabled::text || ' ' || (secrets is not null)::text from control.accounts";

    let out = done(&mut client, "channels.logout", json!({ "channel": "telegram" })).await;
    assert_eq!((&out["accountId"], &out["loggedOut"]), (&json!("bot"), &json!(true)));
    assert_eq!(world.texts(enabled).await.unwrap(), ["false true"]);
    let named = json!({ "channel": "telegram", "accountId": "bot" });
    done(&mut client, "channels.start", named.clone()).await;
    assert_eq!(world.texts(enabled).await.unwrap(), ["true true"]);
    done(&mut client, "channels.stop", named.clone()).await;
    assert_eq!(world.texts(enabled).await.unwrap(), ["false true"]);
    let pairing = done(&mut client, "channels.pairing.list", json!({})).await;
    assert_eq!(
        (&pairing["accounts"][0]["accountId"], &pairing["requests"]),
        (&json!("bot"), &json!([]))
    );

    let mut ben = Client::openclaw(world.http, &world.ben.key).await.unwrap();
    let refused = ben.call("channels.start", named.clone()).await.unwrap().unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("no such account"), "{refused}");
    let reader = world.key(&world.anna, &["read"], None).await.unwrap();
    let mut reader = Client::openclaw(world.http, &reader).await.unwrap();
    let refused = reader.call("channels.logout", named).await.unwrap().unwrap_err();
    assert_eq!(refused["details"]["missingScope"], "operator.admin");
}

#[tokio::test]
async fn what_the_control_ui_asks_for_is_answered_truly_or_refused_with_the_reason() {
    let world = World::start().await.unwrap();
    let params = connect_params(&world.anna.key);
    let (mut client, hello) = Client::connect(world.http, params).await.unwrap();
    let methods = hello.unwrap()["features"]["methods"].clone();
    let client = &mut client;
    chat(client, "main", "hi", "k1").await;
    let session = json!({ "sessionKey": "main" });

    let branches = done(client, "sessions.branches.list", session.clone()).await;
    assert_eq!(branches["branches"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&branches["branches"][0]["active"], &branches["branches"][0]["messageCount"]),
        (&json!(true), &json!(2))
    );
    assert_eq!(done(client, "progressCard.get", session.clone()).await["card"], Value::Null);
    assert_eq!(done(client, "plugins.list", json!({})).await["plugins"], json!([]));
    assert_eq!(done(client, "themes.list", json!({})).await["themes"], json!([]));
    assert_eq!(done(client, "openclaw.approval.list", json!({})).await, json!([]));
    assert!(done(client, "skills.library.list", json!({})).await["entries"].is_array());
    let found = done(client, "skills.search", json!({ "query": "water", "limit": 20 })).await;
    assert_eq!(found["results"][0]["slug"], "water-plants");
    let gone = json!({ "taskId": "ses_none" });
    assert_eq!(done(client, "tasks.cancel", gone).await["found"], false);

    for method in [
        "update.status",
        "talk.catalog",
        "sessions.companion.state",
        "sessions.observer.visibility",
        "terminal.open",
        "worktrees.list",
    ] {
        let refused = client.call(method, session.clone()).await.unwrap().unwrap_err();
        assert_eq!(refused["code"], "UNAVAILABLE", "{method}");
        assert!(
            refused["message"].as_str().unwrap().contains("not part of a hosted mesh"),
            "{refused}"
        );
        assert_eq!(refused.get("retryable"), None, "{method}");
        assert!(!methods.as_array().unwrap().contains(&json!(method)), "{method}");
    }
}
