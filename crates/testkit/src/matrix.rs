//! A small Matrix homeserver with one account, by <https://spec.matrix.org/latest/client-server-api/>.
//!
//! As a homeserver does, it executes each transaction id once, and keeps all events of its rooms.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::faults::{Fault, Faults};
use crate::http::{Cut, LOCALHOST, Server};
use crate::scratch::lock;

/// Access token of the account `@bot:x`.
pub const TOKEN: &str = "matrix-token-0123456789";

/// The room with more than two members.
pub const GROUP: &str = "!room:x";

/// A homeserver on a loopback port; it is gone when dropped.
#[derive(Debug)]
pub struct FakeMatrix {
    server: Server,
    state: Arc<Homeserver>,
}

/// An event that the account sent, stored once for each transaction.
#[derive(Debug, Clone)]
pub struct SentEvent {
    pub at: Instant,
    pub room: String,
    pub kind: String,
    pub txn: String,
    pub content: Value,
}

#[derive(Debug, Default)]
struct Homeserver {
    /// Events with their rooms; a position in the stream is a number of events.
    events: watch::Sender<Vec<(String, Value)>>,
    /// Newest position behind which the account has read on.
    position: Mutex<usize>,
    sent: Mutex<Vec<SentEvent>>,
    files: Mutex<HashMap<String, Vec<u8>>>,
    faults: Faults,
    is_typing: Mutex<bool>,
    /// Polls at this moment, and all.
    polls: Mutex<(usize, usize)>,
    sign_ins: Mutex<usize>,
    cuts: Mutex<CancellationToken>,
}

impl FakeMatrix {
    /// A homeserver that takes everything.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_on(LOCALHOST).await
    }

    /// Listens on a free port of this address.
    pub async fn start_on(ip: IpAddr) -> anyhow::Result<Self> {
        let state = Arc::new(Homeserver::default());
        let router =
            Router::new().route("/_matrix/{*path}", any(serve)).with_state(Arc::clone(&state));
        Ok(Self { server: Server::start_on(ip, router).await?, state })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// Faults of sends. A status is a refusal that says `M_FORBIDDEN`.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.state.faults
    }

    /// Adds an event to a room. An event with an id that was there before comes again.
    pub fn push(&self, room: &str, event: Value) {
        self.state.events.send_modify(|events| events.push((room.to_owned(), event)));
    }

    /// Events behind the newest position from which the account has read on.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state.events.borrow().len() - *lock(&self.state.position)
    }

    /// What the account sent, oldest first.
    #[must_use]
    pub fn sent(&self) -> Vec<SentEvent> {
        lock(&self.state.sent).clone()
    }

    /// Stores a file, for `mxc://x/<id>`.
    pub fn put_file(&self, id: &str, content: Vec<u8>) {
        lock(&self.state.files).insert(id.to_owned(), content);
    }

    #[must_use]
    pub fn is_typing_shown(&self) -> bool {
        *lock(&self.state.is_typing)
    }

    /// Polls at this moment, and since the beginning.
    #[must_use]
    pub fn polls(&self) -> (usize, usize) {
        *lock(&self.state.polls)
    }

    /// How often the account has asked who it is, which it does before it polls.
    #[must_use]
    pub fn sign_ins(&self) -> usize {
        *lock(&self.state.sign_ins)
    }

    /// Ends all polls.
    pub fn cut(&self) {
        std::mem::take(&mut *lock(&self.state.cuts)).cancel();
    }
}

/// A poll that is counted until it ends, also by a lost connection.
struct Poll<'a>(&'a Homeserver);

impl<'a> Poll<'a> {
    fn begin(state: &'a Homeserver) -> Self {
        let mut polls = lock(&state.polls);
        *polls = (polls.0 + 1, polls.1 + 1);
        Self(state)
    }
}

impl Drop for Poll<'_> {
    fn drop(&mut self) {
        lock(&self.0.polls).0 -= 1;
    }
}

impl Homeserver {
    async fn sync(&self, query: &HashMap<String, String>) -> Response {
        let number = |name: &str| query.get(name).and_then(|text| text.parse::<u64>().ok());
        let wait = Duration::from_millis(number("timeout").unwrap_or_default());
        let since = number("since").and_then(|since| usize::try_from(since).ok());
        let since = since.unwrap_or_default();
        {
            let mut position = lock(&self.position);
            *position = since.max(*position);
        }
        let cut = lock(&self.cuts).clone();
        let _poll = Poll::begin(self);
        let mut events = self.events.subscribe();
        tokio::select! {
            () = cut.cancelled() => return StatusCode::BAD_GATEWAY.into_response(),
            _ = timeout(wait, events.wait_for(|events| events.len() > since)) => {}
        }
        let events = self.events.borrow();
        let mut rooms: HashMap<&str, Vec<&Value>> = HashMap::new();
        for (room, event) in events.iter().skip(since) {
            rooms.entry(room).or_default().push(event);
        }
        let rooms: serde_json::Map<String, Value> = rooms
            .into_iter()
            .map(|(room, events)| (room.to_owned(), json!({"timeline": {"events": events}})))
            .collect();
        Json(json!({"next_batch": events.len().to_string(), "rooms": {"join": rooms}}))
            .into_response()
    }

