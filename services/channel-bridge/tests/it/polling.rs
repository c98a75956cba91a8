//! Polled bot: the gateway gets each update exactly once, and no update is confirmed to Telegram
//! before that.

use std::time::Duration;

use holdfast_testkit::{Proxy, telegram::Incoming};
use holdfast_types::AccountId;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tonic::Status;

use crate::world::{TOKEN, World, eventually};

async fn world() -> (World, AccountId) {
    let world = World::new().await;
    let settings = json!({"allow": [7], "groups": {"allow": [-5]}});
    let account = world.account("telegram", settings, json!({"token": TOKEN})).await;
    (world, account.id)
}

#[tokio::test]
async fn a_message_reaches_the_gateway_in_its_tenants_name() {
    let (world, account) = world().await;
    let bridge = world.bridge().await;

    let sent = world.telegram.push(TOKEN, Incoming::private(7, "hello"));
    world.taken(1).await;
    world.confirmed().await;

    let request = world.gateway.taken().remove(0);
    assert_eq!(world.gateway.tenants(), [world.tenant]);
    assert_eq!(request.account_id, account.to_string());
    assert_eq!((request.channel.as_str(), request.account.as_str()), ("telegram", "default"));
    assert_eq!(request.idempotency_key, format!("update:7:{}", sent.message_id));
    assert_eq!((request.text.as_str(), request.sender_id.as_str()), ("hello", "7"));
    eventually("typing is shown", async || {
        world.telegram.calls().iter().any(|call| call.method == "sendChatAction")
    })
    .await;
    bridge.stop().await;
}

#[tokio::test]
async fn nothing_is_confirmed_while_the_gateway_is_away() {
    let (world, _) = world().await;
    world.gateway.refuse(Some(Status::unavailable("restarting")));
    let bridge = world.bridge().await;

    world.telegram.push(TOKEN, Incoming::private(7, "one"));
    world.telegram.push(TOKEN, Incoming::private(7, "two"));
    crate::world::eventually("it was offered", async || world.gateway.calls() > 3).await;
    assert_eq!(world.telegram.pending(TOKEN), 2);
    bridge.stop().await;
    assert_eq!(world.telegram.pending(TOKEN), 2);

    world.gateway.refuse(None);
    let bridge = world.bridge().await;
    world.taken(2).await;
    world.confirmed().await;
    assert_eq!(world.gateway.texts(), ["one", "two"]);
    bridge.stop().await;
}

#[tokio::test]
async fn what_comes_twice_or_in_another_order_is_taken_once() {
    let (world, _) = world().await;
    let bridge = world.bridge().await;
    let message = |id: i64, text: &str| {
        json!({"message": {"message_id": id, "date": 1, "chat": {"id": 7, "type": "private"},
            "from": {"id": 7, "first_name": "A"}, "text": text}})
    };

    for (id, text) in [(12, "second"), (11, "first"), (12, "second"), (11, "first")] {
        world.telegram.push_raw(TOKEN, message(id, text));
    }
    world.taken(2).await;
    world.confirmed().await;

    assert_eq!(world.gateway.texts(), ["second", "first"]);
    assert_eq!(world.gateway.calls(), 4);
    bridge.stop().await;
}

#[tokio::test]
async fn an_update_that_is_not_understood_holds_up_nobody() {
    let (world, _) = world().await;
    let bridge = world.bridge().await;

    world.telegram.push_raw(TOKEN, json!({"message": {"message_id": "no number"}}));
    world.telegram.push_raw(TOKEN, json!({"poll_answer": {"poll_id": "1"}}));
    world.telegram.push(TOKEN, Incoming::private(7, "after"));
    world.taken(1).await;
    world.confirmed().await;

    assert_eq!(world.gateway.texts(), ["after"]);
    bridge.stop().await;
}

#[tokio::test]
async fn a_message_that_the_gateway_never_takes_holds_up_nobody_and_its_sender_is_told() {
    let (world, _) = world().await;
    let bridge = world.bridge().await;

    world.gateway.refuse(Some(Status::invalid_argument("no such agent")));
    world.telegram.push(TOKEN, Incoming::private(7, "one"));
    world.confirmed().await;
    world.gateway.refuse(None);
    world.telegram.push(TOKEN, Incoming::private(7, "two"));
    world.taken(1).await;

    assert_eq!(world.gateway.texts(), ["two"]);
    eventually("the sender is told", async || !world.telegram.sends().is_empty()).await;
    assert!(world.telegram.sends()[0].text.contains("could not be taken in"));
    bridge.stop().await;
}

