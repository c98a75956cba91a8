//! Sign-in to the console at an identity provider.

use gateway::Config;
use holdfast_directory::Actor;
use holdfast_proto::gateway::v1 as pb;
use holdfast_testkit::FakeIssuer;
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tonic::Code;

use super::{Browser, code, execute};
use crate::{people::trust, world::World};

async fn world(issuer: &FakeIssuer) -> World {
    let url = issuer.url();
    World::start_with(|config| with_console(config, &url)).await.unwrap()
}

fn with_console(config: &mut Config, url: &str) {
    trust(config, url);
    let client = json!({ "name": "Our id", "client_id": "holdfast", "client_secret": "s" });
    config.oidc.issuers[0].console = serde_json::from_value(client).unwrap();
}

/// Begins a sign-in; returns the address of the provider.
async fn start(browser: &mut Browser) -> Url {
    let methods = browser.request(Method::GET, "/console/sign-in/methods").send().await.unwrap();
    let methods: Value = methods.json().await.unwrap();
    assert_eq!((&methods["key"], &methods["oidc"][0]["name"]), (&json!(true), &json!("Our id")));
    let start = methods["oidc"][0]["start"].as_str().unwrap();
    let request = browser.request(Method::GET, start);
    let (response, cookies) = browser.send(request).await.unwrap();
    assert_eq!(response.status(), 303);
    assert!(cookies[0].starts_with("holdfast-oidc="), "{cookies:?}");
    assert!(cookies[0].contains("HttpOnly; SameSite=Lax"), "{cookies:?}");
    response.headers()["location"].to_str().unwrap().parse().unwrap()
}

/// Goes to the provider; returns the address to which it sends the browser back.
async fn at_provider(browser: &Browser, to: &Url) -> Url {
    let response = browser.client.get(to.clone()).send().await.unwrap();
    response.headers()["location"].to_str().unwrap().parse().unwrap()
}

/// Comes back; returns the address to which the gateway sends the browser.
async fn come_back(browser: &mut Browser, to: &Url) -> String {
    // The navigation comes from the provider's site.
    let origin = browser.origin.take();
    let request = browser.request(Method::GET, to.as_str()).header("sec-fetch-site", "cross-site");
    let (response, _) = browser.send(request).await.unwrap();
    browser.origin = origin;
    assert_eq!(response.status(), 303);
    response.headers()["location"].to_str().unwrap().to_owned()
}

fn set_person(issuer: &FakeIssuer, more: Value) {
    let mut claims = json!({ "sub": "7", "org": "anna", "groups": ["owner"], "name": "Anna A" });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    issuer.set_person(claims);
}

async fn sign_in(browser: &mut Browser) -> String {
    let to = start(browser).await;
    let back = at_provider(browser, &to).await;
    come_back(browser, &back).await
}

#[tokio::test]
async fn a_person_signs_in_at_the_provider_and_has_their_role() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    set_person(&issuer, json!({ "groups": ["member"] }));
    let mut browser = Browser::new(&world);

    let to = sign_in(&mut browser).await;

    let session = to.strip_prefix("/console/#session=").unwrap_or_else(|| panic!("{to}"));
    assert!(!browser.cookies.contains_key("holdfast-oidc"));
    let caller = browser.ask(session, "People/GetCaller", &pb::GetCallerRequest {}).await;
    let caller: pb::GetCallerResponse = caller.unwrap();
    assert_eq!((&*caller.name, &*caller.role, &*caller.tenant), ("Anna A", "member", "anna"));
    let keys = browser.call(session, "Keys/ListKeys", &pb::ListKeysRequest {}).await.unwrap();
    assert_eq!(keys.code, Code::PermissionDenied);

    // A disabled person is out, whatever their session says.
    let person = caller.id.parse().unwrap();
    let people = world.directory.people();
    people.set_disabled(world.anna.id, Actor::Operator, person, true).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(5_200)).await;
    assert_eq!(code(&browser, session).await, Code::Unauthenticated);
}

