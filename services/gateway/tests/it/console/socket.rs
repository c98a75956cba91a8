//! Connections of the page to the WebSocket gateway.

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    client_async,
    tungstenite::{self, client::IntoClientRequest as _},
};

use super::{Browser, link};
use crate::{
    websocket::{
        access::{is_closed, relay, without_ticks},
        client::{Called, Client, connect_params},
    },
    world::World,
};
use holdfast_proto::gateway::v1 as pb;

/// Opens a connection as the page does; the status of the refusal otherwise.
async fn open(browser: &Browser, world: &World, session: &str) -> Result<Client, u16> {
    let url = format!("ws://{}/console/ws?session={session}", world.http);
    let mut request = url.into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("cookie", browser.cookie_header().parse().unwrap());
    if let Some(origin) = &browser.origin {
        headers.insert("origin", origin.parse().unwrap());
    }
    let socket = TcpStream::connect(world.http).await.unwrap();
    match client_async(request, socket).await {
        Ok((socket, _)) => Ok(Client::of(socket)),
        Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// Parameters of the page, which has no token.
fn params() -> Value {
    let mut params = connect_params("");
    params.as_object_mut().unwrap().remove("auth");
    params
}

async fn connect(client: &mut Client, params: Value) -> Called {
    let challenge = client.frame().await.unwrap();
    assert_eq!(challenge["event"], "connect.challenge");
    client.call("connect", params).await.unwrap()
}

#[tokio::test]
async fn the_page_connects_with_its_cookie_and_without_a_token() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let mut client = open(&browser, &world, &session).await.unwrap_or_else(|code| panic!("{code}"));

    let hello = connect(&mut client, params()).await.unwrap();

    assert_eq!(hello["type"], "hello-ok");
    let said = json!({ "sessionKey": "main", "message": "hi", "idempotencyKey": "k" });
    client.call("chat.send", said).await.unwrap().unwrap();
    assert_eq!(client.chat_end("k").await.unwrap()["state"], "final");
}

#[tokio::test]
async fn other_pages_programs_and_people_without_the_cookie_get_no_connection() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let own = browser.origin.clone();
    for origin in [Some("https://evil.example"), Some("null"), None] {
        browser.origin = origin.map(str::to_owned);
        assert_eq!(open(&browser, &world, &session).await.err(), Some(403), "{origin:?}");
    }
    browser.origin = own;
    let other = "0190f3c4d5e67890abcd1234567890ab";
    assert_eq!(open(&browser, &world, other).await.err(), Some(401));
    let token = browser.cookies.values().next().unwrap().clone();
    browser.cookies.clear();
    assert_eq!(open(&browser, &world, &session).await.err(), Some(401));

    // The token is worth nothing where programs connect.
    let (_, refused) = Client::connect(world.http, connect_params(&token)).await.unwrap();
    assert_eq!(refused.unwrap_err()["details"]["code"], "AUTH_TOKEN_MISSING");
}

#[tokio::test]
async fn a_connection_has_the_scopes_of_its_session_and_ends_with_it() {
    let world = World::start_with(|config| {
        config.gateway.websocket.tick_interval = std::time::Duration::from_secs(5);
    });
    let world = world.await.unwrap();
    let mut browser = Browser::new(&world);
    let (scopes, name) = (vec!["read".to_owned()], String::new());
    let made = link(
        &world,
        &world.anna,
        pb::CreateSignInLinkRequest { scopes, name, ..Default::default() },
    )
    .await;
    let session = browser.sign_in(json!({ "link": made.unwrap().token })).await.unwrap();
    let mut client = open(&browser, &world, &session).await.unwrap_or_else(|code| panic!("{code}"));

    let hello = connect(&mut client, params()).await.unwrap();

    assert_eq!(hello["auth"]["scopes"], json!(["operator.read"]));
    let out = browser.request(reqwest::Method::POST, "/console/sign-out");
    browser.send(out.header("x-holdfast-session", &session)).await.unwrap();
    is_closed(&mut client).await;
}

#[tokio::test]
async fn a_page_is_disconnected_at_once_when_its_session_is_ended() {
    let world = World::start_with(without_ticks).await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let mut client = open(&browser, &world, &session).await.unwrap_or_else(|code| panic!("{code}"));
    connect(&mut client, params()).await.unwrap();

    let out = browser.request(reqwest::Method::POST, "/console/sign-out");
    browser.send(out.header("x-holdfast-session", &session)).await.unwrap();
    relay(&world).await;

    is_closed(&mut client).await;
}

#[tokio::test]
async fn a_device_does_not_pair_over_the_connection_of_a_page() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let mut client = open(&browser, &world, &session).await.unwrap_or_else(|code| panic!("{code}"));
    let mut with_device = params();
    with_device["device"] = json!({
        "id": "0", "publicKey": "0", "signature": "0", "signedAt": 0, "nonce": "0",
    });

    let refused = connect(&mut client, with_device).await.unwrap_err();

    assert!(refused["message"].as_str().unwrap().contains("a device connects at"), "{refused}");
}
