//! A small Slack with one app.
//!
//! Built from <https://docs.slack.dev/apis/events-api/using-socket-mode> (envelopes, confirmation),
//! <https://docs.slack.dev/reference/methods/chat.postMessage> (metadata) and
//! <https://docs.slack.dev/messaging/working-with-files> (uploads). As Slack does, it offers an
//! envelope on each new connection until it is confirmed, and takes each post, also one that came
//! before.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::faults::{Fault, Faults, retry_seconds};
use crate::http::{Cut, LOCALHOST, Server};
use crate::scratch::lock;

/// Token of the bot, with which methods are called.
pub const BOT_TOKEN: &str = "xoxb-slack-token-0123456789";

/// Token of the app, with which connections are opened.
pub const APP_TOKEN: &str = "xapp-slack-token-0123456789";

/// A Slack on two loopback ports; it is gone when dropped.
#[derive(Debug)]
pub struct FakeSlack {
    server: Server,
    state: Arc<Workspace>,
    _stop: DropGuard,
}

/// A message or a file that the app sent.
#[derive(Debug, Clone)]
pub struct SlackCall {
    pub at: Instant,
    /// `chat.postMessage` or `files.completeUploadExternal`.
    pub method: String,
    pub input: Value,
    /// Size of the file.
    pub size: usize,
    /// Whether the app has deleted the message.
    pub is_deleted: bool,
}

#[derive(Debug)]
struct Workspace {
    /// Where connections are made.
    socket: SocketAddr,
    /// Payloads of envelopes, whose ids are their positions.
    events: watch::Sender<Vec<Value>>,
    confirmed: Mutex<HashSet<usize>>,
    /// Connections at this moment, and all.
    connections: Mutex<(usize, usize)>,
    cuts: Mutex<CancellationToken>,
    taken: Mutex<Vec<SlackCall>>,
    uploaded: Mutex<usize>,
    reactions: Mutex<Vec<Value>>,
    faults: Faults,
    file: Mutex<Vec<u8>>,
}

impl FakeSlack {
    /// A Slack that takes everything.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_on(LOCALHOST).await
    }

    /// Listens on two free ports of this address.
    pub async fn start_on(ip: IpAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((ip, 0)).await?;
        let state = Arc::new(Workspace {
            socket: listener.local_addr()?,
            events: watch::Sender::default(),
            confirmed: Mutex::default(),
            connections: Mutex::default(),
            cuts: Mutex::default(),
            taken: Mutex::default(),
            uploaded: Mutex::default(),
            reactions: Mutex::default(),
            faults: Faults::default(),
            file: Mutex::default(),
        });
        let router = Router::new()
            .route("/{method}", post(call))
            .route("/upload/F1", post(upload))
            .route("/files/cat.png", get(download))
            .with_state(Arc::clone(&state));
        let (serving, stop) = (Arc::clone(&state), CancellationToken::new());
        let stopped = stop.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    Ok((stream, _)) = listener.accept() => {
                        tokio::spawn(connect(Arc::clone(&serving), stream));
                    }
                }
            }
        });
        let server = Server::start_on(ip, router).await?;
        Ok(Self { server, state, _stop: stop.drop_guard() })
    }

    /// Base of the addresses of methods.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// Faults of posts. A status below 500 is the refusal `channel_not_found`.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.state.faults
    }

    /// Sends an event, or the press of a button, to the app.
    pub fn push(&self, payload: Value) {
        self.state.events.send_modify(|events| events.push(payload));
    }

    /// Envelopes that the app has not confirmed.
    #[must_use]
    pub fn pending(&self) -> usize {
        let all = self.state.events.borrow().len();
        all - lock(&self.state.confirmed).len()
    }

    /// What the app sent, oldest first.
    #[must_use]
    pub fn taken(&self) -> Vec<SlackCall> {
        lock(&self.state.taken).clone()
    }

    /// Reactions, as they were added.
    #[must_use]
    pub fn reactions(&self) -> Vec<Value> {
        lock(&self.state.reactions).clone()
    }

    /// Stores the file `/files/cat.png`.
    pub fn put_file(&self, content: Vec<u8>) {
        *lock(&self.state.file) = content;
    }

    /// Connections at this moment, and since the beginning.
    #[must_use]
    pub fn connections(&self) -> (usize, usize) {
        *lock(&self.state.connections)
    }

    /// Ends all connections.
    pub fn cut(&self) {
        std::mem::take(&mut *lock(&self.state.cuts)).cancel();
    }
}

async fn connect(state: Arc<Workspace>, stream: TcpStream) {
    let cut = lock(&state.cuts).clone();
    {
        let mut connections = lock(&state.connections);
        *connections = (connections.0 + 1, connections.1 + 1);
    }
    if let Ok(mut socket) = accept_async(stream).await {
        tokio::select! {
            () = cut.cancelled() => {}
            _ = talk(&state, &mut socket) => {}
        }
    }
    lock(&state.connections).0 -= 1;
}

async fn talk(state: &Workspace, socket: &mut WebSocketStream<TcpStream>) -> Option<()> {
    socket.send(Message::text(json!({"type": "hello"}).to_string())).await.ok()?;
    let mut events = state.events.subscribe();
    let mut cursor = 0;
    loop {
        let new: Vec<Value> = events.borrow_and_update().iter().skip(cursor).cloned().collect();
        for payload in new {
            let number = cursor;
            cursor += 1;
            if lock(&state.confirmed).contains(&number) {
                continue;
            }
            let kind =
                if payload["type"] == "block_actions" { "interactive" } else { "events_api" };
            let envelope =
                json!({"type": kind, "envelope_id": number.to_string(), "payload": payload});
            socket.send(Message::text(envelope.to_string())).await.ok()?;
        }
        tokio::select! {
            changed = events.changed() => changed.ok()?,
            received = socket.next() => {
                let Message::Text(received) = received?.ok()? else { continue };
                let received: Value = serde_json::from_str(&received).ok()?;
                let number = received["envelope_id"].as_str()?.parse().ok()?;
                lock(&state.confirmed).insert(number);
            }
        }
    }
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    headers.get("authorization").is_some_and(|given| given == &format!("Bearer {token}"))
}