#[tokio::test]
async fn a_person_who_left_the_provider_is_out_when_it_is_asked_again() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| {
        with_console(config, &url);
        config.gateway.console.provider_check_interval = std::time::Duration::from_secs(1);
    });
    let world = world.await.unwrap();
    set_person(&issuer, json!({}));
    let mut browser = Browser::new(&world);
    let to = sign_in(&mut browser).await;
    let session = to.strip_prefix("/console/#session=").unwrap().to_owned();
    // The session of a link is one of the same person.
    let ask = pb::CreateSignInLinkRequest::default();
    let link = browser.ask(&session, "Console/CreateSignInLink", &ask).await;
    let link: pb::CreateSignInLinkResponse = link.unwrap();
    let linked = browser.sign_in(json!({ "link": link.token })).await.unwrap();
    let stored = "select encode(refresh_token, 'escape') from control.provider_sign_ins";
    let stored = world.texts(stored).await.unwrap();

    // The provider is asked with a token that serves once, and says the role of today.
    issuer.change_people(|claims| {
        claims.insert("groups".to_owned(), json!(["member"]));
    });
    let role = async |browser: &Browser, session: &str| {
        let caller = browser.ask(session, "People/GetCaller", &pb::GetCallerRequest {}).await;
        caller.map(|caller: pb::GetCallerResponse| caller.role)
    };
    for _ in 0..3 {
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
        execute(&world, "update control.provider_sign_ins set checked_at = now() - interval '1 h'")
            .await;
        tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
        assert_eq!(role(&browser, &session).await.unwrap(), "member");
    }
    let renewed = "select encode(refresh_token, 'escape') from control.provider_sign_ins";
    assert_ne!(world.texts(renewed).await.unwrap(), stored);

    // One that does not answer ends nothing.
    issuer.set_away(true);
    execute(&world, "update control.provider_sign_ins set checked_at = now() - interval '1 h'")
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
    assert_eq!(code(&browser, &session).await, Code::Ok);
    issuer.set_away(false);

    issuer.remove_people();
    execute(&world, "update control.provider_sign_ins set checked_at = now() - interval '1 h'")
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
    assert_eq!(code(&browser, &linked).await, Code::Unauthenticated);
    assert_eq!(code(&browser, &session).await, Code::Unauthenticated);
    assert_eq!(world.number("select count(*) from control.console_sessions").await.unwrap(), 0);
}

#[tokio::test]
async fn a_session_whose_provider_cannot_be_asked_again_is_short() {
    let issuer = FakeIssuer::start().await.unwrap();
    issuer.give_no_refresh_tokens();
    let world = world(&issuer).await;
    set_person(&issuer, json!({}));
    let mut browser = Browser::new(&world);

    let to = sign_in(&mut browser).await;

    assert!(to.starts_with("/console/#session="), "{to}");
    let short = "select count(*) from control.console_sessions \
                 where expires_at between now() + interval '11 hours' and now() + interval '12 hours'";
    assert_eq!(world.number(short).await.unwrap(), 1);
}

#[tokio::test]
async fn the_provider_is_asked_with_pkce_state_and_nonce_that_are_new_each_time() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    let mut browser = Browser::new(&world);

    let (first, second) = (start(&mut browser).await, start(&mut browser).await);

    let value = |url: &Url, name: &str| {
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    for (name, expected) in [
        ("response_type", "code"),
        ("client_id", "holdfast"),
        ("scope", "openid profile email"),
        ("code_challenge_method", "S256"),
        ("redirect_uri", &world.url("/console/oidc/callback")),
    ] {
        assert_eq!(value(&first, name).as_deref(), Some(expected));
    }
    for name in ["state", "nonce", "code_challenge"] {
        let (one, other) = (value(&first, name).unwrap(), value(&second, name).unwrap());
        assert!(one.len() >= 43 && one != other, "{name}: {one} {other}");
    }
}

