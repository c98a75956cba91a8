//! Tests of the fake Telegram as bots see it.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::faults::Fault;
use crate::http;
use crate::webhook::FakeReceiver;

const BOT: &str = "42:secret";

async fn call(telegram: &FakeTelegram, method: &str, params: Value) -> anyhow::Result<Value> {
    let url = format!("{}/bot{BOT}/{method}", telegram.url());
    let headers = [("content-type", "application/json")];
    let answer = http::request("POST", &url, &headers, params.to_string().as_bytes()).await?;
    let body: Value = serde_json::from_slice(&answer.body)?;
    let code = if body["ok"] == true { 200 } else { body["error_code"].as_u64().unwrap() };
    assert_eq!(u64::from(answer.status), code);
    Ok(body)
}

async fn poll(telegram: &FakeTelegram, offset: i64, timeout: u64) -> Value {
    call(telegram, "getUpdates", json!({"offset": offset, "timeout": timeout})).await.unwrap()
}

fn texts(answer: &Value) -> Vec<&str> {
    let updates = answer["result"].as_array().unwrap();
    updates.iter().map(|update| update["message"]["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_update_comes_again_until_it_is_confirmed() {
    let telegram = FakeTelegram::start().await.unwrap();
    let one = telegram.push(BOT, Incoming::private(7, "one"));
    let two = telegram.push(BOT, Incoming::private(7, "two"));

    assert_eq!(two.update_id, one.update_id + 1);
    assert_eq!(texts(&poll(&telegram, 0, 0).await), ["one", "two"]);
    assert_eq!(texts(&poll(&telegram, 0, 0).await), ["one", "two"]);
    assert_eq!(texts(&poll(&telegram, two.update_id, 0).await), ["two"]);
    assert_eq!(texts(&poll(&telegram, 0, 0).await), ["two"]);
    assert_eq!(poll(&telegram, two.update_id + 1, 0).await["result"], json!([]));
    assert_eq!(telegram.pending(BOT), 0);
}

#[tokio::test]
async fn a_long_poll_waits_for_an_update_or_its_time() {
    let telegram = FakeTelegram::start().await.unwrap();

    let (answer, ()) = tokio::join!(poll(&telegram, 0, 30), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        telegram.push(BOT, Incoming::private(7, "at last"));
    });
    assert_eq!(texts(&answer), ["at last"]);

    let begun = Instant::now();
    assert_eq!(poll(&telegram, 100, 1).await["result"], json!([]));
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_second_poll_ends_the_first_with_a_conflict() {
    let telegram = FakeTelegram::start().await.unwrap();

    let polled = async |times| {
        while telegram.polls() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };

    let (first, second) = tokio::join!(poll(&telegram, 0, 30), async {
        polled(1).await;
        let other = poll(&telegram, 0, 30);
        let (other, ()) = tokio::join!(other, async {
            polled(2).await;
            telegram.push(BOT, Incoming::private(7, "hi"));
        });
        other
    });

    assert_eq!(first["error_code"], 409);
    assert_eq!(texts(&second), ["hi"]);
    assert_eq!(telegram.conflicts(), 1);
}

#[tokio::test]
async fn a_poll_whose_client_went_away_is_no_conflict() {
    let telegram = FakeTelegram::start().await.unwrap();

    let patience = Duration::from_millis(100);
    assert!(tokio::time::timeout(patience, poll(&telegram, 0, 30)).await.is_err());
    tokio::time::sleep(Duration::from_millis(100)).await;
    poll(&telegram, 0, 0).await;

    assert_eq!(telegram.conflicts(), 0);
}

#[tokio::test]
async fn a_message_says_where_it_is_from() {
    let telegram = FakeTelegram::start().await.unwrap();
    let asked = telegram.push(BOT, Incoming::group(-5, 7, "@holdfast_bot hi").topic(3));
    telegram.push(BOT, Incoming::group(-5, 8, "and").reply_to(asked.message_id));
    telegram.push(BOT, Incoming::group(-5, 7, "@holdfast_bot ho").edited(asked.message_id));

    let updates = poll(&telegram, 0, 0).await["result"].clone();

    let message = &updates[0]["message"];
    assert_eq!(message["chat"]["type"], "supergroup");
    assert_eq!(message["message_thread_id"], 3);
    assert_eq!(message["entities"], json!([{"type": "mention", "offset": 0, "length": 13}]));
    assert_eq!(updates[1]["message"]["reply_to_message"]["message_id"], asked.message_id);
    assert_eq!(updates[2]["edited_message"]["message_id"], asked.message_id);
    assert_eq!(updates[2]["edited_message"]["text"], "@holdfast_bot ho");
}

#[tokio::test]
async fn what_is_sent_is_kept_and_can_be_edited() {
    let telegram = FakeTelegram::start().await.unwrap();
    let params = json!({"chat_id": -5, "text": "hello", "message_thread_id": 3,
        "parse_mode": "HTML", "reply_parameters": {"message_id": 11}});

    let sent = call(&telegram, "sendMessage", params).await.unwrap();
    let id = sent["result"]["message_id"].as_i64().unwrap();
    let edit = json!({"chat_id": -5, "message_id": id, "text": "hello again"});
    let edited = call(&telegram, "editMessageText", edit.clone()).await.unwrap();
    let same = call(&telegram, "editMessageText", edit).await.unwrap();

    let kept = &telegram.sends()[0];
    assert_eq!((kept.chat, kept.topic, kept.reply_to), (-5, Some(3), Some(11)));
    assert_eq!((kept.text.as_str(), kept.parse_mode.as_deref()), ("hello", Some("HTML")));
    assert_eq!(edited["ok"], true);
    assert_eq!(telegram.text_of(-5, id).as_deref(), Some("hello again"));
    assert!(same["description"].as_str().unwrap().contains("not modified"));
    assert_eq!(telegram.calls().len(), 3);
}

#[tokio::test]
async fn texts_that_telegram_refuses_are_refused() {
    let telegram = FakeTelegram::start().await.unwrap();
    telegram.refuse_entities(1);
    let formatted = json!({"chat_id": 7, "text": "*x", "parse_mode": "MarkdownV2"});
    let table = [
        (json!({"chat_id": 7, "text": "x".repeat(4097)}), 400),
        (json!({"chat_id": 7, "text": "x".repeat(4096)}), 200),
        (json!({"chat_id": 7, "text": " "}), 400),
        (json!({"text": "x"}), 400),
        (formatted.clone(), 400),
        (formatted, 200),
    ];

    for (params, expected) in table {
        let answer = call(&telegram, "sendMessage", params).await.unwrap();
        assert_eq!(answer["error_code"].as_u64().unwrap_or(200), expected, "{answer}");
    }
    assert_eq!(telegram.sends().len(), 2);
}

#[tokio::test]
async fn faults_happen_before_or_after_the_message_is_sent() {
    let telegram = FakeTelegram::start().await.unwrap();
    let send = async || call(&telegram, "sendMessage", json!({"chat_id": 7, "text": "x"})).await;
    let retry_after = Duration::from_secs(3);
    telegram.faults().next(1, &Fault::RateLimited { retry_after });
    telegram.faults().next(1, &Fault::Status(500));
    telegram.faults().next(1, &Fault::CutBefore);
    telegram.faults().next(1, &Fault::CutAfter);

    assert_eq!(send().await.unwrap()["parameters"]["retry_after"], 3);
    assert_eq!(send().await.unwrap()["error_code"], 500);
    assert!(send().await.is_err());
    assert_eq!(telegram.sends().len(), 0);
    assert!(send().await.is_err());
    assert_eq!(telegram.sends().len(), 1);
    assert_eq!(send().await.unwrap()["ok"], true);
}

#[tokio::test]
async fn a_webhook_is_called_until_it_agrees_and_shuts_polling_out() {
    let telegram = FakeTelegram::start().await.unwrap();
    let receiver = FakeReceiver::start().await.unwrap();
    receiver.faults().next(1, &Fault::Status(500));
    let params = json!({"url": receiver.url(), "secret_token": "s3cret"});

    call(&telegram, "setWebhook", params).await.unwrap();
    telegram.push(BOT, Incoming::private(7, "one"));
    telegram.push(BOT, Incoming::private(7, "two"));

    assert!(receiver.wait_for(3, Duration::from_secs(60)).await);
    let bodies: Vec<String> = receiver
        .posts()
        .iter()
        .map(|post| post.json()["message"]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(bodies, ["one", "one", "two"]);
    let secret = receiver.posts()[0].header("x-telegram-bot-api-secret-token").map(str::to_owned);
    assert_eq!(secret.as_deref(), Some("s3cret"));
    assert_eq!(poll(&telegram, 0, 0).await["error_code"], 409);

    call(&telegram, "deleteWebhook", json!({})).await.unwrap();
    assert_eq!(poll(&telegram, 0, 0).await["ok"], true);
}

#[tokio::test]
async fn a_bot_knows_itself_and_a_revoked_token_is_nobody() {
    let telegram = FakeTelegram::start().await.unwrap();

    let me = call(&telegram, "getMe", json!({})).await.unwrap();
    telegram.revoke(BOT);
    let nobody = call(&telegram, "getMe", json!({})).await.unwrap();

    assert_eq!((&me["result"]["id"], &me["result"]["username"]), (&json!(42), &json!(BOT_NAME)));
    assert_eq!(nobody["error_code"], 401);
}
