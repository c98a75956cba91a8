//! Matrix, against the small homeserver of the test kit.
//!
//! `tests/clients/channels.py` runs the channel against Synapse.

use std::time::Duration;

use holdfast_testkit::{
    FakeMatrix, Fault,
    matrix::{GROUP, TOKEN},
};
use serde_json::{Value, json};

use super::{Address, Failure, File, Got, Lack, Platform, Where, Written};
use crate::world::{World, eventually};

pub struct MatrixPlatform {
    server: FakeMatrix,
}

impl Platform for MatrixPlatform {
    const CHANNEL: &'static str = "matrix";

    async fn start(_: &mut World) -> Self {
        Self { server: FakeMatrix::start().await.unwrap() }
    }

    fn lacks(&self) -> &'static [Lack] {
        &[Lack::Buttons]
    }

    fn account(&self) -> (Value, Value) {
        let settings = json!({"homeserver": self.server.url(), "groups": {"allow": [GROUP]}});
        (settings, json!({"access_token": TOKEN}))
    }

    fn wrong_secrets(&self) -> Value {
        json!({"access_token": "WRONG-0123456789"})
    }

    fn allow_forms(&self) -> Vec<Value> {
        vec![json!("@anna:x"), json!("@anna:x|anna"), json!("*")]
    }

    fn secret(&self) -> &'static str {
        TOKEN
    }

    async fn is_heard(&self, _: &World) {
        // The first sync has old events, and is not taken.
        eventually("the homeserver is polled", async || {
            let polls = self.server.polls();
            polls.0 > 0 && polls.1 > 1
        })
        .await;
    }

    async fn write(&self, _: &World, _: &Address, written: Written) {
        let sender = if written.is_allowed { "@anna:x" } else { "@eve:x" };
        let room = match (written.place, written.is_allowed) {
            (Where::Direct, true) => "!dm:x",
            (Where::Direct, false) => "!eve:x",
            (Where::Group | Where::Mention, _) => GROUP,
        };
        let users = if written.place == Where::Mention { vec!["@bot:x"] } else { vec![] };
        let event = json!({"type": "m.room.message", "event_id": format!("${}", written.id), "sender": sender,
            "origin_server_ts": 1, "content": {"msgtype": "m.text", "body": written.text, "m.mentions": {"user_ids": users}}});
        self.server.push(room, event);
    }

    async fn write_file(&self, _: &World, _: &Address, file: File) {
        self.server.put_file("in", file.content);
        let event = json!({"type": "m.room.message", "event_id": "$file", "sender": "@anna:x",
            "content": {"msgtype": "m.image", "body": file.name, "url": "mxc://x/in"}});
        self.server.push("!dm:x", event);
    }

    async fn press(&self, _: &World, _: &Address, _: &str) {}

    fn got(&self, _: &World) -> Vec<Got> {
        let sent = self.server.sent();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let messages = sent.iter().filter(|event| {
            let is_edit = event.content["m.relates_to"]["rel_type"] == "m.replace";
            event.kind == "m.room.message" && !is_edit
        });
        messages
            .map(|event| {
                let (content, relation) = (&event.content, &event.content["m.relates_to"]);
                let size =
                    content["info"]["size"].as_u64().and_then(|size| usize::try_from(size).ok());
                Got {
                    chat: event.room.clone(),
                    text: text(&content["body"]).unwrap_or_default(),
                    // In a thread it may stand for clients that do not know threads.
                    reply_to: text(&relation["m.in_reply_to"]["event_id"])
                        .filter(|_| relation["is_falling_back"] != true),
                    thread: text(&relation["event_id"]),
                    file: text(&content["filename"]).map(|name| (name, size.unwrap())),
                    buttons: Vec::new(),
                }
            })
            .collect()
    }

    fn shown(&self, _: &World) -> Vec<String> {
        let sent = self.server.sent();
        let shown = sent.iter().enumerate().filter_map(|(at, event)| {
            let id = format!("$sent{at}");
            let is_redacted = sent.iter().any(|event| event.content["redacts"] == id);
            let is_edit = event.content["m.relates_to"]["rel_type"] == "m.replace";
            if event.kind != "m.room.message" || is_edit || is_redacted {
                return None;
            }
            let mut edits = sent.iter().filter(|edit| {
                let relation = &edit.content["m.relates_to"];
                relation["rel_type"] == "m.replace" && relation["event_id"] == id
            });
            let newest =
                edits.next_back().map_or(&event.content, |edit| &edit.content["m.new_content"]);
            newest["body"].as_str().map(str::to_owned)
        });
        shown.collect()
    }

    fn reactions(&self, _: &World) -> usize {
        let sent = self.server.sent();
        sent.iter().filter(|event| event.kind == "m.reaction").count()
    }

    fn is_typing_shown(&self, _: &World) -> bool {
        self.server.is_typing_shown()
    }

    fn fail_next(&self, _: &World, failure: Failure) {
        let fault = match failure {
            Failure::Refused => Fault::Status(403),
            Failure::RateLimited => Fault::RateLimited { retry_after: Duration::from_secs(1) },
            Failure::AnswerLost => Fault::CutAfter,
        };
        self.server.faults().next(1, &fault);
    }

    fn cut(&self, _: &World) {
        self.server.cut();
    }

    fn connections(&self, _: &World) -> (usize, usize) {
        self.server.polls()
    }

    fn sign_ins(&self, _: &World) -> usize {
        self.server.sign_ins()
    }

    fn chat(&self) -> &'static str {
        "!dm:x"
    }

    fn group(&self) -> &'static str {
        GROUP
    }
}
