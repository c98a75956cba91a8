//! Replies: once on a channel that takes a key, at most once on one that does not, and in order.

use std::time::Duration;

use holdfast_testkit::{FakeReceiver, Fault, Proxy, webhook::Post};
use holdfast_types::{AccountId, ApprovalDecision, Target};
use serde_json::json;
use tokio::time::sleep;

use crate::world::{TOKEN, World, eventually, target};

const SECRET: &str = "webhook-secret-0123456789";

async fn with_bot() -> (World, AccountId) {
    let world = World::new().await;
    let account = world.account("telegram", json!({}), json!({"token": TOKEN})).await;
    (world, account.id)
}

async fn with_receiver() -> (World, FakeReceiver, AccountId) {
    let (world, receiver) = (World::new().await, FakeReceiver::start().await.unwrap());
    let settings = json!({"url": receiver.url()});
    let account = world.account("webhook", settings, json!({"secret": SECRET})).await;
    (world, receiver, account.id)
}

fn texts(world: &World) -> Vec<String> {
    world.telegram.sends().into_iter().map(|sent| sent.text).collect()
}

#[tokio::test]
async fn a_reply_is_rendered_and_sent_where_it_belongs() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    let target = Target {
        thread: Some("3".into()),
        reply_to: Some("11".into()),
        ..target("telegram", account, "-5")
    };

    let id = world.reply_to(target, "**hi** <you>").await;
    let delivery = world.delivered(id, "sent").await;

    let sent = world.telegram.sends().remove(0);
    assert_eq!((sent.chat, sent.topic, sent.reply_to), (-5, Some(3), Some(11)));
    assert_eq!(
        (sent.text.as_str(), sent.parse_mode.as_deref()),
        ("<b>hi</b> &lt;you&gt;", Some("HTML"))
    );
    assert_eq!(delivery.platform_id, Some(sent.message_id.to_string()));
    assert_eq!(delivery.attempt, 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_long_reply_is_sent_in_parts_and_in_order() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    let lines: Vec<String> = (0..2000).map(|n| format!("line {n} 😀")).collect();

    let id = world.reply("telegram", account, "7", &lines.join("\n")).await;
    world.delivered(id, "sent").await;
    eventually("all parts are sent", async || {
        world.deliveries().await.iter().all(|delivery| delivery.state == "sent")
    })
    .await;

    let sent = texts(&world);
    assert!(sent.len() > 5);
    assert!(sent.iter().all(|text| text.encode_utf16().count() <= 4096));
    assert_eq!(sent.join("\n").lines().collect::<Vec<_>>(), lines);
    bridge.stop().await;
}

#[tokio::test]
async fn a_platform_that_asks_to_wait_is_not_asked_before() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    let retry_after = Duration::from_secs(1);
    world.telegram.faults().next(1, &Fault::RateLimited { retry_after });

    let id = world.reply("telegram", account, "7", "hi").await;
    let delivery = world.delivered(id, "sent").await;

    assert_eq!(delivery.attempt, 2);
    let calls = world.telegram.calls();
    let sends: Vec<_> = calls.iter().filter(|call| call.method == "sendMessage").collect();
    assert_eq!(sends.len(), 2);
    assert!(sends[1].at - sends[0].at >= retry_after);
    assert_eq!(texts(&world), ["hi"]);
    bridge.stop().await;
}

#[tokio::test]
async fn what_telegram_cannot_parse_is_sent_as_plain_text() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    world.telegram.refuse_entities(1);

    let id = world.reply("telegram", account, "7", "**hi**").await;
    let delivery = world.delivered(id, "sent").await;

    let sent = world.telegram.sends().remove(0);
    assert_eq!((sent.text.as_str(), sent.parse_mode), ("**hi**", None));
    assert_eq!(delivery.attempt, 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_telegram_message_whose_fate_is_hidden_is_unknown_and_never_sent_again() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;

    for (fault, arrived) in [(Fault::Status(500), 0), (Fault::CutAfter, 1)] {
        let before = world.telegram.sends().len();
        world.telegram.faults().next(1, &fault);
        let id = world.reply("telegram", account, "7", "hi").await;
        let delivery = world.delivered(id, "unknown").await;

        sleep(Duration::from_millis(1500)).await;
        assert_eq!(world.telegram.sends().len() - before, arrived, "{fault:?}");
        assert_eq!(world.delivery(id).await.attempt, 1, "{fault:?}");
        assert!(delivery.reason.is_some());
    }
    bridge.stop().await;
}

