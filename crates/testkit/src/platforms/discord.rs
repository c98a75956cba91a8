//! Discord: events over a WebSocket that can be resumed, messages with an enforced nonce.
//!
//! Sources: <https://discord.com/developers/docs/events/gateway> and
//! <https://discord.com/developers/docs/resources/message>. A connection that signs in anew gets no
//! events from before; one that resumes gets all after its number.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{AccountSettings, Posted, Written, accept, account_of, secret_of};
use crate::faults::{Fault, Faults, retry_seconds};
use crate::http::{Cut, Server};
use crate::scratch::lock;

/// Name and data of an event; the number of the first is 1.
type Events = Vec<(String, Value)>;

#[derive(Debug)]
pub struct FakeDiscord {
    server: Server,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

#[derive(Debug, Default)]
struct Shared {
    gateway: OnceLock<String>,
    accounts: Mutex<HashMap<String, watch::Sender<Events>>>,
    posted: Mutex<Vec<Posted>>,
    nonces: Mutex<HashSet<(String, String)>>,
    /// Numbers of connections that are signed in, by account.
    connected: Mutex<HashMap<String, usize>>,
    faults: Faults,
}

/// A connection that is signed in, until it is dropped.
struct SignedIn<'s>(&'s Shared, String);

impl<'s> SignedIn<'s> {
    fn new(shared: &'s Shared, account: &str) -> Self {
        *lock(&shared.connected).entry(account.to_owned()).or_default() += 1;
        Self(shared, account.to_owned())
    }
}

impl Drop for SignedIn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.connected).entry(self.1.clone()).or_default() -= 1;
    }
}

impl FakeDiscord {
    /// Listens on free ports of this address.
    pub async fn start_on(ip: IpAddr) -> anyhow::Result<Self> {
        let (shared, stop) = (Arc::new(Shared::default()), CancellationToken::new());
        let serving = Arc::clone(&shared);
        let serve = move |stream| serve(Arc::clone(&serving), stream);
        let port = accept(ip, stop.clone(), serve).await?;
        drop(shared.gateway.set(format!("ws://{ip}:{port}")));
        let router = Router::new()
            .route("/gateway/bot", get(gateway))
            .route("/channels/{channel}", get(channel))
            .route("/channels/{channel}/messages", post(create_message))
            .route("/channels/{channel}/typing", post(async || StatusCode::NO_CONTENT))
            .with_state(Arc::clone(&shared));
        Ok(Self { server: Server::start_on(ip, router).await?, shared, _stop: stop.drop_guard() })
    }

    /// Base URL of the API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Settings and secrets of an account that everybody may write to.
    #[must_use]
    pub fn account(&self, name: &str) -> AccountSettings {
        AccountSettings {
            settings: json!({"allow": ["*"]}),
            secrets: json!({"token": secret_of(name)}),
        }
    }

    /// Whether a connection gets what is written to the account now.
    #[must_use]
    pub fn is_heard(&self, account: &str) -> bool {
        lock(&self.shared.connected).get(account).is_some_and(|connections| *connections > 0)
    }

    /// Somebody writes. The message is lost if no connection gets it, or the one that gets it ends
    /// before it is handled.
    pub fn push(&self, account: &str, written: &Written<'_>) {
        let person = written.person.to_string();
        let message = json!({"id": written.id.to_string(), "channel_id": person, "type": 0,
            "content": written.text, "author": {"id": person, "username": format!("person-{person}")},
            "timestamp": "2026-01-02T03:04:05+00:00", "edited_timestamp": null,
            "mentions": [], "attachments": []});
        let event = ("MESSAGE_CREATE".to_owned(), message);
        self.shared.of(account).send_modify(|events| events.push(event));
    }

    /// Messages of bots, each nonce once, oldest first.
    #[must_use]
    pub fn posted(&self) -> Vec<Posted> {
        lock(&self.shared.posted).clone()
    }
}

impl Shared {
    fn of(&self, account: &str) -> watch::Sender<Events> {
        let mut accounts = lock(&self.accounts);
        accounts.entry(account.to_owned()).or_insert_with(|| watch::Sender::new(Vec::new())).clone()
    }

