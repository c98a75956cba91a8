//! A small Discord, built from <https://discord.com/developers/docs/events/gateway> (hello,
//! heartbeat, identify, resume, close codes) and
//! <https://discord.com/developers/docs/resources/message> (messages with an enforced nonce).

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{get, patch, post, put},
};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::{Message, protocol::CloseFrame},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Address, Failure, File, Got, Lack, Platform, Where, Written, multipart};
use crate::world::{World, eventually};

const BOT_TOKEN: &str = "discord-token-0123456789";

pub struct DiscordPlatform {
    state: Arc<Fake>,
    _stop: DropGuard,
}

struct Fake {
    url: String,
    gateway: String,
    /// Dispatched events, with their names; their numbers begin with 1.
    events: watch::Sender<Vec<(String, Value)>>,
    identified: Mutex<usize>,
    connections: Mutex<(usize, usize)>,
    resumed: Mutex<usize>,
    cuts: Mutex<CancellationToken>,
    /// With their nonces; the id of a message is 1000 and its position.
    got: Mutex<Vec<(String, Got)>>,
    deleted: Mutex<HashSet<usize>>,
    reactions: Mutex<usize>,
    is_typing: Mutex<bool>,
    pressed: Mutex<usize>,
    failure: Mutex<Option<Failure>>,
    file: Mutex<Vec<u8>>,
}

impl Platform for DiscordPlatform {
    const CHANNEL: &'static str = "discord";

