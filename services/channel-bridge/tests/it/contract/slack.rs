//! Slack, against the small Slack of the test kit; calls are signed as
//! <https://docs.slack.dev/authentication/verifying-requests-from-slack> describes.

use std::time::Duration;

use holdfast_testkit::{
    FakeSlack, Fault,
    slack::{APP_TOKEN, BOT_TOKEN, SlackCall},
};
use serde_json::{Value, json};

use super::{Address, Contract, Failure, File, Got, Lack, Platform, Where, Written};
use crate::{
    programs,
    world::{World, eventually},
};

const SIGNING_SECRET: &str = "slack-signing-secret-0123";

pub struct SlackPlatform {
    server: FakeSlack,
}

impl Platform for SlackPlatform {
    const CHANNEL: &'static str = "slack";

    async fn start(world: &mut World) -> Self {
        let server = FakeSlack::start().await.unwrap();
        world.config.bridge.slack.api_base = server.url();
        Self { server }
    }

    fn lacks(&self) -> &'static [Lack] {
        &[Lack::Typing]
    }

    fn account(&self) -> (Value, Value) {
        let secrets = json!({"bot_token": BOT_TOKEN, "app_token": APP_TOKEN,
            "signing_secret": SIGNING_SECRET});
        (json!({"groups": {"allow": ["C1"]}}), secrets)
    }

    fn wrong_secrets(&self) -> Value {
        json!({"bot_token": "xoxb-WRONG", "app_token": "xapp-WRONG"})
    }

    fn allow_forms(&self) -> Vec<Value> {
        vec![json!("U7"), json!("U7|anna"), json!("*")]
    }

    fn secret(&self) -> &'static str {
        "slack-token"
    }

    async fn is_heard(&self, _: &World) {
        eventually("the app is connected", async || self.server.connections().0 > 0).await;
    }

    async fn write(&self, _: &World, _: &Address, written: Written) {
        self.server.push(event(&written));
    }

    async fn write_file(&self, _: &World, _: &Address, file: File) {
        let written =
            Written { is_allowed: true, place: Where::Direct, id: 71, text: String::new() };
        let mut event = event(&written);
        self.server.put_file(file.content);
        event["event"]["subtype"] = "file_share".into();
        event["event"]["files"] = json!([{"name": file.name, "mimetype": "image/png",
            "url_private_download": format!("{}/files/cat.png", self.server.url())}]);
        self.server.push(event);
    }

    async fn press(&self, _: &World, _: &Address, data: &str) {
        self.server.push(json!({"type": "block_actions", "user": {"id": "U7", "name": "anna"},
            "channel": {"id": "D1"}, "message": {"ts": "1.1"},
            "actions": [{"value": data, "action_ts": "2.1"}]}));
    }

    fn got(&self, _: &World) -> Vec<Got> {
        self.server.taken().iter().map(got).collect()
    }

    fn shown(&self, _: &World) -> Vec<String> {
        let shown = self.server.taken().into_iter().filter(|call| !call.is_deleted);
        shown.map(|call| got(&call).text).collect()
    }

    fn reactions(&self, _: &World) -> usize {
        let reactions = self.server.reactions();
        for reaction in &reactions {
            assert_eq!(
                (&reaction["name"], &reaction["timestamp"]),
                (&"thumbsup".into(), &"11".into())
            );
        }
        reactions.len()
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
        self.server.cut();
    }

    fn connections(&self, _: &World) -> (usize, usize) {
        self.server.connections()
    }

    fn chat(&self) -> &'static str {
        "D1"
    }

    fn group(&self) -> &'static str {
        "C1"
    }
}