#[tokio::test]
async fn an_answer_that_was_not_meant_for_this_browser_signs_nobody_in() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    set_person(&issuer, json!({}));
    let refused = async |browser: &mut Browser, back: &Url, told: &str| {
        let to = come_back(browser, back).await;
        let message = to.strip_prefix("/console/#error=").unwrap_or_else(|| panic!("{to}"));
        let message: Url = format!("http://x/?{message}").parse().unwrap();
        let message: String = message.query_pairs().map(|(text, _)| text.into_owned()).collect();
        assert!(message.contains(told), "{message}");
        assert!(browser.cookies.is_empty(), "{:?}", browser.cookies);
    };

    // The attacker's own answer, given to the browser of another person.
    let mut attacker = Browser::new(&world);
    let to = start(&mut attacker).await;
    let back = at_provider(&attacker, &to).await;
    refused(&mut Browser::new(&world), &back, "not begun in this browser").await;
    let mut victim = Browser::new(&world);
    start(&mut victim).await;
    refused(&mut victim, &back, "of another sign-in").await;
    // A cookie that the gateway did not sign.
    let mut forger = Browser::new(&world);
    let sealed = attacker.cookies["holdfast-oidc"].clone();
    let (content, signature) = sealed.split_once('.').unwrap();
    let changed = format!("{content}A.{signature}");
    forger.cookies.insert("holdfast-oidc".to_owned(), changed);
    refused(&mut forger, &back, "not begun in this browser").await;

    // The answer of another provider, with the state of this one.
    let mut mixed = Browser::new(&world);
    let to = start(&mut mixed).await;
    let mut other = at_provider(&mixed, &to).await;
    other.query_pairs_mut().append_pair("iss", "https://other.example");
    refused(&mut mixed, &other, "of another identity provider").await;
    let to = start(&mut mixed).await;
    let mut own = at_provider(&mixed, &to).await;
    own.query_pairs_mut().append_pair("iss", &issuer.url());
    assert!(come_back(&mut mixed, &own).await.starts_with("/console/#session="));

    // A code is redeemed once, with its own verifier, and the token has this sign-in's nonce.
    let kept = attacker.cookies.clone();
    come_back(&mut attacker, &back).await;
    attacker.cookies = kept;
    refused(&mut attacker, &back, "did not accept the sign-in").await;
    let (mut one, mut other) = (Browser::new(&world), Browser::new(&world));
    let (to_one, _) = (start(&mut one).await, start(&mut other).await);
    let mut mixed = at_provider(&one, &to_one).await;
    let state = start(&mut other).await;
    let state = state.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    let code = mixed.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    mixed.query_pairs_mut().clear().append_pair("code", &code).append_pair("state", &state);
    refused(&mut other, &mixed, "did not accept the sign-in").await;
}

#[tokio::test]
async fn another_page_begins_no_sign_in_at_the_provider() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    let mut browser = Browser::new(&world);
    browser.origin = None;

    for (site, is_begun) in [("cross-site", false), ("same-origin", true), ("none", true)] {
        let request = browser.request(Method::GET, "/console/oidc/start?issuer=Our%20id");
        let (response, cookies) =
            browser.send(request.header("sec-fetch-site", site)).await.unwrap();
        let to = response.headers()["location"].to_str().unwrap();
        assert_eq!(to.starts_with(&issuer.url()), is_begun, "{site}: {to}");
        assert_eq!(cookies.len(), usize::from(is_begun), "{site}: {cookies:?}");
    }
}

#[tokio::test]
async fn who_has_no_role_or_is_refused_by_the_provider_is_told_so() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    let mut browser = Browser::new(&world);
    set_person(&issuer, json!({ "groups": ["strangers"] }));
    let to = sign_in(&mut browser).await;
    assert!(to.starts_with("/console/#error=none%20of%20your%20groups"), "{to}");

    let mut back: Url = world.url("/console/oidc/callback").parse().unwrap();
    let provider = start(&mut browser).await;
    let state = provider.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    back.query_pairs_mut().append_pair("error", "access_denied").append_pair("state", &state);
    let to = come_back(&mut browser, &back).await;
    assert!(to.contains("access%5Fdenied"), "{to}");
    issuer.set_away(true);
    let request = browser.request(Method::GET, "/console/oidc/start?issuer=Our%20id");
    let (response, _) = browser.send(request).await.unwrap();
    let to = response.headers()["location"].to_str().unwrap();
    assert!(to.starts_with("/console/#error=the%20identity%20provider"), "{to}");
}