#[tokio::test]
async fn what_telegram_refuses_is_dead_with_its_reason_and_the_next_goes_out() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;
    world.telegram.faults().next(1, &Fault::Status(403));

    let refused = world.reply("telegram", account, "7", "one").await;
    let dead = world.delivered(refused, "dead").await;
    let next = world.reply("telegram", account, "7", "two").await;
    world.delivered(next, "sent").await;

    assert!(dead.reason.unwrap().contains("403"));
    assert_eq!(texts(&world), ["two"]);
    bridge.stop().await;
}

#[tokio::test]
async fn what_could_not_connect_is_sent_when_telegram_is_back() {
    let (world, account) = with_bot().await;
    let proxy = Proxy::start(world.telegram.addr()).await.unwrap();
    let mut config = world.config.clone();
    config.bridge.telegram.api_base = format!("http://{}", proxy.addr());
    let bridge = world.bridge_with(config).await;
    proxy.refuse().await.unwrap();
    proxy.cut();

    let id = world.reply("telegram", account, "7", "hi").await;
    eventually("it was tried and waits", async || {
        let delivery = world.delivery(id).await;
        delivery.attempt > 1 && delivery.state == "pending"
    })
    .await;
    proxy.accept().await.unwrap();
    world.delivered(id, "sent").await;

    assert_eq!(texts(&world), ["hi"]);
    bridge.stop().await;
}

#[tokio::test]
async fn a_webhook_gets_a_signed_reply_with_its_key() {
    let (world, receiver, account) = with_receiver().await;
    let bridge = world.bridge().await;
    let target = Target { reply_to: Some("m1".into()), ..target("webhook", account, "room") };

    let id = world.reply_to(target, "**hi**").await;
    world.delivered(id, "sent").await;

    let post = receiver.posts().remove(0);
    assert_eq!(
        post.json(),
        json!({"delivery_id": id.to_string(), "conversation": "room",
        "thread": null, "text": "**hi**", "part": 0, "in_reply_to": "m1"})
    );
    assert_eq!(post.key(), Some(id.to_string().as_str()));
    let timestamp = post.header("x-holdfast-timestamp").unwrap();
    let body = String::from_utf8(post.body.clone()).unwrap();
    let key = id.to_string();
    let expected = crate::programs::signature(SECRET, timestamp, &key, &body);
    assert_eq!(post.header("x-holdfast-signature"), Some(expected.as_str()));
    bridge.stop().await;
}

