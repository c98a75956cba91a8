//! Devices: pairing, and their tokens.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use holdfast_directory::{Actor, ConsoleSessionLimits, NewKey};
use holdfast_testkit::FakeIssuer;
use holdfast_types::TenantRole;
use jiff::Timestamp;
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::{
    access::{is_closed, relay},
    client::{Called, Client, connect_params},
    done, is_no_tick,
};
use crate::world::World;

const ADMIN: &[&str] = &["operator.admin"];
const READ: &[&str] = &["operator.read"];

struct Device {
    pair: Ed25519KeyPair,
    id: String,
}

impl Device {
    fn new() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let digest = Sha256::digest(pair.public_key().as_ref());
        let id = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { pair, id }
    }

    /// Parameters of a handshake that the device has signed. `auth` has a token or a device token.
    fn params(&self, auth: &Value, scopes: &[&str], nonce: &str) -> Value {
        let token = auth["token"].as_str().or(auth["deviceToken"].as_str()).unwrap_or_default();
        let (id, now) = (&self.id, Timestamp::now().as_millisecond());
        let list = scopes.join(",");
        let signed = format!("v3|{id}|test|test|operator|{list}|{now}|{token}|{nonce}|linux|");
        let mut params = connect_params("");
        params["auth"] = auth.clone();
        params["scopes"] = json!(scopes);
        params["client"]["displayName"] = json!("annas laptop");
        params["device"] = json!({
            "id": id,
            "publicKey": URL_SAFE_NO_PAD.encode(self.pair.public_key().as_ref()),
            "signature": URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes())),
            "signedAt": now,
            "nonce": nonce,
        });
        params
    }

    async fn connect(&self, world: &World, auth: Value, scopes: &[&str]) -> (Client, Called) {
        let params = |nonce: &str| self.params(&auth, scopes, nonce);
        Client::connect_signed(world.http, params).await.unwrap()
    }

    async fn with_key(&self, world: &World, key: &str, scopes: &[&str]) -> (Client, Value) {
        let (client, hello) = self.connect(world, json!({ "token": key }), scopes).await;
        (client, hello.unwrap())
    }

    async fn with_token(&self, world: &World, token: &Value, scopes: &[&str]) -> (Client, Called) {
        self.connect(world, json!({ "deviceToken": token }), scopes).await
    }

    /// The code with which the device's token is refused.
    async fn refusal(&self, world: &World, token: &Value) -> Value {
        let (_, refused) = self.with_token(world, token, READ).await;
        refused.unwrap_err()["details"]["code"].clone()
    }
}

fn mismatch() -> Value {
    json!("AUTH_DEVICE_TOKEN_MISMATCH")
}

#[tokio::test]
async fn a_device_that_a_key_vouches_for_gets_a_token_and_connects_with_it() {
    let world = World::start().await.unwrap();
    let device = Device::new();
    let (mut client, hello) = device.with_key(&world, &world.anna.key, READ).await;

    let token = hello["auth"]["deviceToken"].clone();
    assert!(token.as_str().unwrap().starts_with("hfd_"), "{hello}");
    // The key itself may do more than the device asked for.
    let (_, again) = device.with_key(&world, &world.anna.key, READ).await;
    assert_eq!(again["auth"].get("deviceToken"), None);
    let refused = client.call("device.pair.list", json!({})).await.unwrap().unwrap_err();
    assert_eq!(refused["details"]["missingScope"], "operator.pairing");

    let (mut own, hello) = device.with_token(&world, &token, ADMIN).await;
    assert_eq!(hello.unwrap()["auth"]["scopes"], json!(["operator.read"]));
    done(&mut own, "sessions.list", json!({})).await;
    let params = json!({ "sessionKey": "main", "message": "hi", "idempotencyKey": "k" });
    let refused = own.call("chat.send", params).await.unwrap().unwrap_err();
    assert_eq!(refused["details"]["missingScope"], "operator.write");

    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let listed = done(&mut anna, "device.pair.list", json!({})).await;
    // It has asked for more than it was paired for.
    assert_eq!(listed["pending"][0]["isRepair"], true);
    let paired = &listed["paired"][0];
    assert_eq!((&paired["deviceId"], &paired["connected"]), (&json!(device.id), &json!(true)));
    assert_eq!(paired["tokens"][0]["scopes"], json!(["operator.read"]));
    let stored = "select count(*) from control.devices where digest is not null \
                  and octet_length(digest) = 32";
    assert_eq!(world.number(stored).await.unwrap(), 1);
    assert!(!listed.to_string().contains(token.as_str().unwrap()));
}

