//! E-mail, against the small mail server of the test kit.
//!
//! `tests/clients/channels.py` runs the channel against Dovecot and Postfix.

use std::{net::Ipv4Addr, time::Duration};

use holdfast_testkit::{
    FakeMail, Fault,
    platforms::{AccountSettings, SECRET_PREFIX},
};
use mail_parser::{HeaderValue, MessageParser, MimeHeaders as _};
use serde_json::{Value, json};

use super::{Address, Failure, File, Got, Lack, Platform, Written};
use crate::world::{World, eventually};

/// Name of the mailbox.
const AGENT: &str = "agent";

pub struct EmailPlatform {
    server: FakeMail,
    account: AccountSettings,
}

impl Platform for EmailPlatform {
    const CHANNEL: &'static str = "email";

    async fn start(_: &mut World) -> Self {
        let server = FakeMail::new(Ipv4Addr::LOCALHOST.into());
        let account = server.account(AGENT).await.unwrap();
        Self { server, account }
    }

    fn lacks(&self) -> &'static [Lack] {
        &[
            Lack::Groups,
            Lack::Splitting,
            Lack::RateLimits,
            Lack::Typing,
            Lack::Reactions,
            Lack::Quotes,
            Lack::Buttons,
            Lack::Edits,
            Lack::Notices,
        ]
    }

    fn account(&self) -> (Value, Value) {
        let AccountSettings { mut settings, secrets } = self.account.clone();
        settings.as_object_mut().unwrap().remove("allow");
        (settings, secrets)
    }

    fn wrong_secrets(&self) -> Value {
        json!({"password": "WRONG"})
    }

    fn allow_forms(&self) -> Vec<Value> {
        vec![json!("anna@y.example"), json!("Anna@Y.example"), json!("@y.example"), json!("*")]
    }

    fn secret(&self) -> &'static str {
        SECRET_PREFIX
    }

    async fn is_heard(&self, _: &World) {
        eventually("the mailbox is watched", async || self.server.connections(AGENT).0 > 0).await;
    }

    async fn write(&self, _: &World, _: &Address, written: Written) {
        let from = if written.is_allowed { "anna@y.example" } else { "eve@z.example" };
        let (id, text) = (written.id, written.text);
        let (_, domain) = from.split_once('@').unwrap();
        let mail = format!("From: <{from}>\nMessage-ID: <{id}@y.example>\n\n{text}\n");
        self.server.push_verified(AGENT, domain, &mail);
    }

    async fn write_file(&self, _: &World, _: &Address, file: File) {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let content = STANDARD.encode(file.content);
        let mail = format!(
            "From: anna@y.example\nMessage-ID: <f@y.example>\nMIME-Version: 1.0\n\
             Content-Type: image/png; name={0}\nContent-Disposition: attachment; filename={0}\n\
             Content-Transfer-Encoding: base64\n\n{content}\n",
            file.name
        );
        self.server.push_verified(AGENT, "y.example", &mail);
    }

    async fn press(&self, _: &World, _: &Address, _: &str) {}

    fn got(&self, _: &World) -> Vec<Got> {
        let sent = self.server.sent(AGENT);
        let parsed =
            sent.iter().map(|mail| MessageParser::default().parse(mail.as_bytes()).unwrap());
        parsed
            .map(|mail| {
                let root = match mail.references() {
                    HeaderValue::Text(root) => Some(root.to_string()),
                    _ => None,
                };
                let subject = mail.subject().unwrap_or_default().trim_start_matches("Re: ");
                let file = mail.attachments().next();
                Got {
                    chat: mail.to().unwrap().first().unwrap().address().unwrap().to_owned(),
                    text: mail.body_text(0).unwrap_or_default().trim_end().to_owned(),
                    reply_to: None,
                    thread: root.map(|root| format!("{root} {subject}")),
                    file: file.map(|file| {
                        (file.attachment_name().unwrap().to_owned(), file.contents().len())
                    }),
                    buttons: Vec::new(),
                }
            })
            .collect()
    }

    fn reactions(&self, _: &World) -> usize {
        0
    }

    fn is_typing_shown(&self, _: &World) -> bool {
        false
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
        self.server.cut(AGENT);
    }

    fn connections(&self, _: &World) -> (usize, usize) {
        self.server.connections(AGENT)
    }

    fn chat(&self) -> &'static str {
        "anna@y.example"
    }

    fn group(&self) -> &'static str {
        "anna@y.example"
    }

    fn thread_id(&self) -> &'static str {
        "1@y.example Lunch"
    }
}