    async fn send(&self, event: SentEvent, cut: &Cut) -> Response {
        let fault = self.faults.take();
        match &fault {
            Some(Fault::Status(code)) => {
                let body = json!({"errcode": "M_FORBIDDEN", "error": "you are not in the room"});
                let code = StatusCode::from_u16(*code).unwrap_or(StatusCode::FORBIDDEN);
                return (code, Json(body)).into_response();
            }
            Some(Fault::RateLimited { retry_after }) => {
                let wait = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
                let body =
                    json!({"errcode": "M_LIMIT_EXCEEDED", "error": "wait", "retry_after_ms": wait});
                return (StatusCode::TOO_MANY_REQUESTS, Json(body)).into_response();
            }
            Some(Fault::CutBefore) => {
                cut.now();
                return StatusCode::BAD_GATEWAY.into_response();
            }
            Some(Fault::Hang(_) | Fault::CutAfter) | None => {}
        }
        let at = self.store(event);
        match fault {
            Some(Fault::Hang(time)) => tokio::time::sleep(time).await,
            Some(_) => cut.now(),
            None => {}
        }
        Json(json!({"event_id": format!("$sent{at}")})).into_response()
    }

    /// Position of the event, which is stored unless its transaction is known.
    fn store(&self, event: SentEvent) -> usize {
        let mut sent = lock(&self.sent);
        let known = sent.iter().position(|known| known.txn == event.txn);
        known.unwrap_or_else(|| {
            sent.push(event);
            sent.len() - 1
        })
    }
}

async fn serve(
    State(state): State<Arc<Homeserver>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    Path(path): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    if headers.get("authorization").is_none_or(|given| given != &format!("Bearer {TOKEN}")) {
        let body = json!({"errcode": "M_UNKNOWN_TOKEN", "error": "unknown token"});
        return (StatusCode::UNAUTHORIZED, Json(body)).into_response();
    }
    let method = request.method().clone();
    let body = Body::new(request.into_body());
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let path: Vec<&str> = path.split('/').collect();
    match (method, path.as_slice()) {
        (Method::GET, ["client", "v3", "account", "whoami"]) => {
            *lock(&state.sign_ins) += 1;
            Json(json!({"user_id": "@bot:x"})).into_response()
        }
        (Method::GET, ["client", "v3", "profile", ..]) => {
            Json(json!({"displayname": "Holdfast"})).into_response()
        }
        (Method::GET, ["client", "v3", "sync"]) => state.sync(&query).await,
        (Method::GET, ["client", "v3", "rooms", room, "joined_members"]) => {
            let mut joined = json!({"@bot:x": {}, "@anna:x": {}});
            if *room == GROUP {
                joined["@bob:x"] = json!({});
            }
            Json(json!({"joined": joined})).into_response()
        }
        (Method::PUT, ["client", "v3", "rooms", room, "send", kind, txn]) => {
            let content = serde_json::from_slice(&body).unwrap_or_default();
            let (room, kind, txn) = ((*room).to_owned(), (*kind).to_owned(), (*txn).to_owned());
            state.send(SentEvent { at: Instant::now(), room, kind, txn, content }, &cut).await
        }
        (Method::PUT, ["client", "v3", "rooms", room, "redact", event, txn]) => {
            let (room, txn) = ((*room).to_owned(), (*txn).to_owned());
            let (kind, content) = ("m.room.redaction".to_owned(), json!({"redacts": event}));
            state.send(SentEvent { at: Instant::now(), room, kind, txn, content }, &cut).await
        }
        (Method::PUT, ["client", "v3", "rooms", _, "typing", _]) => {
            *lock(&state.is_typing) = true;
            Json(json!({})).into_response()
        }
        (Method::POST, ["media", "v3", "upload"]) => {
            lock(&state.files).insert("up".to_owned(), body.to_vec());
            Json(json!({"content_uri": "mxc://x/up"})).into_response()
        }
        (Method::GET, ["client", "v1", "media", "download", "x", id]) => {
            match lock(&state.files).get(*id) {
                Some(file) => file.clone().into_response(),
                None => StatusCode::NOT_FOUND.into_response(),
            }
        }
        _ => {
            let body = json!({"errcode": "M_NOT_FOUND", "error": "there is nothing"});
            (StatusCode::NOT_FOUND, Json(body)).into_response()
        }
    }
}