#[tokio::test]
async fn a_token_is_worth_nothing_without_its_device_or_outside_of_the_handshake() {
    let world = World::start().await.unwrap();
    let (device, thief) = (Device::new(), Device::new());
    let (_, hello) = device.with_key(&world, &world.anna.key, ADMIN).await;
    let token = hello["auth"]["deviceToken"].clone();

    assert_eq!(thief.refusal(&world, &token).await, mismatch());
    // Without any device, and as an API key over HTTP.
    let plain = connect_params(token.as_str().unwrap());
    let (_, refused) = Client::connect(world.http, plain).await.unwrap();
    assert_eq!(refused.unwrap_err()["details"]["code"], mismatch());
    let models = world.client.get(world.url("/v1/models")).bearer_auth(token.as_str().unwrap());
    assert_eq!(models.send().await.unwrap().status(), 401);
    let hello = super::hello(token.as_str().unwrap());
    let (_, refused) = Client::lurkbot(world.http, hello).await.unwrap();
    assert_eq!(refused["error"]["code"], "NOT_PAIRED");

    // With a key that is not valid any more, the device falls back to its token.
    let auth = json!({ "token": "hf_wrong", "deviceToken": token });
    let (_, hello) = device.connect(&world, auth, READ).await;
    assert_eq!(hello.unwrap()["auth"]["scopes"], json!(["operator.read"]));
    let (_, refused) = device.connect(&world, json!({ "token": "hf_wrong" }), READ).await;
    assert_eq!(refused.unwrap_err()["details"]["canRetryWithDeviceToken"], true);
}

#[tokio::test]
async fn a_device_that_asks_for_more_waits_for_somebody_who_may_give_it() {
    let world = World::start().await.unwrap();
    let device = Device::new();
    let weak = world.key(&world.anna, &["read"], None).await.unwrap();
    let pairer = world.key(&world.anna, &["admin"], None).await.unwrap();
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let mut ben = Client::openclaw(world.http, &world.ben.key).await.unwrap();
    let asked = ["operator.read", "operator.write"];

    let (mut client, hello) = device.with_key(&world, &weak, &asked).await;
    assert_eq!(hello["auth"]["scopes"], json!(["operator.read"]));
    assert_eq!(hello["auth"].get("deviceToken"), None);
    let event = anna.event(|frame| frame["event"] == "device.pair.requested").await.unwrap();
    let request = event["payload"]["requestId"].clone();
    assert_eq!(event["payload"]["displayName"], "annas laptop");
    let decide = json!({ "requestId": request });

    // Not by the device itself, not by who may do less, not by another tenant.
    let refused = client.call("device.pair.approve", decide.clone()).await.unwrap().unwrap_err();
    assert_eq!(refused["details"]["missingScope"], "operator.pairing");
    let mut limited = Client::openclaw(world.http, &pairer).await.unwrap();
    let refused = limited.call("device.pair.approve", decide.clone()).await.unwrap().unwrap_err();
    assert_eq!(refused["details"]["missingScope"], "operator.read");
    for method in ["device.pair.approve", "device.pair.reject"] {
        let refused = ben.call(method, decide.clone()).await.unwrap().unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("unknown requestId"), "{refused}");
    }
    let told = timeout(Duration::from_millis(300), ben.event(is_no_tick)).await;
    assert!(told.is_err(), "{told:?}");

    // The same request again is one.
    device.with_key(&world, &weak, &asked).await;
    let listed = done(&mut anna, "device.pair.list", json!({})).await;
    assert_eq!(listed["pending"].as_array().unwrap().len(), 1);
    let approved = done(&mut anna, "device.pair.approve", decide.clone()).await;
    assert_eq!(approved["device"]["deviceId"], json!(device.id));
    let event = anna.event(|frame| frame["event"] == "device.pair.resolved").await.unwrap();
    assert_eq!(event["payload"]["decision"], "approved");
    let refused = anna.call("device.pair.approve", decide).await.unwrap().unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("unknown requestId"), "{refused}");

    let (_, hello) = device.with_key(&world, &weak, &asked).await;
    let token = hello["auth"]["deviceToken"].clone();
    let (mut own, hello) = device.with_token(&world, &token, &asked).await;
    let scopes = json!(["operator.read", "operator.write", "operator.questions"]);
    assert_eq!(hello.unwrap()["auth"]["scopes"], scopes);
    let params = json!({ "sessionKey": "main", "message": "hi", "idempotencyKey": "k" });
    done(&mut own, "chat.send", params).await;
    assert_eq!(
        done(&mut ben, "device.pair.list", json!({})).await,
        json!({ "pending": [], "paired": [] })
    );
    for (method, params) in [
        ("device.pair.remove", json!({ "deviceId": device.id })),
        ("device.token.rotate", json!({ "deviceId": device.id, "role": "operator" })),
        ("device.token.revoke", json!({ "deviceId": device.id, "role": "operator" })),
    ] {
        let refused = ben.call(method, params).await.unwrap().unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("no device"), "{method}: {refused}");
    }
    let (_, still) = device.with_token(&world, &token, READ).await;
    assert!(still.is_ok());
}