    fn caller(headers: &HeaderMap) -> Option<String> {
        account_of(headers.get("authorization")?.to_str().ok()?.strip_prefix("Bot ")?)
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    if let Ok(socket) = accept_async(stream).await {
        talk(&shared, socket).await;
    }
}

async fn talk(shared: &Shared, mut socket: WebSocketStream<TcpStream>) -> Option<()> {
    let text = |value: Value| Message::text(value.to_string());
    socket.send(text(json!({"op": 10, "d": {"heartbeat_interval": 1000}}))).await.ok()?;
    // Events of the account, once it is signed in, and the number of those that were sent.
    let mut session: Option<(watch::Receiver<Events>, usize)> = None;
    let mut _signed_in = None;
    loop {
        if let Some((events, sent)) = &mut session {
            let waiting = events.borrow_and_update().get(*sent..).unwrap_or_default().to_vec();
            for (name, data) in waiting {
                *sent += 1;
                socket.send(text(json!({"op": 0, "s": *sent, "t": name, "d": data}))).await.ok()?;
            }
        }
        let changed = async {
            match &mut session {
                Some((events, _)) => events.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        let received = tokio::select! {
            is_open = changed => if is_open { continue } else { return None },
            received = socket.next() => received?.ok()?,
        };
        let Message::Text(received) = received else { continue };
        let received: Value = serde_json::from_str(&received).ok()?;
        let token = received["d"]["token"].as_str().and_then(account_of);
        match (received["op"].as_u64(), token) {
            (Some(1), _) => socket.send(text(json!({"op": 11}))).await.ok()?,
            (Some(2), Some(account)) => {
                let events = shared.of(&account);
                let ready = json!({"session_id": account, "resume_gateway_url": shared.gateway.get(),
                    "user": {"id": "42", "username": "bot"}});
                let before = events.borrow().len();
                events.send_modify(|events| events.push(("READY".to_owned(), ready)));
                session = Some((events.subscribe(), before));
                _signed_in = Some(SignedIn::new(shared, &account));
                session.as_mut()?.0.mark_changed();
            }
            (Some(6), Some(account)) => {
                let number = usize::try_from(received["d"]["seq"].as_u64()?).ok()?;
                socket.send(text(json!({"op": 0, "t": "RESUMED", "d": {}}))).await.ok()?;
                session = Some((shared.of(&account).subscribe(), number));
                _signed_in = Some(SignedIn::new(shared, &account));
                session.as_mut()?.0.mark_changed();
            }
            _ => {}
        }
    }
}

async fn gateway(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    match Shared::caller(&headers) {
        Some(_) => Json(json!({"url": shared.gateway.get()})).into_response(),
        None => StatusCode::UNAUTHORIZED.into_response(),
    }
}

async fn channel(Path(channel): Path<String>) -> Json<Value> {
    Json(json!({"id": channel, "type": 1}))
}

/// Response to a request that posts a message if a fault refuses it; `None` if it is to be done, even if
/// its answer is lost.
fn refusal(faults: &Faults, cut: &Cut) -> Option<Response> {
    match faults.take() {
        Some(Fault::Status(status)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            Some((status, "").into_response())
        }
        Some(Fault::RateLimited { retry_after }) => {
            let seconds = retry_seconds(retry_after);
            let body = json!({"message": "limited", "retry_after": seconds, "global": false});
            let header = [("retry-after", seconds.to_string())];
            Some((StatusCode::TOO_MANY_REQUESTS, header, Json(body)).into_response())
        }
        Some(Fault::CutBefore) => {
            cut.now();
            Some(StatusCode::BAD_GATEWAY.into_response())
        }
        Some(Fault::CutAfter) => {
            cut.now();
            None
        }
        Some(Fault::Hang(_)) | None => None,
    }
}

async fn create_message(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    Path(channel): Path<String>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Response {
    let Some(account) = Shared::caller(&headers) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    if let Some(refusal) = refusal(&shared.faults, &cut) {
        return refusal;
    }
    let text = |field: &str| message[field].as_str().unwrap_or_default().to_owned();
    let is_new = message["enforce_nonce"] != true
        || lock(&shared.nonces).insert((account.clone(), text("nonce")));
    if is_new {
        let (at, text) = (Instant::now(), text("content"));
        lock(&shared.posted).push(Posted { at, account, chat: channel.clone(), text });
    }
    Json(json!({"id": "1000", "channel_id": channel})).into_response()
}