    async fn start(world: &mut World) -> Self {
        let api = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(Fake {
            url: format!("http://{}", api.local_addr().unwrap()),
            gateway: format!("ws://{}", gateway.local_addr().unwrap()),
            events: watch::Sender::new(Vec::new()),
            identified: Mutex::default(),
            connections: Mutex::default(),
            resumed: Mutex::default(),
            cuts: Mutex::default(),
            got: Mutex::default(),
            deleted: Mutex::default(),
            reactions: Mutex::default(),
            is_typing: Mutex::default(),
            pressed: Mutex::default(),
            failure: Mutex::default(),
            file: Mutex::default(),
        });
        world.config.bridge.discord.api_base.clone_from(&state.url);
        let stop = CancellationToken::new();
        let router = Router::new()
            .route("/gateway/bot", get(gateway_address))
            .route("/channels/{channel}", get(channel))
            .route("/channels/{channel}/messages", post(create_message))
            .route(
                "/channels/{channel}/messages/{message}",
                patch(edit_message).delete(delete_message),
            )
            .route("/channels/{channel}/typing", post(typing))
            .route("/channels/{channel}/messages/{message}/reactions/{emoji}/@me", put(react))
            .route("/interactions/{id}/{token}/callback", post(callback))
            .route(
                "/files/cat.png",
                get(async |State(fake): State<Arc<Fake>>| fake.file.lock().unwrap().clone()),
            )
            .with_state(Arc::clone(&state));
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(api, router).with_graceful_shutdown(stopped).await });
        let (serving, stopped) = (Arc::clone(&state), stop.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    Ok((stream, _)) = gateway.accept() => {
                        tokio::spawn(serve(Arc::clone(&serving), stream));
                    }
                }
            }
        });
        Self { state, _stop: stop.drop_guard() }
    }

    fn lacks(&self) -> &'static [Lack] {
        &[]
    }

    fn account(&self) -> (Value, Value) {
        (json!({"groups": {"allow": ["500"]}}), json!({"token": BOT_TOKEN}))
    }

    fn wrong_secrets(&self) -> Value {
        json!({"token": "WRONG-token-with-20-characters"})
    }

    fn allow_forms(&self) -> Vec<Value> {
        vec![json!("7|anna"), json!(7), json!("@Anna"), json!("*")]
    }

    fn secret(&self) -> &'static str {
        BOT_TOKEN
    }

    async fn is_heard(&self, _: &World) {
        eventually("the bot has signed in", async || *self.state.identified.lock().unwrap() > 0)
            .await;
    }

    async fn write(&self, _: &World, _: &Address, written: Written) {
        let mut message = message(&written.id.to_string(), written.is_allowed, &written.text);
        if written.place != Where::Direct {
            message["guild_id"] = "900".into();
            message["channel_id"] = "500".into();
        }
        if written.place == Where::Mention {
            message["mentions"] = json!([{"id": "42", "username": "bot", "bot": true}]);
            message["content"] = format!("<@42> {}", written.text).into();
        }
        self.state.dispatch("MESSAGE_CREATE", message);
    }

    async fn write_file(&self, _: &World, _: &Address, file: File) {
        let mut message = message("71", true, "");
        *self.state.file.lock().unwrap() = file.content;
        message["attachments"] = json!([{"id": "1", "filename": file.name, "content_type": "image/png",
            "url": format!("{}/files/cat.png", self.state.url)}]);
        self.state.dispatch("MESSAGE_CREATE", message);
    }

    async fn press(&self, _: &World, _: &Address, data: &str) {
        self.state.dispatch(
            "INTERACTION_CREATE",
            json!({"id": "1", "token": "interaction-token", "type": 3, "channel_id": "70",
                "user": {"id": "7", "username": "anna"},
                "data": {"custom_id": data, "component_type": 2}}),
        );
        eventually("the press is confirmed", async || *self.state.pressed.lock().unwrap() == 1)
            .await;
    }

    fn got(&self, _: &World) -> Vec<Got> {
        self.state.got.lock().unwrap().iter().map(|(_, got)| got.clone()).collect()
    }

    fn shown(&self, _: &World) -> Vec<String> {
        let (all, deleted) = (self.state.got.lock().unwrap(), self.state.deleted.lock().unwrap());
        let shown = all.iter().enumerate().filter(|(at, _)| !deleted.contains(at));
        shown.map(|(_, (_, got))| got.text.clone()).collect()
    }

    fn reactions(&self, _: &World) -> usize {
        *self.state.reactions.lock().unwrap()
    }

    fn is_typing_shown(&self, _: &World) -> bool {
        *self.state.is_typing.lock().unwrap()
    }

    fn fail_next(&self, _: &World, failure: Failure) {
        *self.state.failure.lock().unwrap() = Some(failure);
    }

    fn cut(&self, _: &World) {
        std::mem::take(&mut *self.state.cuts.lock().unwrap()).cancel();
    }

    fn connections(&self, _: &World) -> (usize, usize) {
        *self.state.connections.lock().unwrap()
    }

    fn sign_ins(&self, _: &World) -> usize {
        let events = self.state.events.borrow();
        events.iter().filter(|(name, _)| name == "READY").count()
    }

    fn chat(&self) -> &'static str {
        "70"
    }

    fn group(&self) -> &'static str {
        "500"
    }
}

#[tokio::test]
async fn what_came_while_the_connection_was_lost_comes_when_it_is_resumed() {
    let contract = super::Contract::<DiscordPlatform>::start().await;
    contract.write(Where::Direct, 1, "before").await;
    contract.world.taken(1).await;

    contract.platform.cut(&contract.world);
    contract.write(Where::Direct, 2, "meanwhile").await;
    contract.world.taken(2).await;

    assert_eq!(contract.world.gateway.texts(), ["before", "meanwhile"]);
    // More often where a stall of the machine has cost a heartbeat.
    assert!(*contract.platform.state.resumed.lock().unwrap() >= 1);
    contract.stop().await;
}

fn message(id: &str, is_allowed: bool, text: &str) -> Value {
    let author = match is_allowed {
        true => json!({"id": "7", "username": "anna", "global_name": "Anna"}),
        false => json!({"id": "8", "username": "eve"}),
    };
    json!({"id": id, "channel_id": if is_allowed { "70" } else { "80" }, "type": 0, "content": text,
        "author": author, "timestamp": "2026-01-02T03:04:05+00:00", "edited_timestamp": null,
        "mentions": [], "attachments": []})
}