#[tokio::test]
async fn a_paired_device_that_asks_for_more_keeps_its_token_and_gets_more_with_an_approval() {
    let world = World::start().await.unwrap();
    let device = Device::new();
    let weak = world.key(&world.anna, &["read"], None).await.unwrap();
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let (_, hello) = device.with_key(&world, &weak, READ).await;
    let token = hello["auth"]["deviceToken"].clone();

    // With its token it asks, and is let in with what it has.
    let (_, hello) = device.with_token(&world, &token, &["operator.write"]).await;
    assert_eq!(hello.unwrap()["auth"]["scopes"], json!(["operator.read"]));
    let event = anna.event(|frame| frame["event"] == "device.pair.requested").await.unwrap();
    assert_eq!(event["payload"]["isRepair"], true);
    let request = json!({ "requestId": event["payload"]["requestId"] });
    done(&mut anna, "device.pair.approve", request).await;

    let (mut own, hello) = device.with_token(&world, &token, READ).await;
    assert_eq!(hello.unwrap()["auth"]["scopes"], json!(["operator.read"]));
    let (_, hello) = device.with_token(&world, &token, &["operator.write"]).await;
    let scopes = json!(["operator.read", "operator.write", "operator.questions"]);
    assert_eq!(hello.unwrap()["auth"]["scopes"], scopes);

    // Without a new connection, and told when it is decided.
    let asked = done(&mut own, "device.scopes.requestUpgrade", json!({ "scopes": ADMIN })).await;
    let id = own.begin("device.scopes.waitUpgrade", asked.clone()).await.unwrap();
    done(&mut anna, "device.pair.approve", asked).await;
    let upgraded = own.response(&id).await.unwrap().unwrap();
    assert_eq!((&upgraded["status"], &upgraded["deviceToken"]), (&json!("approved"), &token));
    let (_, hello) = device.with_token(&world, &token, ADMIN).await;
    assert!(
        hello.unwrap()["auth"]["scopes"].as_array().unwrap().contains(&json!("operator.admin"))
    );
    let refused = anna.call("device.scopes.requestUpgrade", json!({ "scopes": ADMIN })).await;
    assert_eq!(refused.unwrap().unwrap_err()["details"]["code"], "DEVICE_IDENTITY_REQUIRED");
}