#[tokio::test]
async fn a_signed_call_is_taken_and_a_forged_one_gets_nowhere() {
    let contract = Contract::<SlackPlatform>::start().await;
    let settings = json!({"mode": "events", "allow": ["U7"]});
    contract.change(settings, None).await;
    let written =
        Written { is_allowed: true, place: Where::Direct, id: 5, text: "by a call".to_owned() };
    let post = async |secret: &str, body: String| {
        let now = programs::now().to_string();
        let signature = programs::hmac(secret, &format!("v0:{now}:{body}"));
        let sent = reqwest::Client::new()
            .post(format!("{}/slack/{}", contract.at.url, contract.at.account))
            .header("x-slack-request-timestamp", now)
            .header("x-slack-signature", format!("v0={signature}"))
            .body(body)
            .send()
            .await
            .unwrap();
        (sent.status().as_u16(), sent.text().await.unwrap())
    };
    eventually("the account is called", async || {
        let challenge = json!({"type": "url_verification", "challenge": "c-1"}).to_string();
        post(SIGNING_SECRET, challenge).await == (200, "c-1".to_owned())
    })
    .await;

    assert_eq!(post("another-secret-0123456789", event(&written).to_string()).await.0, 401);
    assert_eq!(post(SIGNING_SECRET, event(&written).to_string()).await.0, 200);
    assert_eq!(post(SIGNING_SECRET, event(&written).to_string()).await.0, 200);

    assert_eq!(contract.world.gateway.texts(), ["by a call"]);
    contract.stop().await;
}

#[tokio::test]
async fn what_did_not_arrive_is_sent_after_slack_was_asked() {
    let contract = Contract::<SlackPlatform>::start().await;
    contract.platform.server.faults().next(1, &Fault::CutBefore);
    let id = contract.world.reply("slack", contract.account.id, "D9", "hi").await;
    let delivery = contract.world.delivered(id, "sent").await;

    assert_eq!(delivery.attempt, 2);
    let got = contract.platform.got(&contract.world);
    assert_eq!(got.len(), 1, "{got:?}");
    contract.stop().await;
}

#[tokio::test]
async fn a_file_of_another_host_is_not_asked_for_with_the_token() {
    let contract = Contract::<SlackPlatform>::start().await;
    let elsewhere = FakeSlack::start().await.unwrap();
    elsewhere.put_file(b"\x89PNG a cat".to_vec());
    let written =
        Written { is_allowed: true, place: Where::Direct, id: 72, text: "look".to_owned() };
    let mut event = event(&written);
    event["event"]["subtype"] = "file_share".into();
    event["event"]["files"] = json!([{"name": "cat.png", "mimetype": "image/png",
        "url_private_download": format!("{}/files/cat.png", elsewhere.url())}]);

    contract.platform.server.push(event);
    contract.world.taken(1).await;

    let taken = contract.world.gateway.taken().remove(0);
    assert_eq!((taken.text.as_str(), taken.attachments.len()), ("look", 1));
    assert!(taken.attachments[0].content.is_empty());
    contract.stop().await;
}

fn event(written: &Written) -> Value {
    let user = if written.is_allowed { "U7" } else { "U8" };
    let (channel, kind) = match written.place {
        Where::Direct => (if written.is_allowed { "D1" } else { "D8" }, "im"),
        Where::Group | Where::Mention => ("C1", "channel"),
    };
    let text = match written.place {
        Where::Mention => format!("<@U42> {}", written.text),
        Where::Direct | Where::Group => written.text.clone(),
    };
    json!({"type": "event_callback", "event_id": "Ev1", "event": {
        "type": "message", "channel": channel, "channel_type": kind, "user": user, "text": text,
        "ts": format!("1700000{:03}.000100", written.id)}})
}

fn got(call: &SlackCall) -> Got {
    let input = &call.input;
    let field = |name: &str| input[name].as_str().map(str::to_owned);
    if call.method == "files.completeUploadExternal" {
        let name = input["files"][0]["title"].as_str().unwrap().to_owned();
        return Got {
            chat: field("channel_id").unwrap(),
            text: field("initial_comment").unwrap_or_default(),
            file: Some((name, call.size)),
            ..Got::default()
        };
    }
    let text = field("text").unwrap();
    // A notice is no delivery: it has no blocks and no metadata.
    if !input["metadata"].is_null() {
        assert_eq!(input["blocks"][0], json!({"type": "markdown", "text": text}));
    }
    assert!(text.chars().count() <= 12_000);
    let thread = field("thread_ts");
    let elements = input["blocks"][1]["elements"].as_array().cloned().unwrap_or_default();
    Got {
        chat: field("channel").unwrap(),
        text,
        reply_to: thread.clone().filter(|thread| thread == "11"),
        thread: thread.filter(|thread| thread != "11"),
        buttons: elements.iter().map(|one| one["value"].as_str().unwrap().to_owned()).collect(),
        ..Got::default()
    }
}