async fn download(State(state): State<Arc<Workspace>>, headers: HeaderMap) -> Response {
    match has_token(&headers, BOT_TOKEN) {
        true => lock(&state.file).clone().into_response(),
        false => StatusCode::FORBIDDEN.into_response(),
    }
}

async fn upload(State(state): State<Arc<Workspace>>, body: Bytes) -> StatusCode {
    *lock(&state.uploaded) = body.len();
    StatusCode::OK
}

async fn call(
    State(state): State<Arc<Workspace>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let token = if method == "apps.connections.open" { APP_TOKEN } else { BOT_TOKEN };
    if !has_token(&headers, token) {
        return Json(json!({"ok": false, "error": "invalid_auth"})).into_response();
    }
    let input: Value = serde_json::from_slice(&body).unwrap_or_default();
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let answer = match method.as_str() {
        "auth.test" => {
            json!({"ok": true, "user_id": "U42", "bot_id": "B42", "user": "bot", "team": "acme"})
        }
        "apps.connections.open" => {
            json!({"ok": true, "url": format!("ws://{}/?ticket=1", state.socket)})
        }
        "chat.postMessage" => return state.post_message(input, &cut).await,
        "chat.update" => state.change(&input, |message| {
            for field in ["text", "blocks", "metadata"] {
                message.input[field] = input[field].clone();
            }
        }),
        "chat.delete" => state.change(&input, |message| message.is_deleted = true),
        "conversations.history" | "conversations.replies" => {
            state.history(&String::from_utf8_lossy(&body))
        }
        "files.getUploadURLExternal" => {
            json!({"ok": true, "upload_url": format!("http://{host}/upload/F1"), "file_id": "F1"})
        }
        "files.completeUploadExternal" => {
            let size = *lock(&state.uploaded);
            lock(&state.taken).push(SlackCall {
                at: Instant::now(),
                method,
                input,
                size,
                is_deleted: false,
            });
            json!({"ok": true})
        }
        "reactions.add" => {
            lock(&state.reactions).push(input);
            json!({"ok": true})
        }
        _ => json!({"ok": false, "error": "unknown_method"}),
    };
    Json(answer).into_response()
}

/// The time stamp that is the id of the call with this number.
fn time_stamp(number: usize) -> String {
    format!("{}.000100", 1_700_000_100 + number)
}

impl Workspace {
    /// Messages of the chat that the form names.
    fn history(&self, form: &str) -> Value {
        let wanted = form.split('&').find_map(|pair| pair.strip_prefix("channel="));
        let wanted = wanted.unwrap_or_default().replace("%2D", "-");
        let messages: Vec<Value> = lock(&self.taken)
            .iter()
            .enumerate()
            .filter(|(_, call)| {
                let is_there = call.method == "chat.postMessage" && !call.is_deleted;
                is_there && call.input["channel"] == wanted
            })
            .map(|(number, call)| {
                let (text, metadata) = (&call.input["text"], &call.input["metadata"]);
                json!({"ts": time_stamp(number), "text": text, "metadata": metadata})
            })
            .collect();
        json!({"ok": true, "messages": messages, "response_metadata": {"next_cursor": ""}})
    }

    /// Changes the message that the input names by its time stamp.
    fn change(&self, input: &Value, change: impl FnOnce(&mut SlackCall)) -> Value {
        let mut taken = lock(&self.taken);
        let is_named = |(number, _): &(usize, &mut SlackCall)| input["ts"] == time_stamp(*number);
        match taken.iter_mut().enumerate().find(is_named) {
            Some((_, message)) => {
                change(message);
                json!({"ok": true, "ts": input["ts"]})
            }
            None => json!({"ok": false, "error": "message_not_found"}),
        }
    }

    async fn post_message(&self, input: Value, cut: &Cut) -> Response {
        let fault = self.faults.take();
        match &fault {
            Some(Fault::Status(code)) if *code >= 500 => {
                let code = StatusCode::from_u16(*code).unwrap_or(StatusCode::BAD_GATEWAY);
                return code.into_response();
            }
            Some(Fault::Status(_)) => {
                return Json(json!({"ok": false, "error": "channel_not_found"})).into_response();
            }
            Some(Fault::RateLimited { retry_after }) => {
                let wait = [("retry-after", retry_seconds(*retry_after).to_string())];
                return (StatusCode::TOO_MANY_REQUESTS, wait, "").into_response();
            }
            Some(Fault::CutBefore) => {
                cut.now();
                return StatusCode::BAD_GATEWAY.into_response();
            }
            Some(Fault::Hang(_) | Fault::CutAfter) | None => {}
        }
        let channel = input["channel"].clone();
        let number = {
            let mut taken = lock(&self.taken);
            let method = "chat.postMessage".to_owned();
            taken.push(SlackCall { at: Instant::now(), method, input, size: 0, is_deleted: false });
            taken.len() - 1
        };
        match fault {
            Some(Fault::Hang(time)) => tokio::time::sleep(time).await,
            Some(_) => cut.now(),
            None => {}
        }
        Json(json!({"ok": true, "ts": time_stamp(number), "channel": channel})).into_response()
    }
}
