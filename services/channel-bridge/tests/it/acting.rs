//! Actions of agents besides sending text: each by the platform's own method, and once.

use std::time::Duration;

use holdfast_testkit::{FakeReceiver, Fault};
use holdfast_types::{AccountId, AgentId, ChannelAction, StoredFile, Target};
use holdfast_workspace::{ChangeAuthor, NewMedia};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{TOKEN, World, target};

async fn with_bot() -> (World, AccountId) {
    let world = World::new().await;
    let account = world.account("telegram", json!({}), json!({"token": TOKEN})).await;
    (world, account.id)
}

async fn kept(world: &World, name: &str, content: &[u8]) -> StoredFile {
    let by = ChangeAuthor::new("main", "a test");
    let new = vec![NewMedia { name: name.into(), content: content.to_vec() }];
    let agent = AgentId::generate();
    world.files.store_media(world.tenant, agent, None, &by, new).await.unwrap().remove(0)
}

/// Calls that were made, without those that every bot makes.
fn calls(world: &World) -> Vec<(String, Value)> {
    let calls = world.telegram.calls().into_iter();
    let own = ["getMe", "setMyCommands"];
    calls
        .filter(|call| !own.contains(&call.method.as_str()))
        .map(|call| (call.method, call.params))
        .collect()
}

#[tokio::test]
async fn each_act_is_a_method_of_the_bot_api() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    let chat = target("telegram", account, "7");
    let message = || "3".to_owned();

    for (act, text, method, params) in [
        (
            ChannelAction::React { message: message(), emoji: "👍".into() },
            "",
            "setMessageReaction",
            json!({"chat_id": 7, "message_id": 3, "reaction": [{"type": "emoji", "emoji": "👍"}]}),
        ),
        (
            ChannelAction::React { message: message(), emoji: String::new() },
            "",
            "setMessageReaction",
            json!({"chat_id": 7, "message_id": 3, "reaction": []}),
        ),
        (
            ChannelAction::Pin { message: message() },
            "",
            "pinChatMessage",
            json!({"chat_id": 7, "message_id": 3, "disable_notification": true}),
        ),
        (
            ChannelAction::Unpin { message: message() },
            "",
            "unpinChatMessage",
            json!({"chat_id": 7, "message_id": 3}),
        ),
        (
            ChannelAction::Poll { options: vec!["yes".into(), "no".into()] },
            "tea?",
            "sendPoll",
            json!({"chat_id": 7, "question": "tea?", "options": [{"text": "yes"}, {"text": "no"}]}),
        ),
        (
            ChannelAction::Thread { name: "tea".into() },
            "",
            "createForumTopic",
            json!({"chat_id": 7, "name": "tea"}),
        ),
    ] {
        let id = world.act(chat.clone(), text, act).await;
        let done = world.delivered(id, "sent").await;

        assert_eq!(calls(&world).pop(), Some((method.to_owned(), params)));
        assert!(done.platform_id.is_some(), "{method}");
    }
    bridge.stop().await;
}

#[tokio::test]
async fn the_last_message_that_was_sent_there_is_deleted() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    let there = target("telegram", account, "7");
    world.reply_to(there.clone(), "kept").await;
    let second = world.reply_to(there.clone(), "taken back").await;
    let sent = world.delivered(second, "sent").await.platform_id.unwrap();

    let act = world.act(there, "", ChannelAction::Delete { message: None }).await;
    world.delivered(act, "sent").await;

    let texts = |id: i64| world.telegram.text_of(7, id);
    assert_eq!(texts(sent.parse().unwrap()), None);
    assert_eq!(texts(sent.parse::<i64>().unwrap() - 1).as_deref(), Some("kept"));
    let (method, params) = calls(&world).pop().unwrap();
    assert_eq!((method.as_str(), &params["message_id"]), ("deleteMessage", &json!(3 - 1)));

    let nothing =
        world.act(target("telegram", account, "8"), "", ChannelAction::Delete { message: None });
    let dead = world.delivered(nothing.await, "dead").await;
    assert_eq!(dead.reason.as_deref(), Some("there is no message from here that could be deleted"));
    bridge.stop().await;
}

