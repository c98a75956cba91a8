//! Programs that post signed messages.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_testkit::openapi::{Answer, Description};
use holdfast_types::AccountId;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::Status;

use crate::world::{Bridge, World, eventually};

const SECRET: &str = "webhook-secret-0123456789";

/// Signs as docs/channels.md says, without the bridge's own code.
pub fn signature(secret: &str, timestamp: &str, key: &str, body: &str) -> String {
    format!("v2={}", hmac(secret, &format!("{timestamp}\n{key}\n{body}")))
}

pub fn hmac(secret: &str, signed: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    mac.finalize().into_bytes().iter().map(|b| format!("{b:02x}")).collect()
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Status and body of an answer that is as the description of the HTTP API says.
pub async fn described(operation: &str, answer: reqwest::Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let media_type = answer.headers().get("content-type").map(|value| value.to_str().unwrap());
    let media_type = media_type.unwrap_or_default().to_owned();
    let body = answer.text().await.unwrap();
    let answer = Answer { operation, status, media_type: &media_type, body: &body };
    Description::read().unwrap().check_answer(&answer).unwrap();
    (status, body)
}

struct Program<'a> {
    bridge: &'a Bridge,
    account: AccountId,
    secret: &'a str,
    at: u64,
}

impl<'a> Program<'a> {
    fn new(bridge: &'a Bridge, account: AccountId) -> Self {
        Self { bridge, account, secret: SECRET, at: now() }
    }

    async fn post(&self, key: &str, body: Value) -> (u16, Value) {
        let (at, body) = (self.at.to_string(), body.to_string());
        let signature = signature(self.secret, &at, key, &body);
        self.send((&at, &signature), Some(key), body).await
    }

    async fn send(
        &self,
        (at, signature): (&str, &str),
        key: Option<&str>,
        body: String,
    ) -> (u16, Value) {
        let mut request = reqwest::Client::new()
            .post(format!("{}/webhook/{}", self.bridge.url, self.account))
            .header("x-holdfast-timestamp", at)
            .header("x-holdfast-signature", signature);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let answer = request.body(body).send().await.unwrap();
        let (status, body) = described("post /webhook/{account}", answer).await;
        (status, serde_json::from_str(&body).unwrap_or_default())
    }
}

async fn world() -> (World, Bridge, AccountId) {
    let world = World::new().await;
    let account =
        world.account("webhook", json!({"allow": ["anna"]}), json!({"secret": SECRET})).await;
    let bridge = world.bridge().await;
    (world, bridge, account.id)
}