#[tokio::test]
async fn a_quota_that_is_used_up_holds_up_nobody_and_the_sender_is_told() {
    let (world, _) = world().await;
    world.gateway.refuse(Some(Status::resource_exhausted("2 sessions is the most")));
    let bridge = world.bridge().await;

    world.telegram.push(TOKEN, Incoming::private(7, "one too many"));
    world.confirmed().await;
    assert_eq!(world.gateway.calls(), 1, "it is waited for, as for a full session");
    world.gateway.refuse(None);
    world.telegram.push(TOKEN, Incoming::private(7, "next"));
    world.taken(1).await;

    assert_eq!(world.gateway.texts(), ["next"]);
    eventually("the sender is told", async || {
        world.telegram.sends().iter().any(|message| message.text.contains("later"))
    })
    .await;
    bridge.stop().await;
}

#[tokio::test]
async fn a_stranger_reaches_nobody_and_is_told_their_id_once() {
    let (world, _) = world().await;
    let bridge = world.bridge().await;

    world.telegram.push(TOKEN, Incoming::private(9, "let me in"));
    world.telegram.push(TOKEN, Incoming::private(9, "please"));
    world.telegram.push(TOKEN, Incoming::group(-6, 9, "@holdfast_bot hello"));
    world.telegram.push(TOKEN, Incoming::private(7, "I may"));
    world.taken(1).await;
    world.confirmed().await;

    assert_eq!(world.gateway.texts(), ["I may"]);
    assert_eq!(world.gateway.calls(), 1);
    eventually("the stranger is told", async || !world.telegram.sends().is_empty()).await;
    let told = world.telegram.sends();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].chat, 9);
    assert!(told[0].text.ends_with("by your id: 9"), "{}", told[0].text);
    bridge.stop().await;
}

#[tokio::test]
async fn in_a_group_what_mentions_nobody_is_silent_and_a_topic_is_a_thread() {
    let (world, _) = world().await;
    let bridge = world.bridge().await;

    world.telegram.push(TOKEN, Incoming::group(-5, 9, "just talking"));
    world.telegram.push(TOKEN, Incoming::group(-5, 9, "@holdfast_bot help").topic(3));
    world.taken(2).await;

    let taken = world.gateway.taken();
    assert!(taken[0].silent && !taken[1].silent);
    assert_eq!((taken[1].peer_kind.as_str(), taken[1].peer_id.as_str()), ("group", "-5"));
    assert_eq!((taken[1].thread.as_str(), taken[1].reply_thread.as_str()), ("3", "3"));
    assert_eq!(taken[1].reply_to, taken[1].platform_message_id);
    bridge.stop().await;
}

#[tokio::test]
async fn an_edit_is_another_message() {
    let (world, _) = world().await;
    let bridge = world.bridge().await;

    let first = world.telegram.push(TOKEN, Incoming::private(7, "helo"));
    world.telegram.push(TOKEN, Incoming::private(7, "hello").edited(first.message_id));
    world.taken(2).await;

    assert_eq!(world.gateway.texts(), ["helo", "[edited message] hello"]);
    bridge.stop().await;
}

#[tokio::test]
async fn of_two_bridges_one_polls_and_the_other_takes_over_when_it_stops() {
    let (world, _) = world().await;
    let first = world.bridge().await;
    world.telegram.push(TOKEN, Incoming::private(7, "one"));
    world.taken(1).await;
    let second = world.bridge().await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(world.telegram.conflicts(), 0);

    first.stop().await;
    world.telegram.push(TOKEN, Incoming::private(7, "two"));
    world.taken(2).await;
    world.confirmed().await;

    assert_eq!(world.gateway.texts(), ["one", "two"]);
    second.stop().await;
}

#[tokio::test]
async fn without_redis_a_bot_is_polled_all_the_same() {
    let (world, _) = world().await;
    let mut config = world.config.clone();
    let proxy = Proxy::in_front_of(config.redis.url.expose_secret()).await.unwrap();
    config.redis.url = proxy.through(config.redis.url.expose_secret()).into();
    let bridge = world.bridge_with(config).await;
    world.telegram.push(TOKEN, Incoming::private(7, "one"));
    world.taken(1).await;

    proxy.refuse().await.unwrap();
    proxy.cut();
    sleep(Duration::from_secs(17)).await;
    world.telegram.push(TOKEN, Incoming::private(7, "two"));
    world.taken(2).await;

    assert_eq!(world.gateway.texts(), ["one", "two"]);
    bridge.stop().await;
}