impl Fake {
    fn dispatch(&self, name: &str, data: Value) {
        self.events.send_modify(|events| events.push((name.to_owned(), data)));
    }
}

async fn serve(fake: Arc<Fake>, stream: TcpStream) {
    let cut = fake.cuts.lock().unwrap().clone();
    {
        let mut connections = fake.connections.lock().unwrap();
        (connections.0, connections.1) = (connections.0 + 1, connections.1 + 1);
    }
    let mut is_identified = false;
    if let Ok(mut socket) = accept_async(stream).await {
        tokio::select! {
            () = cut.cancelled() => {}
            _ = talk(&fake, &mut socket, &mut is_identified) => {}
        }
    }
    if is_identified {
        *fake.identified.lock().unwrap() -= 1;
    }
    fake.connections.lock().unwrap().0 -= 1;
}

async fn talk(
    fake: &Fake,
    socket: &mut WebSocketStream<TcpStream>,
    is_identified: &mut bool,
) -> Option<()> {
    let text = |value: Value| Message::text(value.to_string());
    socket.send(text(json!({"op": 10, "d": {"heartbeat_interval": 500}}))).await.ok()?;
    let mut events = fake.events.subscribe();
    let mut cursor = usize::MAX;
    loop {
        let waiting: Vec<(String, Value)> = {
            let all = events.borrow_and_update();
            all.get(cursor.min(all.len())..).unwrap_or_default().to_vec()
        };
        for (name, data) in waiting {
            cursor += 1;
            let event = json!({"op": 0, "s": cursor, "t": name, "d": data});
            socket.send(text(event)).await.ok()?;
        }
        tokio::select! {
            changed = events.changed() => changed.ok()?,
            received = socket.next() => {
                let received = received?.ok()?;
                let Message::Text(received) = received else { continue };
                let received: Value = serde_json::from_str(&received).unwrap();
                match received["op"].as_u64() {
                    Some(1) => socket.send(text(json!({"op": 11}))).await.ok()?,
                    Some(2 | 6) if received["d"]["token"] != BOT_TOKEN => {
                        let close = CloseFrame { code: 4004.into(), reason: "".into() };
                        socket.close(Some(close)).await.ok()?;
                        return None;
                    }
                    Some(2) => {
                        assert_eq!(received["d"]["intents"], 1 | 1 << 9 | 1 << 12 | 1 << 15);
                        cursor = fake.events.borrow().len();
                        fake.dispatch("READY", json!({"session_id": "s1",
                            "resume_gateway_url": fake.gateway, "user": {"id": "42", "username": "bot"}}));
                        *is_identified = true;
                        *fake.identified.lock().unwrap() += 1;
                    }
                    Some(6) => {
                        cursor = usize::try_from(received["d"]["seq"].as_u64().unwrap()).unwrap();
                        socket.send(text(json!({"op": 0, "t": "RESUMED", "d": {}}))).await.ok()?;
                        *is_identified = true;
                        *fake.identified.lock().unwrap() += 1;
                        *fake.resumed.lock().unwrap() += 1;
                    }
                    _ => {}
                }
            }
        }
    }
}

fn is_bot(headers: &HeaderMap) -> bool {
    headers.get("authorization").is_some_and(|token| token == &format!("Bot {BOT_TOKEN}"))
}

fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, Json(json!({"message": "401: Unauthorized"}))).into_response()
}

async fn gateway_address(State(fake): State<Arc<Fake>>, headers: HeaderMap) -> Response {
    match is_bot(&headers) {
        true => Json(json!({"url": fake.gateway})).into_response(),
        false => unauthorized(),
    }
}