#[tokio::test]
async fn a_device_that_was_rejected_does_not_ask_again_at_once() {
    let world = World::start().await.unwrap();
    let device = Device::new();
    let weak = world.key(&world.anna, &["read"], None).await.unwrap();
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    device.with_key(&world, &weak, ADMIN).await;
    let listed = done(&mut anna, "device.pair.list", json!({})).await;
    let request = listed["pending"][0]["requestId"].clone();

    let rejected = done(&mut anna, "device.pair.reject", json!({ "requestId": request })).await;

    assert_eq!(rejected["deviceId"], json!(device.id));
    device.with_key(&world, &weak, ADMIN).await;
    let listed = done(&mut anna, "device.pair.list", json!({})).await;
    assert_eq!((&listed["pending"], &listed["paired"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn a_device_has_no_more_rights_than_its_approver_has_now() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| crate::people::trust(config, &url)).await.unwrap();
    let key = world.key(&world.anna, &["chat", "read", "admin", "approve"], None).await.unwrap();
    let (of_key, of_person) = (Device::new(), Device::new());
    let (_, hello) = of_key.with_key(&world, &key, ADMIN).await;
    let token = hello["auth"]["deviceToken"].clone();
    let keys = world.directory.keys().list(world.anna.id).await.unwrap();
    let newest = keys.last().unwrap().id;

    let owner = json!({"sub": "7", "org": "anna", "groups": ["operator"], "name": "Anna A"});
    let owner = issuer.token(owner);
    // A person's token is short-lived: it pairs nothing by itself.
    let (mut anna, hello) = of_person.with_key(&world, &owner, ADMIN).await;
    assert_eq!(hello["auth"].get("deviceToken"), None);
    let listed = done(&mut anna, "device.pair.list", json!({})).await;
    let request = json!({ "requestId": listed["pending"][0]["requestId"] });
    done(&mut anna, "device.pair.approve", request).await;
    let (_, hello) = of_person.with_key(&world, &owner, ADMIN).await;
    let persons = hello["auth"]["deviceToken"].clone();
    let (_, hello) = of_person.with_token(&world, &persons, ADMIN).await;
    assert!(
        hello.unwrap()["auth"]["scopes"].as_array().unwrap().contains(&json!("operator.admin"))
    );

    world.directory.keys().revoke(world.anna.id, Actor::Operator, newest).await.unwrap();
    let viewer = json!({"sub": "7", "org": "anna", "groups": ["viewer"], "name": "Anna A"});
    Client::openclaw(world.http, &issuer.token(viewer)).await.unwrap();
    // The gateway keeps both for 5 s.
    tokio::time::sleep(Duration::from_millis(5_200)).await;

    assert_eq!(of_key.refusal(&world, &token).await, mismatch());
    let (_, hello) = of_person.with_token(&world, &persons, ADMIN).await;
    assert_eq!(hello.unwrap()["auth"]["scopes"], json!(["operator.read"]));
    let absent =
        "update control.people set seen_at = now() - interval '31 days' returning 1::bigint";
    assert_eq!(world.number(absent).await.unwrap(), 1);
    tokio::time::sleep(Duration::from_millis(5_200)).await;
    assert_eq!(of_person.refusal(&world, &persons).await, mismatch());
}

#[tokio::test]
async fn a_token_is_rotated_revoked_and_removed_and_its_connections_end() {
    let world = World::start().await.unwrap();
    let device = Device::new();
    let (_, hello) = device.with_key(&world, &world.anna.key, ADMIN).await;
    let first = hello["auth"]["deviceToken"].clone();
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    let (mut own, _) = device.with_token(&world, &first, ADMIN).await;
    let target = json!({ "deviceId": device.id, "role": "operator" });

    // By another client: the token reaches the device with its next connection.
    let rotated = done(&mut anna, "device.token.rotate", target.clone()).await;
    assert_eq!(rotated["tokenDelivery"], "withheld-cross-device");
    assert_eq!(rotated.get("token"), None);
    assert_eq!(
        own.closed().await.unwrap().unwrap().reason.as_str(),
        "the credential is no longer valid"
    );
    assert_eq!(device.refusal(&world, &first).await, mismatch());
    let (_, hello) = device.with_key(&world, &world.anna.key, READ).await;
    let second = hello["auth"]["deviceToken"].clone();

    // By the device itself: in the answer, with fewer scopes, and never with more.
    let (mut own, _) = device.with_token(&world, &second, ADMIN).await;
    let mut fewer = target.clone();
    fewer["scopes"] = json!(["operator.read", "operator.pairing"]);
    let rotated = done(&mut own, "device.token.rotate", fewer).await;
    let third = rotated["token"].clone();
    assert_eq!(rotated["tokenDelivery"], "in-band");
    own.begin("health", json!({})).await.unwrap();
    assert_eq!(
        own.closed().await.unwrap().unwrap().reason.as_str(),
        "the credential is no longer valid"
    );
    assert_eq!(device.refusal(&world, &second).await, mismatch());
    let (mut own, hello) = device.with_token(&world, &third, ADMIN).await;
    assert_eq!(hello.unwrap()["auth"]["scopes"], json!(["operator.read", "operator.pairing"]));
    let mut more = target.clone();
    more["scopes"] = json!(["operator.admin"]);
    let refused = anna.call("device.token.rotate", more).await.unwrap().unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("not approved for"), "{refused}");
    // It sees itself, and no other device.
    let other = Device::new();
    other.with_key(&world, &world.anna.key, READ).await;
    let listed = done(&mut own, "device.pair.list", json!({})).await;
    assert_eq!(listed["paired"].as_array().unwrap().len(), 1);
    let foreign = json!({ "deviceId": other.id });
    let refused = own.call("device.pair.remove", foreign).await.unwrap().unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("no device"), "{refused}");

    done(&mut anna, "device.token.revoke", target.clone()).await;
    own.closed().await.unwrap();
    assert_eq!(device.refusal(&world, &third).await, mismatch());
    // A revoked device gets no other token by itself.
    let (_, hello) = device.with_key(&world, &world.anna.key, READ).await;
    assert_eq!(hello["auth"].get("deviceToken"), None);
    done(&mut anna, "device.token.rotate", target).await;
    let (_, hello) = device.with_key(&world, &world.anna.key, READ).await;
    let fourth = hello["auth"]["deviceToken"].clone();
    done(&mut anna, "device.pair.remove", json!({ "deviceId": device.id })).await;
    assert_eq!(device.refusal(&world, &fourth).await, mismatch());
    let audited = world
        .texts("select action from control.audit where action like 'device.%' order by audit_id");
    let audited = audited.await.unwrap();
    for action in ["device.pair", "device.rotate", "device.revoke", "device.remove"] {
        assert!(audited.iter().any(|known| known == action), "{action}: {audited:?}");
    }
}