#[tokio::test]
async fn a_webhook_whose_answer_is_lost_is_called_again_with_the_same_key() {
    let (world, receiver, account) = with_receiver().await;
    let bridge = world.bridge().await;
    receiver.faults().next(1, &Fault::Status(500));
    receiver.faults().next(1, &Fault::CutAfter);

    let id = world.reply("webhook", account, "room", "hi").await;
    let delivery = world.delivered(id, "sent").await;

    assert_eq!(delivery.attempt, 3);
    let keys: Vec<_> = receiver.posts().iter().map(|post| post.key().unwrap().to_owned()).collect();
    assert_eq!(keys, vec![id.to_string(); 3]);
    assert_eq!(receiver.unique().len(), 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_receiver_that_has_it_already_has_it() {
    let (world, receiver, account) = with_receiver().await;
    let bridge = world.bridge().await;
    receiver.faults().next(1, &Fault::Status(409));

    let id = world.reply("webhook", account, "room", "hi").await;

    assert_eq!(world.delivered(id, "sent").await.attempt, 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_tenant_cannot_make_us_call_a_private_address() {
    let (world, receiver, account) = with_receiver().await;
    let mut config = world.config.clone();
    config.egress.allow.clear();
    config.bridge.give_up_after = Duration::from_millis(1);
    let bridge = world.bridge_with(config).await;

    let id = world.reply("webhook", account, "room", "hi").await;
    let delivery = world.delivered(id, "dead").await;

    assert!(delivery.reason.unwrap().contains("private address"));
    assert_eq!(receiver.posts().len(), 0);
    bridge.stop().await;
}

#[tokio::test]
async fn a_reply_of_a_deleted_account_is_dead_and_of_one_without_url_too() {
    use holdfast_directory::Actor;

    let (world, account) = with_bot().await;
    let silent = world.account("webhook", json!({}), json!({"secret": SECRET})).await;
    world.directory.accounts().delete(world.tenant, Actor::Operator, account).await.unwrap();
    let bridge = world.bridge().await;

    let gone = world.reply("telegram", account, "7", "hi").await;
    let nowhere = world.reply("webhook", silent.id, "room", "hi").await;

    assert!(world.delivered(gone, "dead").await.reason.unwrap().contains("deleted"));
    assert!(world.delivered(nowhere, "dead").await.reason.unwrap().contains("`url`"));
    bridge.stop().await;
}

#[tokio::test]
async fn a_bridge_that_stops_finishes_what_is_at_hand() {
    let (world, receiver, account) = with_receiver().await;
    let bridge = world.bridge().await;
    receiver.faults().next(1, &Fault::Hang(Duration::from_secs(1)));

    let id = world.reply("webhook", account, "room", "hi").await;
    assert!(receiver.wait_for(1, Duration::from_secs(60)).await);
    bridge.stop().await;

    assert_eq!(world.delivery(id).await.state, "sent");
    assert_eq!(receiver.posts().len(), 1);
}

/// Number of the posts until a second after this one: later ones may follow one that timed out.
fn posts_within_a_second(posts: &[Post], last: &Post) -> usize {
    posts.iter().filter(|post| post.at <= last.at + Duration::from_secs(1)).count()
}

#[tokio::test]
async fn a_receiver_that_hangs_does_not_hold_up_anothers_replies() {
    use holdfast_directory::{Actor, NewAccount};

    let (world, slow, account) = with_receiver().await;
    let quick = FakeReceiver::start().await.unwrap();
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await.unwrap();
    let new = NewAccount {
        channel: "webhook".into(),
        name: "quick".into(),
        enabled: true,
        settings: json!({"url": quick.url()}),
        secrets: Some(json!({"secret": SECRET})),
    };
    let theirs =
        world.directory.accounts().create(other.id, Actor::Operator, new).await.unwrap().id;
    let mut config = world.config.clone();
    config.bridge.deliver_slots = 4;
    let bridge = world.bridge_with(config).await;
    slow.faults().always(Fault::Hang(Duration::from_secs(60)));

    for n in 0..12 {
        world.reply("webhook", account, &format!("room {n}"), "hi").await;
    }
    assert!(slow.wait_for(1, Duration::from_secs(60)).await);
    world.reply_of(other.id, target("webhook", theirs, "room"), "hello").await;

    assert!(quick.wait_for(1, Duration::from_secs(60)).await);
    // Those that wait for their account's share are not attempted.
    sleep(Duration::from_secs(1)).await;
    let attempts: i32 = world.deliveries().await.iter().map(|delivery| delivery.attempt).sum();
    let posts = slow.posts();
    assert!(usize::try_from(attempts).unwrap() <= posts.len(), "{attempts}");
    assert_eq!(posts_within_a_second(&posts, &quick.posts()[0]), 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_tenant_with_many_accounts_does_not_take_all_slots() {
    use holdfast_directory::{Actor, NewAccount};

    let world = World::new().await;
    let (slow, quick) =
        (FakeReceiver::start().await.unwrap(), FakeReceiver::start().await.unwrap());
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await.unwrap();
    let account = async |tenant, name: String, receiver: &FakeReceiver| {
        let new = NewAccount {
            channel: "webhook".into(),
            name,
            enabled: true,
            settings: json!({"url": receiver.url()}),
            secrets: Some(json!({"secret": SECRET})),
        };
        world.directory.accounts().create(tenant, Actor::Operator, new).await.unwrap().id
    };
    slow.faults().always(Fault::Hang(Duration::from_secs(60)));
    for n in 0..12 {
        let id = account(world.tenant, format!("slow {n}"), &slow).await;
        world.reply("webhook", id, &format!("room {n}"), "hi").await;
    }
    let theirs = [
        account(other.id, "one".to_owned(), &quick).await,
        account(other.id, "two".to_owned(), &quick).await,
    ];
    let mut config = world.config.clone();
    config.bridge.deliver_slots = 8;
    let bridge = world.bridge_with(config).await;

    // Twelve accounts, none beyond its own share: six of eight slots, and two for other tenants.
    assert!(slow.wait_for(6, Duration::from_secs(60)).await);
    for (n, account) in theirs.into_iter().enumerate() {
        world.reply_of(other.id, target("webhook", account, &format!("r {n}")), "hello").await;
    }

    assert!(quick.wait_for(2, Duration::from_secs(60)).await);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(posts_within_a_second(&slow.posts(), &quick.posts()[1]), 6);
    bridge.stop().await;
}

#[tokio::test]
async fn telegram_fetches_no_address_of_an_answer_for_a_preview() {
    let (world, account) = with_bot().await;
    let bridge = world.bridge().await;

    let id = world.reply("telegram", account, "7", "see https://evil.example/?d=42").await;
    world.delivered(id, "sent").await;

    let calls = world.telegram.calls();
    let sent = calls.iter().find(|call| call.method == "sendMessage").unwrap();
    assert_eq!(sent.params["link_preview_options"]["is_disabled"], true);
    bridge.stop().await;
}

#[tokio::test]
async fn a_request_for_approval_has_buttons_on_telegram() {
    let (world, account) = with_bot().await;
    let asked = world.ask(target("telegram", account, "7"), "Approval needed").await;
    let bridge = world.bridge().await;

    eventually("it is sent", async || texts(&world).len() == 1).await;

    let calls = world.telegram.calls();
    let sent = calls.iter().find(|call| call.method == "sendMessage").unwrap();
    let keyboard = &sent.params["reply_markup"]["inline_keyboard"];
    assert_eq!(keyboard[0][0]["text"], "Allow once");
    assert_eq!(keyboard[2][0]["callback_data"], format!("d:{asked}"));
    bridge.stop().await;
}

#[tokio::test]
async fn a_long_request_for_approval_is_shown_in_full_before_it_has_buttons() {
    let (world, account) = with_bot().await;
    let lines: Vec<String> = (0..900).map(|n| format!("| line {n} of a script")).collect();
    let text = format!("Approval needed\n```\n{}\n```\nAnswer", lines.join("\n"));
    let asked = world.ask(target("telegram", account, "7"), &text).await;
    let bridge = world.bridge().await;

    eventually("all is sent", async || {
        texts(&world).last().is_some_and(|text| text.ends_with("Answer"))
    })
    .await;

    let calls = world.telegram.calls();
    let sent: Vec<_> = calls.iter().filter(|call| call.method == "sendMessage").collect();
    let (last, before) = sent.split_last().unwrap();
    assert!(before.len() > 3 && before.iter().all(|call| call.params["reply_markup"].is_null()));
    let keyboard = &last.params["reply_markup"]["inline_keyboard"];
    assert_eq!(keyboard[2][0]["callback_data"], format!("d:{asked}"));
    let shown = texts(&world).join("\n");
    assert!(lines.iter().all(|line| shown.contains(line.as_str())), "{shown}");
    bridge.stop().await;
}

#[tokio::test]
async fn a_request_that_is_decided_has_no_buttons_any_more() {
    let (world, account) = with_bot().await;
    let asked = world.ask(target("telegram", account, "7"), "Approval needed").await;
    let bridge = world.bridge().await;
    eventually("it is sent", async || texts(&world).len() == 1).await;
    let edits = || {
        let calls = world.telegram.calls().into_iter();
        calls.filter(|call| call.method == "editMessageReplyMarkup").collect::<Vec<_>>()
    };
    assert_eq!(edits().len(), 0);

    world
        .sessions
        .approvals()
        .resolve(
            world.tenant,
            asked,
            holdfast_session::NewDecision::new(ApprovalDecision::Deny, "key_test"),
        )
        .await
        .unwrap();

    eventually("the buttons are taken away", async || edits().len() == 1).await;
    let edit = edits().remove(0);
    let sent = world.deliveries().await.remove(0).platform_id.unwrap();
    assert_eq!(edit.params["message_id"].to_string(), sent);
    assert_eq!(edit.params["chat_id"], 7);
    assert_eq!(edit.params.get("reply_markup"), None);
    let again = world.sessions.approvals().resolve(
        world.tenant,
        asked,
        holdfast_session::NewDecision::new(ApprovalDecision::Deny, "key_test"),
    );
    assert!(again.await.unwrap().duplicate);
    assert_eq!(world.deliveries().await.len(), 2);
    bridge.stop().await;
}

#[tokio::test]
async fn a_call_that_telegram_says_was_made_is_made_whatever_its_result() {
    let (world, account) = with_bot().await;
    world.telegram.answer_edits_with_null();
    let asked = world.ask(target("telegram", account, "7"), "Approval needed").await;
    let bridge = world.bridge().await;
    eventually("it is sent", async || texts(&world).len() == 1).await;

    let deny = ApprovalDecision::Deny;
    world
        .sessions
        .approvals()
        .resolve(world.tenant, asked, holdfast_session::NewDecision::new(deny, "key_test"))
        .await
        .unwrap();
    eventually("the buttons are taken away", async || {
        world.deliveries().await.iter().filter(|delivery| delivery.state == "sent").count() == 2
    })
    .await;

    assert_eq!(world.deliveries().await[1].attempt, 1);
    bridge.stop().await;
}