#[tokio::test]
async fn a_file_goes_up_as_what_it_is_with_its_caption() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    let there = Target {
        thread: Some("5".into()),
        reply_to: Some("9".into()),
        ..target("telegram", account, "-7")
    };

    for (name, content, voice, method, field) in [
        ("a.png", b"\x89PNG\r\n\x1a\n fine".as_slice(), false, "sendPhoto", "photo"),
        ("a.csv", b"1,2".as_slice(), false, "sendDocument", "document"),
        ("a.ogg", b"OggS...".as_slice(), true, "sendVoice", "voice"),
        // A picture that Telegram does not accept goes as a file.
        ("b.png", b"\x89PNG\r\n\x1a\n odd".as_slice(), false, "sendDocument", "document"),
    ] {
        let file = kept(&world, name, content).await;
        let act = ChannelAction::Media { file: file.clone(), voice };
        let id = world.act(there.clone(), "look", act).await;
        world.delivered(id, "sent").await;

        let (called, params) = calls(&world).pop().unwrap();
        assert_eq!(called, method);
        assert_eq!(params[field]["file_name"], file.name());
        assert_eq!(params[field]["mime_type"], file.media_type.as_str());
        assert_eq!(params[field]["file_size"], content.len());
        assert_eq!(
            (&params["chat_id"], &params["message_thread_id"], &params["caption"]),
            (&json!(-7), &json!(5), &json!("look"))
        );
        assert_eq!(params["reply_parameters"]["message_id"], 9);
    }
    bridge.stop().await;
}

#[tokio::test]
async fn a_file_that_is_not_there_is_dead_with_the_reason() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    let mut file = kept(&world, "a.csv", b"1,2").await;
    file.hash = "0".repeat(64);

    let there = target("telegram", account, "7");
    let id = world.act(there, "", ChannelAction::Media { file, voice: false }).await;

    assert_eq!(world.delivered(id, "dead").await.reason.as_deref(), Some("its file is gone"));
    bridge.stop().await;
}

#[tokio::test]
async fn what_does_no_harm_twice_is_done_again_and_what_would_is_not() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    let there = target("telegram", account, "7");

    world.telegram.faults().next(1, &Fault::CutAfter);
    let pin = world.act(there.clone(), "", ChannelAction::Pin { message: "3".into() }).await;
    assert_eq!(world.delivered(pin, "sent").await.attempt, 2);

    world.telegram.faults().next(1, &Fault::CutAfter);
    let poll = ChannelAction::Poll { options: vec!["a".into(), "b".into()] };
    let poll = world.act(there, "?", poll).await;
    world.delivered(poll, "unknown").await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(calls(&world).iter().filter(|(method, _)| method == "sendPoll").count(), 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_program_is_told_what_to_do_once() {
    let (world, receiver) = (World::new().await, FakeReceiver::start().await.unwrap());
    let settings = json!({"url": receiver.url(), "actions": true});
    let secrets = json!({"secret": "webhook-secret-0123456789"});
    let account = world.account("webhook", settings, secrets).await;
    let bridge = world.bridge().await;
    let there = target("webhook", account.id, "anna");
    let file = kept(&world, "a.csv", b"hi").await;

    receiver.faults().next(1, &Fault::CutAfter);
    let media = ChannelAction::Media { file, voice: false };
    let sent = world.act(there.clone(), "look", media).await;
    world.delivered(sent, "sent").await;
    let event = world.act(there, "tea at 4", ChannelAction::Event).await;
    world.delivered(event, "sent").await;

    let got: Vec<Value> = receiver.unique().into_iter().map(|post| post.json()).collect();
    assert_eq!(got.len(), 2);
    assert_eq!((&got[0]["action"], &got[0]["text"]), (&json!("media"), &json!("look")));
    assert_eq!(got[0]["file"]["content"], "aGk=");
    assert_eq!((&got[1]["action"], &got[1]["text"]), (&json!("event"), &json!("tea at 4")));
    bridge.stop().await;
}
