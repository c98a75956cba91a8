//! Telegram, as `testkit` has it.

use std::time::Duration;

use holdfast_testkit::Fault;
use serde_json::{Value, json};

use super::{Address, Failure, File, Got, Lack, Platform, Where, Written};
use crate::world::{TOKEN, World, eventually};

pub struct TelegramPlatform;

impl Platform for TelegramPlatform {
    const CHANNEL: &'static str = "telegram";

    async fn start(world: &mut World) -> Self {
        world.telegram.revoke("43:WRONG");
        Self
    }

    fn lacks(&self) -> &'static [Lack] {
        &[]
    }

    fn account(&self) -> (Value, Value) {
        (json!({"groups": {"allow": [-5]}}), json!({"token": TOKEN}))
    }

    fn wrong_secrets(&self) -> Value {
        json!({"token": "43:WRONG"})
    }

    fn allow_forms(&self) -> Vec<Value> {
        vec![json!("7|anna"), json!(7), json!("7"), json!("*")]
    }

    fn secret(&self) -> &'static str {
        "TEST-token"
    }

    async fn is_heard(&self, world: &World) {
        let before = world.telegram.polls();
        eventually("the bot is polled", async || world.telegram.polls() > before || before > 0)
            .await;
    }

    async fn write(&self, world: &World, _: &Address, written: Written) {
        let sender = if written.is_allowed { 7 } else { 9 };
        let (chat, kind) = match written.place {
            Where::Direct => (sender, "private"),
            Where::Group | Where::Mention => (-5, "supergroup"),
        };
        let (text, entities) = match written.place {
            Where::Mention => (
                format!("@holdfast_bot {}", written.text),
                json!([{"type": "mention", "offset": 0, "length": 13}]),
            ),
            Where::Direct | Where::Group => (written.text, json!([])),
        };
        world.telegram.push_raw(
            TOKEN,
            json!({"message": {
                "message_id": written.id, "date": 1_800_000_000,
                "chat": {"id": chat, "type": kind}, "text": text, "entities": entities,
                "from": {"id": sender, "first_name": "Anna", "username": if sender == 7 { "anna" } else { "eve" }},
            }}),
        );
    }

    async fn write_file(&self, world: &World, _: &Address, file: File) {
        world.telegram.put_file("a-file", file.content);
        world.telegram.push_raw(
            TOKEN,
            json!({"message": {
                "message_id": 70, "date": 1_800_000_000, "chat": {"id": 7, "type": "private"},
                "from": {"id": 7, "first_name": "Anna", "username": "anna"},
                "document": {"file_id": "a-file", "file_name": file.name},
            }}),
        );
    }

    async fn press(&self, world: &World, _: &Address, data: &str) {
        world.telegram.push_raw(
            TOKEN,
            json!({"callback_query": {"id": "1", "from": {"id": 7, "first_name": "A", "username": "anna"},
                "data": data, "chat_instance": "1",
                "message": {"message_id": 5, "date": 1, "chat": {"id": 7, "type": "private"}}}}),
        );
    }

    fn got(&self, world: &World) -> Vec<Got> {
        let calls = world.telegram.calls();
        let mut got: Vec<Got> = world
            .telegram
            .sends()
            .into_iter()
            .map(|sent| Got {
                chat: sent.chat.to_string(),
                text: sent.text,
                reply_to: sent.reply_to.map(|id| id.to_string()),
                thread: sent.topic.map(|id| id.to_string()),
                ..Got::default()
            })
            .collect();
        for call in calls {
            if let Some(first) = got.first_mut()
                && let Some(rows) = call.params["reply_markup"]["inline_keyboard"].as_array()
            {
                let data = rows.iter().map(|row| row[0]["callback_data"].as_str().unwrap());
                first.buttons = data.map(str::to_owned).collect();
            }
            let document = &call.params["document"];
            if call.method == "sendDocument" {
                let size = usize::try_from(document["file_size"].as_u64().unwrap()).unwrap();
                got.push(Got {
                    text: call.params["caption"].as_str().unwrap_or_default().to_owned(),
                    file: Some((document["file_name"].as_str().unwrap().to_owned(), size)),
                    ..Got::default()
                });
            }
        }
        got
    }

    fn shown(&self, world: &World) -> Vec<String> {
        let sends = world.telegram.sends().into_iter();
        sends.filter_map(|sent| world.telegram.text_of(sent.chat, sent.message_id)).collect()
    }

    fn reactions(&self, world: &World) -> usize {
        let calls = world.telegram.calls();
        calls.iter().filter(|call| call.method == "setMessageReaction").count()
    }

    fn is_typing_shown(&self, world: &World) -> bool {
        world.telegram.calls().iter().any(|call| call.method == "sendChatAction")
    }

    fn fail_next(&self, world: &World, failure: Failure) {
        let fault = match failure {
            Failure::Refused => Fault::Status(400),
            Failure::RateLimited => Fault::RateLimited { retry_after: Duration::from_secs(1) },
            Failure::AnswerLost => Fault::CutAfter,
        };
        world.telegram.faults().next(1, &fault);
    }

    fn cut(&self, world: &World) {
        world.telegram.answer_polls_at_once();
    }

    fn connections(&self, world: &World) -> (usize, usize) {
        let polls = usize::try_from(world.telegram.polls()).unwrap();
        (1 + usize::try_from(world.telegram.conflicts()).unwrap(), polls)
    }

    fn sign_ins(&self, world: &World) -> usize {
        world.telegram.calls().iter().filter(|call| call.method == "getMe").count()
    }

    fn chat(&self) -> &'static str {
        "7"
    }

    fn group(&self) -> &'static str {
        "-5"
    }
}