#[tokio::test]
async fn a_signed_message_is_taken_and_its_repetition_is_known() {
    let (world, bridge, account) = world().await;
    let program = Program::new(&bridge, account);
    let body = json!({"sender": "anna", "sender_name": "Anna", "text": "hello"});

    let first = program.post("k1", body.clone()).await;
    let again = program.post("k1", body).await;

    let told =
        |duplicate| json!({"message_id": "msg_1", "session_id": "ses_1", "duplicate": duplicate});
    assert_eq!(first, (202, told(false)));
    assert_eq!(again, (200, told(true)));
    assert_eq!(world.gateway.texts(), ["hello"]);
    assert_eq!(world.gateway.tenants(), [world.tenant]);
    let metrics = bridge.metrics().await;
    for outcome in ["accepted", "duplicate"] {
        let counted =
            format!("holdfast_bridge_updates_total{{channel=\"webhook\",outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&counted), "{metrics}");
    }
    bridge.stop().await;
}

#[tokio::test]
async fn an_account_speaks_in_its_own_tenants_name_and_with_its_own_secret() {
    use holdfast_directory::{Actor, NewAccount};

    let (world, bridge, ours) = world().await;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await.unwrap();
    let new = NewAccount {
        channel: "webhook".into(),
        name: "default".into(),
        enabled: true,
        settings: json!({"allow": ["anna"]}),
        secrets: Some(json!({"secret": "their-secret-0123456789"})),
    };
    let theirs =
        world.directory.accounts().create(other.id, Actor::Operator, new).await.unwrap().id;
    let body = json!({"sender": "anna", "text": "hello"});
    let their_program =
        Program { secret: "their-secret-0123456789", ..Program::new(&bridge, theirs) };
    crate::world::eventually("the account is served", async || {
        their_program.post("k", body.clone()).await.0 != 401
    })
    .await;

    let with_our_secret = Program::new(&bridge, theirs).post("k2", body.clone()).await;
    let with_theirs = Program { secret: "their-secret-0123456789", ..Program::new(&bridge, ours) };

    assert_eq!(with_our_secret.0, 401);
    assert_eq!(with_theirs.post("k2", body).await.0, 401);
    assert_eq!(world.gateway.tenants(), [other.id]);
    bridge.stop().await;
}

#[tokio::test]
async fn a_wrong_signature_or_a_stale_timestamp_gets_nowhere() {
    let (world, bridge, account) = world().await;
    let body = json!({"sender": "anna", "text": "hello"});
    let program = Program::new(&bridge, account);
    let refused = (401, json!({"error": "not authenticated"}));

    let forged = Program { secret: "another-secret-0123456789", ..Program::new(&bridge, account) };
    assert_eq!(forged.post("k", body.clone()).await, refused);
    for at in [now() - 310, now() + 900] {
        let stale = Program { at, ..Program::new(&bridge, account) };
        assert_eq!(stale.post("k", body.clone()).await, refused);
    }
    let nobodys = Program::new(&bridge, AccountId::generate());
    assert_eq!(nobodys.post("k", body.clone()).await, refused);

    assert_eq!(world.gateway.calls(), 0);
    assert_eq!(program.post("k", body).await.0, 202);
    bridge.stop().await;
}

#[tokio::test]
async fn a_seen_request_cannot_be_repeated_under_another_key() {
    let (world, bridge, account) = world().await;
    let program = Program::new(&bridge, account);
    let at = program.at.to_string();
    let body = json!({"sender": "anna", "text": "pay", "message_id": "m1"}).to_string();
    let v2 = signature(SECRET, &at, "k1", &body);
    let v1 = format!("v1={}", hmac(SECRET, &format!("{at}.{body}")));
    let send = async |signature: &str, key| program.send((&at, signature), key, body.clone()).await;

    assert_eq!(send(&v2, Some("k1")).await.0, 202);
    for key in [Some("k2"), Some(""), None] {
        let refused = (401, json!({"error": "not authenticated"}));
        assert_eq!(send(&v2, key).await, refused, "{key:?}");
    }
    // Version 1 does not cover a key, so a key is refused; the message's own id is signed.
    assert_eq!(send(&v1, None).await.0, 202);
    assert_eq!(send(&v1, None).await.0, 200);
    let (status, told) = send(&v1, Some("k2")).await;
    let told = told["error"].as_str().unwrap_or_default();
    assert!(status == 401 && told.contains("sign with `v2`"), "{status} {told}");

    assert_eq!(world.gateway.texts(), ["pay", "pay"]);
    bridge.stop().await;
}

#[tokio::test]
async fn what_was_not_agreed_is_refused_with_the_reason() {
    let (world, bridge, account) = world().await;
    let program = Program::new(&bridge, account);
    let error = async |key: &str, body: Value| {
        let (status, body) = program.post(key, body).await;
        (status, body["error"].as_str().unwrap_or_default().to_owned())
    };

    let (status, why) = error("k", json!({"sender": "anna", "text": "x", "tenant": "y"})).await;
    assert!(status == 400 && why.contains("unknown field `tenant`"), "{status} {why}");
    let (status, why) = error("", json!({"sender": "anna", "text": "x"})).await;
    assert!(status == 400 && why.contains("`idempotency-key`"), "{status} {why}");
    let (status, why) = error("k", json!({"sender": "mallory", "text": "x"})).await;
    assert!(status == 403 && why.contains("`mallory`"), "{status} {why}");
    let (status, _) = error("k", json!({"sender": "anna", "text": "x".repeat(13_000_000)})).await;
    assert_eq!(status, 413);

    assert_eq!(world.gateway.calls(), 0);
    bridge.stop().await;
}

#[tokio::test]
async fn what_the_gateway_says_is_passed_on_without_its_insides() {
    let (world, bridge, account) = world().await;
    let program = Program::new(&bridge, account);
    let body = json!({"sender": "anna", "text": "hello"});

    for (status, code, shown) in [
        (Status::resource_exhausted("200 messages wait"), 429, "200 messages wait"),
        (Status::aborted("key reused"), 409, "key reused"),
        (Status::invalid_argument("no such agent"), 422, "no such agent"),
        (Status::internal("secret detail"), 503, "not now: send it again with the same key"),
    ] {
        world.gateway.refuse(Some(status));
        let told = program.post("k", body.clone()).await;
        assert_eq!(told, (code, json!({"error": shown})));
    }
    bridge.stop().await;
}

#[tokio::test]
async fn a_gateway_that_is_away_for_a_moment_is_waited_for() {
    let (world, bridge, account) = world().await;
    let program = Program::new(&bridge, account);
    world.gateway.refuse(Some(Status::unavailable("restarting")));

    let (told, ()) =
        tokio::join!(program.post("k", json!({"sender": "anna", "text": "hello"})), async {
            crate::world::eventually("it was offered", async || world.gateway.calls() > 1).await;
            world.gateway.refuse(None);
        });

    assert_eq!(told.0, 202);
    assert_eq!(world.gateway.texts(), ["hello"]);
    bridge.stop().await;
}

#[tokio::test]
async fn accounts_of_one_tenant_share_its_memory_for_bodies() {
    use holdfast_directory::{Actor, NewAccount};

    let (world, bridge, first) = world().await;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await.unwrap();
    let account = async |tenant, name: &str| {
        let new = NewAccount {
            channel: "webhook".into(),
            name: name.into(),
            enabled: true,
            settings: json!({"allow": ["anna"]}),
            secrets: Some(json!({"secret": SECRET})),
        };
        world.directory.accounts().create(tenant, Actor::Operator, new).await.unwrap().id
    };
    let (second, third) =
        (account(world.tenant, "second").await, account(world.tenant, "third").await);
    let of_other = account(other.id, "default").await;
    let message = || json!({"sender": "anna", "text": "hello"});
    for account in [first, second, third, of_other] {
        let program = Program::new(&bridge, account);
        let key = account.to_string();
        eventually("the account is served", async || program.post(&key, message()).await.0 < 300)
            .await;
    }

    // Bodies of 12 MB that do not end, with signatures that look right.
    let address = bridge.url.strip_prefix("http://").unwrap();
    let status = async |account: AccountId| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /webhook/{account} HTTP/1.1\r\nhost: {address}\r\nx-holdfast-timestamp: {}\r\n\
             x-holdfast-signature: v2={}\r\ncontent-length: 12500000\r\n\r\n",
            now(),
            "0".repeat(64)
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A refusal may close the connection before all is written.
        drop(stream.write_all(&vec![b'x'; 12_000_000]).await);
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        (String::from_utf8_lossy(&status).into_owned(), stream)
    };
    let reads = [first, second, third].map(|account| Box::pin(status(account)));
    let ((refused, _stream), _, others) = futures::future::select_all(reads).await;

    assert_eq!(refused, "HTTP/1.1 429");
    assert_eq!(Program::new(&bridge, of_other).post("k", message()).await.0, 202);
    drop(others);
    bridge.stop().await;
}