#[tokio::test]
async fn an_account_that_is_disabled_is_let_go_and_one_that_changes_is_made_anew() {
    use holdfast_directory::{Actor, NewAccount};

    let (world, account) = world().await;
    let bridge = world.bridge().await;
    world.telegram.push(TOKEN, Incoming::private(9, "not yet"));
    world.confirmed().await;
    let changed = |enabled, allow: serde_json::Value| NewAccount {
        channel: "telegram".into(),
        name: "default".into(),
        enabled,
        settings: json!({"allow": allow}),
        secrets: None,
    };

    let update =
        |new| world.directory.accounts().update(world.tenant, Actor::Operator, account, new);
    update(changed(true, json!([9]))).await.unwrap();
    eventually("who may write now is heard", async || {
        world.telegram.push(TOKEN, Incoming::private(9, "now"));
        world.confirmed().await;
        !world.gateway.texts().is_empty()
    })
    .await;
    update(changed(false, json!([9]))).await.unwrap();
    eventually("nobody asks for messages any more", async || {
        world.telegram.push(TOKEN, Incoming::private(9, "and now?"));
        let asked = async {
            while world.telegram.pending(TOKEN) > 0 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(20), asked).await.is_err()
    })
    .await;

    let heard = world.gateway.texts().len();
    world.telegram.push(TOKEN, Incoming::private(9, "too late"));
    sleep(Duration::from_millis(500)).await;
    assert_eq!(world.gateway.texts().len(), heard);
    assert_eq!(world.telegram.pending(TOKEN), 2);
    bridge.stop().await;
}

#[tokio::test]
async fn an_account_that_cannot_be_used_keeps_no_other_from_its_work() {
    use holdfast_directory::{Actor, NewAccount};

    let (world, _) = world().await;
    // Only the bridge can check this: this installation does not call private addresses.
    let broken = NewAccount {
        channel: "webhook".into(),
        name: "broken".into(),
        enabled: true,
        settings: json!({"url": "http://127.0.0.1:9/"}),
        secrets: Some(json!({"secret": "0123456789abcdef"})),
    };
    world.directory.accounts().create(world.tenant, Actor::Operator, broken).await.unwrap();
    let mut config = world.config.clone();
    config.egress.allow.clear();
    let bridge = world.bridge_with(config).await;

    world.telegram.push(TOKEN, Incoming::private(7, "hello"));
    world.taken(1).await;

    bridge.stop().await;
}

#[tokio::test]
async fn files_come_with_their_message_and_one_that_cannot_be_had_keeps_none() {
    let world = World::new().await;
    let settings = json!({"allow": ["7"]});
    world.account("telegram", settings, json!({"token": TOKEN})).await;
    world.telegram.put_file("cat", b"\x89PNG a cat".to_vec());
    world.telegram.put_file("huge", vec![0; 10 * 1024 * 1024 + 1]);
    let bridge = world.bridge().await;
    let message = |id: i64, more: serde_json::Value| {
        let mut message = json!({
            "message_id": id, "date": 1_800_000_000, "chat": {"id": 7, "type": "private"},
            "from": {"id": 7, "is_bot": false, "first_name": "Anna"},
        });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"message": message})
    };

    let photo = json!([{"file_id": "small"}, {"file_id": "cat"}]);
    world.telegram.push_raw(TOKEN, message(1, json!({"photo": photo, "caption": "look"})));
    let document = json!({"file_id": "huge", "file_name": "a.pdf"});
    world.telegram.push_raw(TOKEN, message(2, json!({"document": document})));
    world.telegram.push_raw(TOKEN, message(3, json!({"voice": {"file_id": "gone"}})));
    world.taken(3).await;

    let came: Vec<(String, String, usize)> = world
        .gateway
        .taken()
        .into_iter()
        .map(|request| {
            let file = request.attachments.into_iter().next().unwrap();
            (request.text, file.kind, file.content.len())
        })
        .collect();
    let is = |text: &str, kind: &str, size| (text.to_owned(), kind.to_owned(), size);
    assert_eq!(came, [is("look", "photo", 10), is("", "document", 0), is("", "voice", 0)]);
    bridge.stop().await;
}