#[tokio::test]
async fn a_device_is_its_person_s_and_ends_with_them_whoever_approved_it() {
    let world = World::start().await.unwrap();
    let people = world.directory.people();
    let (_, link) =
        people.invite(world.anna.id, Actor::Operator, ("Ben", TenantRole::Member)).await.unwrap();
    let limits = ConsoleSessionLimits {
        idle: Duration::from_secs(60),
        lifetime: Duration::from_secs(60),
        unchecked: Duration::from_secs(60),
    };
    let sessions = world.directory.console_sessions();
    sessions.begin_with_link(link.expose_secret(), limits).await.unwrap();
    let ben = people.list(world.anna.id, None, 10).await.unwrap().remove(0);
    let new = NewKey {
        name: "bens".to_owned(),
        scopes: vec!["read".to_owned()],
        lifetime: None,
        person: Some(ben.id),
        agent: None,
        origins: Vec::new(),
    };
    let (_, key) =
        world.directory.keys().create(world.anna.id, Actor::Operator, new).await.unwrap();
    let device = Device::new();
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    device.with_key(&world, key.expose_secret(), ADMIN).await;
    let event = anna.event(|frame| frame["event"] == "device.pair.requested").await.unwrap();
    let decide = json!({ "requestId": event["payload"]["requestId"] });
    done(&mut anna, "device.pair.approve", decide).await;
    let (_, hello) = device.with_key(&world, key.expose_secret(), ADMIN).await;
    let token = hello["auth"]["deviceToken"].clone();

    // What it does bears the name of its person, and says which device it was and who approved it.
    let (mut own, _) = device.with_token(&world, &token, ADMIN).await;
    let rotate = json!({ "deviceId": device.id, "role": "operator" });
    let token = done(&mut own, "device.token.rotate", rotate).await["token"].clone();
    let rows =
        "select concat_ws(' ', actor, via) from control.audit where action = 'device.rotate'";
    let via = format!("{} device/{}/key_", ben.id, device.id);
    let rows = world.texts(rows).await.unwrap();
    assert!(rows.len() == 1 && rows[0].starts_with(&via), "{rows:?} {via}");
    let (mut own, _) = device.with_token(&world, &token, READ).await;
    done(&mut own, "sessions.list", json!({})).await;

    people.set_disabled(world.anna.id, Actor::Operator, ben.id, true).await.unwrap();

    relay(&world).await;
    is_closed(&mut own).await;
    assert_eq!(device.refusal(&world, &token).await, mismatch());
}
