//! Web widget: a page of the bridge's own, over HTTP and in a browser.

use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_types::AccountId;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::time::{Instant, timeout};

use crate::world::{World, eventually, target};

const IDENTITY_SECRET: &str = "identity-0123456789";

struct Page {
    url: String,
    token: String,
}

async fn widget(world: &World, more: Value) -> AccountId {
    let mut settings =
        json!({"allow": ["*"], "origins": ["https://example.com"], "title": "Ask us"});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let secrets = json!({"secret": "widget-0123456789", "identity_secret": IDENTITY_SECRET});
    world.account("widget", settings, secrets).await.id
}

async fn post(url: String, token: &str, body: Value) -> Response {
    Client::new().post(url).bearer_auth(token).body(body.to_string()).send().await.unwrap()
}

impl Page {
    async fn open(bridge: &str, account: AccountId, body: Value) -> Result<Self, StatusCode> {
        let url = format!("{bridge}/widget/{account}");
        // The account is read within a moment.
        let mut answer = post(format!("{url}/session"), "", body.clone()).await;
        let end = Instant::now() + Duration::from_secs(60);
        while answer.status() == StatusCode::UNAUTHORIZED && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
            answer = post(format!("{url}/session"), "", body.clone()).await;
        }
        if !answer.status().is_success() {
            return Err(answer.status());
        }
        let answer: Value = answer.json().await.unwrap();
        Ok(Self { url, token: answer["token"].as_str().unwrap().to_owned() })
    }

    async fn write(&self, key: &str, text: &str) -> StatusCode {
        let body = json!({"key": key, "text": text});
        post(format!("{}/messages", self.url), &self.token, body).await.status()
    }

    /// Reads events until they contain a text.
    async fn events_with(&self, text: &str) -> String {
        let url = format!("{}/events?after=0", self.url);
        let mut answer = Client::new().get(url).bearer_auth(&self.token).send().await.unwrap();
        let mut read = String::new();
        let reading = async {
            while !read.contains(text) {
                let chunk = answer.chunk().await.unwrap().unwrap();
                read.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        timeout(Duration::from_secs(60), reading).await.unwrap();
        read
    }
}

#[tokio::test]
async fn a_visitor_is_answered_on_the_page_and_finds_the_conversation_again() {
    let world = World::new().await;
    let bridge = world.bridge().await;
    let account = widget(&world, json!({})).await;
    let page = Page::open(&bridge.url, account, json!({})).await.unwrap();

    assert_eq!(page.write("key-0000001", "hello").await, StatusCode::OK);
    assert_eq!(page.write("key-0000001", "hello").await, StatusCode::OK);
    world.taken(1).await;
    let taken = world.gateway.taken();
    assert_eq!((taken.len(), taken[0].text.as_str()), (1, "hello"));
    assert!(taken[0].sender_id.starts_with("visitor:") && !taken[0].sender_listed);
    let id = world.reply_to(target("widget", account, &taken[0].reply_chat), "<b>hi</b>").await;
    world.delivered(id, "sent").await;

    let again = Page::open(&bridge.url, account, json!({"token": page.token})).await.unwrap();
    let events = again.events_with("<b>hi</b>").await;
    assert_eq!((events.matches("\"hello\"").count(), events.matches("<b>hi</b>").count()), (1, 1));
    bridge.stop().await;
}

#[tokio::test]
async fn a_reply_appears_on_a_page_that_listens_at_another_bridge() {
    let world = World::new().await;
    let (first, second) = (world.bridge().await, world.bridge().await);
    let account = widget(&world, json!({})).await;
    let page = Page::open(&first.url, account, json!({})).await.unwrap();
    page.write("key-0000001", "hello").await;
    world.taken(1).await;
    let chat = world.gateway.taken()[0].reply_chat.clone();
    let there = Page { url: page.url.replace(&first.url, &second.url), token: page.token };
    eventually("the account is there", async || there.write("key-0000002", "x").await.is_success())
        .await;

    let (events, _) = tokio::join!(there.events_with("the answer"), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.reply_to(target("widget", account, &chat), "the answer").await
    });

    assert!(events.contains("hello"), "{events}");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn only_whom_the_site_vouches_for_is_a_user() {
    let world = World::new().await;
    let bridge = world.bridge().await;
    let account = widget(&world, json!({"allow": ["user:42"]})).await;
    let sign = |user: &str| {
        let mac = Hmac::<Sha256>::new_from_slice(IDENTITY_SECRET.as_bytes()).unwrap();
        let digest = mac.chain_update(user).finalize().into_bytes();
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let open = async |user: &str, signature: String| {
        Page::open(&bridge.url, account, json!({"user": user, "signature": signature})).await
    };

    assert_eq!(
        Page::open(&bridge.url, account, json!({})).await.err(),
        Some(StatusCode::FORBIDDEN)
    );
    assert_eq!(open("42", sign("43")).await.err(), Some(StatusCode::FORBIDDEN));
    assert_eq!(open("43", sign("43")).await.err(), Some(StatusCode::FORBIDDEN));
    let page = open("42", sign("42")).await.unwrap();
    page.write("key-0000001", "hello").await;
    world.taken(1).await;
    let taken = world.gateway.taken().remove(0);
    assert_eq!((taken.sender_id.as_str(), taken.sender_listed), ("user:42", true));
    bridge.stop().await;
}

#[tokio::test]
async fn a_token_opens_one_conversation_of_one_account_and_rates_are_limited() {
    let world = World::new().await;
    let bridge = world.bridge().await;
    let (account, other) = (
        widget(&world, json!({"messages_per_minute": 3})).await,
        world
            .directory
            .accounts()
            .create(
                world.tenant,
                holdfast_directory::Actor::Operator,
                holdfast_directory::NewAccount {
                    channel: "widget".into(),
                    name: "other".into(),
                    enabled: true,
                    settings: json!({"allow": ["*"]}),
                    secrets: Some(json!({"secret": "widget-0123456789"})),
                },
            )
            .await
            .unwrap()
            .id,
    );
    let page = Page::open(&bridge.url, account, json!({})).await.unwrap();
    let mine = Page::open(&bridge.url, other, json!({})).await.unwrap();

    let stolen = Page { url: mine.url.clone(), token: page.token.clone() };
    assert_eq!(stolen.write("key-0000001", "x").await, StatusCode::UNAUTHORIZED);
    for (key, status) in [("short", StatusCode::BAD_REQUEST), ("key-0000002", StatusCode::OK)] {
        assert_eq!(page.write(key, "x").await, status);
    }
    page.write("key-0000003", "x").await;
    assert_eq!(page.write("key-0000004", "x").await, StatusCode::TOO_MANY_REQUESTS);
    let script = reqwest::get(format!("{}/widget/{account}.js", bridge.url)).await.unwrap();
    assert_eq!(script.headers()["content-type"], "text/javascript; charset=utf-8");
    assert!(
        script.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("https://example.com")
    );
    bridge.stop().await;
}

#[tokio::test]
async fn a_crowd_of_new_visitors_does_not_shut_out_those_who_come_back() {
    let world = World::new().await;
    let bridge = world.bridge().await;
    let account = widget(&world, json!({})).await;
    let page = Page::open(&bridge.url, account, json!({})).await.unwrap();
    let client = Client::new();
    let begin = async |address: String, body: Value| {
        let request = client.post(format!("{}/session", page.url)).body(body.to_string());
        request.header("x-forwarded-for", address).send().await.unwrap().status()
    };

    let mut refused = None;
    // On a slow machine a minute may end meanwhile.
    for n in 0..2000 {
        let status = begin(format!("8.8.{}.{}", n / 250, n % 250), json!({})).await;
        if status != StatusCode::OK {
            refused = Some(status);
            break;
        }
    }

    assert_eq!(refused, Some(StatusCode::TOO_MANY_REQUESTS));
    let back = begin("9.9.9.9".to_owned(), json!({"token": page.token})).await;
    assert_eq!(back, StatusCode::OK);
    bridge.stop().await;
}

/// Tests that `tests/tools.py` leaves out where Chromium is missing.
mod needs_chromium {
    use std::{net::SocketAddr, sync::Arc};

    use holdfast_browser::{Browser, Config, Isolation};
    use holdfast_proxy::{ConnectRules, RuleDecision};

    use super::*;

    #[derive(Debug)]
    struct Loopback;

    impl ConnectRules for Loopback {
        fn check(&self, _: String, port: u16) -> RuleDecision {
            Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
        }
    }

    #[tokio::test]
    async fn a_person_writes_in_a_browser_and_markup_is_shown_as_text() {
        let world = World::new().await;
        let bridge = world.bridge().await;
        let account = widget(&world, json!({"greeting": "How can I help?"})).await;
        Page::open(&bridge.url, account, json!({})).await.unwrap();
        let named = std::env::var_os("HOLDFAST_CHROMIUM").map(std::path::PathBuf::from);
        let path = named.unwrap_or_else(|| "/usr/bin/chromium".into());
        let args = vec!["--no-sandbox".to_owned()];
        // What is tested here is the page, not the isolation of the browser.
        let isolation = Isolation::None;
        let config = Config { path: Some(path), args, isolation, ..Config::default() };
        let browser = Browser::new(config, Arc::new(Loopback));
        let (tenant, who) = (world.tenant.as_uuid(), AccountId::generate().as_uuid());
        let (tab, _) = browser.page(tenant, who).await.unwrap();
        let long = Duration::from_secs(20);
        tab.navigate(&format!("{}/widget/{account}", bridge.url), None).await.unwrap();
        tab.wait(Some("How can I help?"), long).await.unwrap();
        assert_eq!(tab.evaluate("document.title").await.unwrap(), "Ask us");

        let write = "document.getElementById('text').value = 'a <i>question</i>'; \
                     document.getElementById('form').requestSubmit()";
        tab.evaluate(write).await.unwrap();
        world.taken(1).await;
        assert_eq!(world.gateway.texts(), ["a <i>question</i>"]);
        let chat = world.gateway.taken()[0].reply_chat.clone();
        let evil = "done <img src=x onerror=\"document.title='broken in'\"> ok";
        world.reply_to(target("widget", account, &chat), evil).await;
        tab.wait(Some("onerror"), long).await.unwrap();
        let images = "document.images.length + document.querySelectorAll('i').length";
        assert_eq!(tab.evaluate(images).await.unwrap(), json!(0));
        assert_eq!(tab.evaluate("document.title").await.unwrap(), "Ask us");

        // The page comes back with the conversation, and after a break goes on.
        tab.navigate(&format!("{}/widget/{account}", bridge.url), None).await.unwrap();
        tab.wait(Some("onerror"), long).await.unwrap();
        let count = "document.querySelectorAll('.message').length";
        assert_eq!(tab.evaluate(count).await.unwrap(), json!(3));
        browser.close(who).await;
        bridge.stop().await;
    }
}
