//! A program behind a signed webhook.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::time::Duration;

use holdfast_testkit::{FakeReceiver, Fault};
use serde_json::{Value, json};

use super::{Address, Failure, File, Got, Lack, Platform, Where, Written};
use crate::{programs, world::World};

const SECRET: &str = "webhook-secret-0123456789";

pub struct WebhookPlatform {
    receiver: FakeReceiver,
}

impl WebhookPlatform {
    async fn post(&self, at: &Address, key: &str, body: Value) {
        let (now, body) = (programs::now().to_string(), body.to_string());
        let sent = reqwest::Client::new()
            .post(format!("{}/webhook/{}", at.url, at.account))
            .header("x-holdfast-timestamp", &now)
            .header("x-holdfast-signature", programs::signature(SECRET, &now, key, &body))
            .header("idempotency-key", key)
            .body(body)
            .send();
        sent.await.unwrap();
    }
}

impl Platform for WebhookPlatform {
    const CHANNEL: &'static str = "webhook";

    async fn start(_: &mut World) -> Self {
        Self { receiver: FakeReceiver::start().await.unwrap() }
    }

    fn lacks(&self) -> &'static [Lack] {
        &[
            Lack::Typing,
            Lack::Buttons,
            Lack::Edits,
            Lack::FileLimit,
            Lack::Connection,
            Lack::Notices,
            Lack::CredentialCheck,
        ]
    }

    fn account(&self) -> (Value, Value) {
        (json!({"url": self.receiver.url(), "actions": true}), json!({"secret": SECRET}))
    }

    fn wrong_secrets(&self) -> Value {
        json!({"secret": "another-secret-0123456789"})
    }

    fn allow_forms(&self) -> Vec<Value> {
        vec![json!("anna"), json!("anna|Anna"), json!("*")]
    }

    fn secret(&self) -> &'static str {
        SECRET
    }

    async fn is_heard(&self, _: &World) {}

    async fn write(&self, _: &World, at: &Address, written: Written) {
        let sender = if written.is_allowed { "anna" } else { "eve" };
        let mut body = json!({"sender": sender, "text": written.text});
        if written.place != Where::Direct {
            body["group"] = true.into();
            body["conversation"] = "team".into();
            body["mentioned"] = (written.place == Where::Mention).into();
        }
        self.post(at, &format!("m{}", written.id), body).await;
    }

    async fn write_file(&self, _: &World, at: &Address, file: File) {
        let file = json!({"name": file.name, "media_type": "image/png", "content": STANDARD.encode(file.content)});
        self.post(at, "file", json!({"sender": "anna", "attachments": [file]})).await;
    }

    async fn press(&self, _: &World, _: &Address, _: &str) {}

    fn got(&self, _: &World) -> Vec<Got> {
        let posts = self.receiver.unique().into_iter().map(|post| post.json());
        let text = |value: &Value| value.as_str().map(str::to_owned);
        posts
            .map(|post| Got {
                chat: text(&post["conversation"]).unwrap_or_default(),
                text: text(&post["text"]).unwrap_or_default(),
                reply_to: text(&post["in_reply_to"]),
                thread: text(&post["thread"]),
                file: text(&post["file"]["name"]).map(|name| {
                    (name, usize::try_from(post["file"]["size"].as_u64().unwrap()).unwrap())
                }),
                buttons: Vec::new(),
            })
            .collect()
    }

    fn reactions(&self, _: &World) -> usize {
        self.receiver.unique().iter().filter(|post| post.json()["action"] == "react").count()
    }

    fn is_typing_shown(&self, _: &World) -> bool {
        false
    }

    fn fail_next(&self, _: &World, failure: Failure) {
        let fault = match failure {
            Failure::Refused => Fault::Status(400),
            Failure::RateLimited => Fault::RateLimited { retry_after: Duration::from_secs(1) },
            Failure::AnswerLost => Fault::CutAfter,
        };
        self.receiver.faults().next(1, &fault);
    }

    fn cut(&self, _: &World) {}

    fn connections(&self, _: &World) -> (usize, usize) {
        (0, 0)
    }

    fn chat(&self) -> &'static str {
        "anna"
    }

    fn group(&self) -> &'static str {
        "team"
    }
}