fn press(id: &str, from: i64, chat: (i64, &str), data: &str) -> serde_json::Value {
    let (chat, kind) = chat;
    json!({"callback_query": {"id": id, "from": {"id": from, "first_name": "A"}, "data": data,
        "chat_instance": "1", "message": {"message_id": 5, "date": 1,
        "chat": {"id": chat, "type": kind}, "text": "Approval needed"}}})
}

#[tokio::test]
async fn a_button_says_what_its_presser_could_have_written_and_no_more() {
    let (world, _) = world().await;
    let bridge = world.bridge().await;
    let id = holdfast_types::ApprovalId::generate();

    world.telegram.push_raw(TOKEN, press("1", 9, (9, "private"), &format!("o:{id}")));
    world.telegram.push_raw(TOKEN, press("2", 7, (7, "private"), "anything"));
    world.telegram.push_raw(TOKEN, press("3", 7, (7, "private"), &format!("o:{id}")));
    world.telegram.push_raw(TOKEN, press("4", 8, (-5, "supergroup"), &format!("d:{id}")));
    world.taken(2).await;
    world.confirmed().await;

    let taken = world.gateway.taken();
    assert_eq!(world.gateway.texts(), [format!("/approve {id} once"), format!("/deny {id}")]);
    assert_eq!((taken[0].sender_id.as_str(), taken[0].peer_kind.as_str()), ("7", "direct"));
    assert_eq!((taken[1].sender_id.as_str(), taken[1].peer_id.as_str()), ("8", "-5"));
    assert_eq!(taken[0].idempotency_key, "press:3");
    let answered = || {
        let calls = world.telegram.calls().into_iter();
        calls.filter(|call| call.method == "answerCallbackQuery").count()
    };
    crate::world::eventually("all buttons look pressed", async || answered() == 4).await;
    bridge.stop().await;
}

#[tokio::test]
async fn a_server_that_answers_at_once_with_nothing_is_not_polled_all_the_time() {
    let (world, _) = world().await;
    world.telegram.answer_polls_at_once();
    let bridge = world.bridge().await;
    eventually("it polls", async || world.telegram.polls() > 0).await;

    let before = world.telegram.polls();
    sleep(Duration::from_secs(2)).await;
    let polls = world.telegram.polls() - before;
    world.telegram.push(TOKEN, Incoming::private(7, "hello"));
    world.taken(1).await;

    assert!((1..=3).contains(&polls), "{polls} polls in two seconds");
    bridge.stop().await;
}

#[tokio::test]
async fn an_album_is_one_message_a_reaction_is_kept_and_the_menu_is_registered() {
    let (world, _) = world().await;
    world.telegram.put_file("a", b"first".to_vec());
    world.telegram.put_file("b", b"second".to_vec());
    let photo = |id: i64, file: &str, more: serde_json::Value| {
        let mut message = json!({
            "message_id": id, "date": 1_800_000_000, "chat": {"id": 7, "type": "private"},
            "from": {"id": 7, "first_name": "Anna"}, "media_group_id": "album",
            "photo": [{"file_id": file}],
        });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "message": message })
    };
    world.telegram.push_raw(TOKEN, photo(1, "a", json!({"caption": "look"})));
    world.telegram.push_raw(TOKEN, photo(2, "b", json!({})));
    let bridge = world.bridge().await;
    world.taken(1).await;
    world.telegram.push_raw(
        TOKEN,
        json!({"message_reaction": {"chat": {"id": 7, "type": "private"}, "message_id": 1,
            "date": 9, "user": {"id": 7, "first_name": "Anna"}, "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": "👍"}]}}),
    );
    world.telegram.push(TOKEN, Incoming::private(7, "/start"));
    world.taken(3).await;
    world.confirmed().await;

    let taken = world.gateway.taken();
    let files: Vec<_> = taken[0].attachments.iter().map(|file| file.content.as_slice()).collect();
    assert_eq!(files, [b"first".as_slice(), b"second"]);
    assert_eq!(world.gateway.texts(), ["look", "[reacted with 👍]", "/help"]);
    assert!(taken[1].silent && !taken[2].silent);
    eventually("the menu is registered", async || {
        world.telegram.calls().iter().any(|call| {
            call.method == "setMyCommands" && call.params["commands"][0]["command"] == "help"
        })
    })
    .await;
    bridge.stop().await;
}
