//! A receiver of signed webhooks, as a customer would run one.
//!
//! It does what a good one does: it takes each `idempotency-key` once, whatever happens to its
//! answers. So `unique` is what the customer got, and `posts` what travelled.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use tokio::sync::watch;

use crate::faults::{Fault, Faults, retry_seconds};
use crate::http::{Cut, LOCALHOST, Server};
use crate::scratch::lock;

/// A receiver on a loopback port; it is gone when dropped.
#[derive(Debug)]
pub struct FakeReceiver {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    posts: Mutex<Vec<Post>>,
    taken: Mutex<Vec<Post>>,
    keys: Mutex<HashSet<String>>,
    count: watch::Sender<usize>,
    faults: Faults,
}

#[derive(Debug, Clone)]
pub struct Post {
    pub at: Instant,
    /// The path it was posted to.
    pub path: String,
    /// The headers, their names in lower case.
    pub headers: HashMap<String, String>,
    /// The body as it was signed.
    pub body: Vec<u8>,
}

impl Post {
    /// A header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The key that makes a second delivery harmless.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.header("idempotency-key")
    }

    /// The body as JSON, null if it is not.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl FakeReceiver {
    /// A receiver that takes everything, at any path.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_on(LOCALHOST).await
    }

    /// Listens on a free port of this address.
    pub async fn start_on(ip: IpAddr) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let router = Router::new().fallback(receive).with_state(Arc::clone(&shared));
        Ok(Self { server: Server::start_on(ip, router).await?, shared })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.server.addr())
    }

    /// The address, for a [`crate::Proxy`].
    #[must_use]
    pub const fn addr(&self) -> std::net::SocketAddr {
        self.server.addr()
    }

    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// All that came, also what was refused, oldest first.
    #[must_use]
    pub fn posts(&self) -> Vec<Post> {
        lock(&self.shared.posts).clone()
    }

    /// What was taken: one for each key, in the order in which they first came. Posts without a
    /// key are all taken.
    #[must_use]
    pub fn unique(&self) -> Vec<Post> {
        lock(&self.shared.taken).clone()
    }

    /// Whether something with these bytes in its body was taken.
    #[must_use]
    pub fn has_taken(&self, bytes: &[u8]) -> bool {
        let is_in = |post: &Post| post.body.windows(bytes.len().max(1)).any(|part| part == bytes);
        lock(&self.shared.taken).iter().rev().any(is_in)
    }

    /// Waits until so many posts came; says whether they did.
    pub async fn wait_for(&self, count: usize, limit: Duration) -> bool {
        let mut seen = self.shared.count.subscribe();
        matches!(tokio::time::timeout(limit, seen.wait_for(|n| *n >= count)).await, Ok(Ok(_)))
    }
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let post = Post { at: Instant::now(), path, headers: plain(&headers), body: body.to_vec() };
    let fault = shared.faults.take();
    let refused = fault.as_ref().and_then(|fault| before(fault, &cut));
    if refused.is_none() {
        shared.take(&post);
    }
    lock(&shared.posts).push(post);
    // Last, so that whoever waits for it sees all of the above.
    shared.count.send_modify(|count| *count += 1);
    if let Some(refused) = refused {
        return refused;
    }
    match fault {
        Some(Fault::Hang(time)) => tokio::time::sleep(time).await,
        Some(Fault::CutAfter) => cut.now(),
        Some(Fault::Status(_) | Fault::RateLimited { .. } | Fault::CutBefore) | None => {}
    }
    StatusCode::OK.into_response()
}

impl Shared {
    fn take(&self, post: &Post) {
        let is_new = post.key().is_none_or(|key| lock(&self.keys).insert(key.to_owned()));
        if is_new {
            lock(&self.taken).push(post.clone());
        }
    }
}

fn plain(headers: &HeaderMap) -> HashMap<String, String> {
    let pairs = headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    pairs.collect()
}

fn before(fault: &Fault, cut: &Cut) -> Option<Response> {
    let status = |code| StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match fault {
        Fault::Status(code) => Some(status(*code).into_response()),
        Fault::RateLimited { retry_after } => {
            let header = [("retry-after", retry_seconds(*retry_after).to_string())];
            Some((status(429), header).into_response())
        }
        Fault::CutBefore => {
            cut.now();
            Some(status(500).into_response())
        }
        Fault::Hang(_) | Fault::CutAfter => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    async fn post(receiver: &FakeReceiver, key: &str, body: &str) -> Option<u16> {
        let headers = [("Idempotency-Key", key), ("x-signature", "v1=abc")];
        let answer = http::request("POST", &receiver.url(), &headers, body.as_bytes()).await;
        answer.ok().map(|answer| answer.status)
    }

    #[tokio::test]
    async fn a_key_is_taken_once_however_often_it_comes() {
        let receiver = FakeReceiver::start().await.unwrap();

        for (key, body) in [("a", "1"), ("b", "2"), ("a", "1")] {
            assert_eq!(post(&receiver, key, body).await, Some(200));
        }

        let keys = |posts: Vec<Post>| -> Vec<String> {
            posts.iter().map(|post| post.key().unwrap().to_owned()).collect()
        };
        assert_eq!(keys(receiver.posts()), ["a", "b", "a"]);
        assert_eq!(keys(receiver.unique()), ["a", "b"]);
        assert_eq!(receiver.posts()[0].header("x-signature"), Some("v1=abc"));
        assert_eq!(receiver.posts()[1].json(), 2);
    }

    #[tokio::test]
    async fn a_lost_answer_is_taken_and_a_refused_one_is_not() {
        let receiver = FakeReceiver::start().await.unwrap();
        receiver.faults().next(1, &Fault::Status(503));
        receiver.faults().next(1, &Fault::CutBefore);
        receiver.faults().next(1, &Fault::CutAfter);

        assert_eq!(post(&receiver, "a", "").await, Some(503));
        assert_eq!(post(&receiver, "a", "").await, None);
        assert_eq!(receiver.unique().len(), 0);
        assert_eq!(post(&receiver, "a", "").await, None);
        assert_eq!(receiver.unique().len(), 1);
        assert_eq!(post(&receiver, "a", "").await, Some(200));
        assert_eq!(receiver.unique().len(), 1);
    }
}