async fn channel(Path(channel): Path<String>) -> Json<Value> {
    Json(match channel.as_str() {
        "3" => json!({"id": "3", "type": 11, "parent_id": "500"}),
        other => json!({"id": other, "type": 0}),
    })
}

async fn create_message(
    State(fake): State<Arc<Fake>>,
    Path(channel): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_bot(&headers) {
        return unauthorized();
    }
    let failure = fake.failure.lock().unwrap().take();
    match failure {
        Some(Failure::Refused) => {
            let body = json!({"message": "Missing Access", "code": 50001});
            return (StatusCode::FORBIDDEN, Json(body)).into_response();
        }
        Some(Failure::RateLimited) => {
            let body = json!({"message": "limited", "retry_after": 1.0, "global": false});
            return (StatusCode::TOO_MANY_REQUESTS, Json(body)).into_response();
        }
        Some(Failure::AnswerLost) | None => {}
    }
    let (message, file) = match serde_json::from_slice::<Value>(&body) {
        Ok(message) => (message, None),
        Err(_) => {
            let parts = multipart(&body);
            let payload = parts.iter().find(|part| part.name == "payload_json").unwrap();
            let file = parts.iter().find(|part| part.name == "files[0]").unwrap();
            let name = file.file_name.clone().unwrap();
            (serde_json::from_slice(&payload.content).unwrap(), Some((name, file.content.len())))
        }
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let content = text(&message["content"]).unwrap();
    assert!(content.chars().count() <= 2000);
    let is_thread = channel == "3";
    let rows = message["components"][0]["components"].as_array().cloned().unwrap_or_default();
    let got = Got {
        chat: if is_thread { "500".to_owned() } else { channel.clone() },
        thread: is_thread.then(|| channel.clone()),
        text: content,
        reply_to: text(&message["message_reference"]["message_id"]),
        file,
        buttons: rows.iter().map(|button| text(&button["custom_id"]).unwrap()).collect(),
    };
    let nonce = text(&message["nonce"]).unwrap_or_default();
    assert!(nonce.len() <= 25);
    let mut all = fake.got.lock().unwrap();
    let is_known = message["enforce_nonce"] == true && all.iter().any(|(known, _)| *known == nonce);
    let known = all.iter().position(|(known, _)| *known == nonce).filter(|_| is_known);
    let at = known.unwrap_or_else(|| {
        all.push((nonce, got));
        all.len() - 1
    });
    if failure == Some(Failure::AnswerLost) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    Json(json!({"id": (1000 + at).to_string(), "channel_id": channel})).into_response()
}

async fn edit_message(
    State(fake): State<Arc<Fake>>,
    Path((_, message)): Path<(String, usize)>,
    Json(body): Json<Value>,
) -> Json<Value> {
    let mut all = fake.got.lock().unwrap();
    body["content"].as_str().unwrap().clone_into(&mut all[message - 1000].1.text);
    Json(json!({"id": message.to_string()}))
}

async fn delete_message(
    State(fake): State<Arc<Fake>>,
    Path((_, message)): Path<(String, usize)>,
) -> StatusCode {
    fake.deleted.lock().unwrap().insert(message - 1000);
    StatusCode::NO_CONTENT
}

async fn typing(State(fake): State<Arc<Fake>>) -> StatusCode {
    *fake.is_typing.lock().unwrap() = true;
    StatusCode::NO_CONTENT
}

async fn react(
    State(fake): State<Arc<Fake>>,
    Path((_, message, emoji)): Path<(String, String, String)>,
) -> StatusCode {
    assert_eq!((message.as_str(), emoji.as_str()), ("11", "👍"));
    *fake.reactions.lock().unwrap() += 1;
    StatusCode::NO_CONTENT
}

async fn callback(State(fake): State<Arc<Fake>>, Json(body): Json<Value>) -> StatusCode {
    assert_eq!(body["type"], 6);
    *fake.pressed.lock().unwrap() += 1;
    StatusCode::NO_CONTENT
}
