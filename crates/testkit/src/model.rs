//! A scripted model behind the Chat Completions API, and behind the APIs of other vendors
//! (`model/dialect.rs`).
//!
//! What it answers, in this order of precedence: the next reply that was queued
//! ([`FakeModel::queue`]), what another process said by `POST /script` (`model/script.rs`), what the
//! test's function says ([`FakeModel::answer`]), or `echo: <the last user text>`.
//!
//! It also checks every request, as a real provider would: an assistant's tool call has exactly
//! one result, right after it, and a result has a call. What breaks that is in
//! [`FakeModel::violations`]; a test should assert that it is empty.
//!
//! With [`FakeModel::strict`] it refuses what a vendor refuses (`model/strict.rs`).
//!
//! [`audio`] has servers of sound.
//!
//! It is cheap on purpose, since the benchmark stands on it: after [`FakeModel::forget_requests`]
//! nothing is kept, and only what is needed to answer is parsed.

pub mod audio;
mod check;
mod dialect;
mod google;
mod reply;
mod script;
mod strict;
mod wire;

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

pub use dialect::Dialect;
pub use reply::{Gate, Reply, ToolCall, Usage};
pub use strict::{AWS_KEYS, KEY, RULES, Vendor};

use crate::http::{LOCALHOST, Server};
use crate::scratch::lock;
use script::Rule;
use wire::Essentials;

/// A model on a loopback port; it is gone when dropped.
#[derive(Debug)]
pub struct FakeModel {
    server: Server,
    shared: Arc<Shared>,
}

/// A request as the model got it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The JSON body.
    pub body: Value,
    /// The same in the form of Chat Completions, if it is of another API.
    form: Option<Value>,
    /// Name of the model, from the body or the path.
    pub model: String,
    /// What was sent as bearer token.
    pub key: Option<String>,
    pub at: Instant,
}

impl Request {
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.form()["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The request in the form of Chat Completions.
    fn form(&self) -> &Value {
        self.form.as_ref().unwrap_or(&self.body)
    }

    /// What the user said last, parts of text joined.
    #[must_use]
    pub fn last_user_text(&self) -> String {
        let last = self.messages().iter().rev().find(|message| message["role"] == "user");
        last.map(|message| wire::text(&message["content"])).unwrap_or_default()
    }

    /// The results of tools that the model has not answered yet: (call id, text).
    #[must_use]
    pub fn tool_results(&self) -> Vec<(String, String)> {
        let newest = self.messages().iter().rev().take_while(|message| message["role"] == "tool");
        let mut results: Vec<_> = newest
            .map(|message| {
                let id = message["tool_call_id"].as_str().unwrap_or_default().to_owned();
                (id, wire::text(&message["content"]))
            })
            .collect();
        results.reverse();
        results
    }

    /// The names of the tools on offer.
    #[must_use]
    pub fn tool_names(&self) -> Vec<&str> {
        let tools = self.form()["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect()
    }
}

type Answer = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

#[derive(Default)]
struct Shared {
    queue: Mutex<VecDeque<Reply>>,
    answer: Mutex<Option<Answer>>,
    rules: Mutex<Vec<Rule>>,
    latency: Mutex<Duration>,
    pace: Mutex<Duration>,
    requests: Mutex<Vec<Arc<Request>>>,
    violations: Mutex<Vec<String>>,
    refusals: Mutex<Vec<String>>,
    vendor: Mutex<Option<Vendor>>,
    listed: Mutex<Option<Vec<Value>>>,
    forgetful: AtomicBool,
    count: AtomicU64,
    /// Of the last request's body, in bytes.
    size: AtomicUsize,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl FakeModel {
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_on(LOCALHOST).await
    }

    /// Listens on a free port of this address.
    pub async fn start_on(ip: IpAddr) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let vertex = |publisher: &str| {
            format!(
                "/v1/projects/{{project}}/locations/{{location}}/publishers/{publisher}/models/{{verb}}"
            )
        };
        let router = Router::new()
            .route("/v1/chat/completions", speaks(Dialect::ChatCompletions))
            .route("/v1/responses", speaks(Dialect::Responses))
            .route("/v1/messages", speaks(Dialect::Anthropic))
            .route("/v1beta/models/{verb}", speaks(Dialect::Gemini))
            .route("/api/chat", speaks(Dialect::Ollama))
            .route("/openai/v1/chat/completions", speaks(Dialect::Azure))
            .route("/openai/deployments/{name}/chat/completions", speaks(Dialect::Azure))
            .route("/openai/v1/responses", speaks(Dialect::AzureResponses))
            .route(&vertex("google"), speaks(Dialect::Vertex))
            .route(&vertex("anthropic"), speaks(Dialect::VertexClaude))
            .route("/model/{id}/converse-stream", speaks(Dialect::Converse))
            .route("/token", post(google_token))
            .route(google::METADATA_PATH, get(google_metadata))
            .route("/v1/models", get(models))
            .route("/count", get(count))
            .route("/size", get(size))
            .route("/script", post(add_rule).delete(forget_rules))
            .with_state(Arc::clone(&shared));
        Ok(Self { server: Server::start_on(ip, router).await?, shared })
    }

    /// The base URL, as one configures a provider: `http://127.0.0.1:…/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.server.addr())
    }

    /// The base URL of another API, as one configures a provider of its kind. Vertex AI is in the project
    /// `p`, in the location `global`.
    #[must_use]
    pub fn url_of(&self, dialect: Dialect) -> String {
        let path = match dialect {
            Dialect::ChatCompletions | Dialect::Responses => "/v1",
            Dialect::Gemini => "/v1beta",
            Dialect::Vertex | Dialect::VertexClaude => "/v1/projects/p/locations/global",
            Dialect::Anthropic
            | Dialect::Ollama
            | Dialect::Azure
            | Dialect::AzureResponses
            | Dialect::Converse => "",
        };
        format!("http://{}{path}", self.server.addr())
    }

    /// The address, for a [`crate::Proxy`].
    #[must_use]
    pub const fn addr(&self) -> std::net::SocketAddr {
        self.server.addr()
    }

    /// Answers the next requests with these, in this order, after those already queued.
    pub fn queue(&self, replies: impl IntoIterator<Item = Reply>) {
        lock(&self.shared.queue).extend(replies);
    }

    /// How many queued replies nobody has asked for yet.
    #[must_use]
    pub fn queued(&self) -> usize {
        lock(&self.shared.queue).len()
    }

    /// Answers with what this function says, when nothing is queued.
    pub fn answer(&self, with: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        *lock(&self.shared.answer) = Some(Arc::new(with));
    }

    /// Refuses what this vendor refuses, from now on; `None` is a vendor without rules of its own.
    pub fn strict(&self, vendor: Option<Vendor>) {
        *lock(&self.shared.vendor) = vendor;
    }

    /// Lists these models from now on: objects with an `id`, and `pricing` as OpenRouter has it.
    pub fn list(&self, models: impl IntoIterator<Item = Value>) {
        *lock(&self.shared.listed) = Some(models.into_iter().collect());
    }

    /// Waits this long before the first byte of each answer.
    pub fn latency(&self, latency: Duration) {
        *lock(&self.shared.latency) = latency;
    }

    /// Waits this long before each further chunk of a stream.
    pub fn pace(&self, pace: Duration) {
        *lock(&self.shared.pace) = pace;
    }

    /// Keeps and checks no requests from now on: for benchmarks.
    pub fn forget_requests(&self) {
        self.shared.forgetful.store(true, Ordering::Relaxed);
        lock(&self.shared.requests).clear();
    }

    /// How many requests came, kept or not. `GET /count` tells other processes.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn requests(&self) -> Vec<Arc<Request>> {
        lock(&self.shared.requests).clone()
    }

    /// Requests that a vendor's rules refused.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        lock(&self.shared.refusals).clone()
    }

    /// What was wrong with the requests.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        lock(&self.shared.violations).clone()
    }
}

/// Answers requests of an API.
fn speaks(dialect: Dialect) -> MethodRouter<Arc<Shared>> {
    post(
        move |State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes| async move {
            shared.answer_as(dialect, &Arrival { uri, headers, body }).await
        },
    )
}

/// A request for a token of a service account (RFC 7523).
async fn google_token(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: String,
) -> Response {
    match google::check_grant(&headers, &body) {
        Ok(()) => Json(google::token()).into_response(),
        Err(what) => {
            lock(&shared.refusals).push(format!("a request for a token: {what}"));
            let body = json!({"error": "invalid_grant", "error_description": what});
            (StatusCode::BAD_REQUEST, Json(body)).into_response()
        }
    }
}

/// The metadata server of a machine in Google's cloud.
async fn google_metadata(headers: HeaderMap) -> Response {
    let flavor = [("metadata-flavor", "Google")];
    match headers.get("metadata-flavor").is_some_and(|flavor| flavor == "Google") {
        true => (flavor, Json(google::token())).into_response(),
        false => (StatusCode::FORBIDDEN, flavor).into_response(),
    }
}

async fn add_rule(State(shared): State<Arc<Shared>>, Json(rule): Json<Rule>) {
    lock(&shared.rules).push(rule);
}

async fn forget_rules(State(shared): State<Arc<Shared>>) {
    lock(&shared.rules).clear();
}

async fn size(State(shared): State<Arc<Shared>>) -> String {
    shared.size.load(Ordering::Relaxed).to_string()
}

async fn models(State(shared): State<Arc<Shared>>) -> axum::Json<Value> {
    wire::models(lock(&shared.listed).clone())
}

async fn count(State(shared): State<Arc<Shared>>) -> String {
    shared.count.load(Ordering::Relaxed).to_string()
}

impl Shared {
    async fn answer_as(&self, dialect: Dialect, arrival: &Arrival) -> Response {
        let body = &arrival.body;
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        self.size.store(body.len(), Ordering::Relaxed);
        // Another API's request is read in the form of Chat Completions.
        let form = (!dialect.is_chat_completions())
            .then(|| dialect.chat_form(&serde_json::from_slice(body).unwrap_or_default()));
        let form_bytes = form.as_ref().map(|form| Bytes::from(form.to_string()));
        let form_bytes = form_bytes.as_ref().unwrap_or(body);
        let essentials: Essentials<'_> = match serde_json::from_slice(form_bytes) {
            Ok(essentials) => essentials,
            Err(e) => {
                lock(&self.violations).push(format!("request {number} is not a completion: {e}"));
                return (StatusCode::BAD_REQUEST, wire::error(400, "the body is not valid"))
                    .into_response();
            }
        };
        let asked = Asked { number, dialect, arrival, form };
        let reply = self.reply(asked, &essentials);
        let latency = *lock(&self.latency) + reply.latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        if let Some(gate) = &reply.gate {
            gate.pass().await;
        }
        let pace = *lock(&self.pace);
        let asked = wire::Asked { number, dialect, request: &essentials, bytes: body.len() };
        dialect.label(wire::respond(reply, &asked, pace).await)
    }

    fn reply(&self, asked: Asked<'_>, essentials: &Essentials<'_>) -> Reply {
        let (number, dialect, arrival) = (asked.number, asked.dialect, asked.arrival);
        let answer = lock(&self.answer).clone();
        let keeps = !self.forgetful.load(Ordering::Relaxed);
        let request = (keeps || answer.is_some()).then(|| Arc::new(whole(asked)));
        if let Some(request) = request.as_ref().filter(|_| keeps) {
            let found = check::violations(request.messages());
            if !found.is_empty() {
                let found = found.into_iter().map(|what| format!("request {number}: {what}"));
                lock(&self.violations).extend(found);
            }
            lock(&self.requests).push(Arc::clone(request));
        }
        let vendor = *lock(&self.vendor);
        if let (Some(vendor), Some(request)) = (vendor, request.as_ref())
            && let Some((what, refused)) = strict::refusal(vendor, dialect, request, arrival)
        {
            lock(&self.refusals).push(format!("request {number}: {vendor:?}: {what}"));
            return refused;
        }
        if let Some(queued) = lock(&self.queue).pop_front() {
            return queued;
        }
        if let Some(scripted) = self.scripted(essentials) {
            return scripted;
        }
        match (answer, request) {
            (Some(answer), Some(request)) => answer(&request),
            _ => Reply::text(format!("echo: {}", essentials.last_user_text())),
        }
    }

    fn scripted(&self, essentials: &Essentials<'_>) -> Option<Reply> {
        let rules = lock(&self.rules);
        if rules.is_empty() {
            return None;
        }
        let (text, replies) = (essentials.last_user_text(), essentials.replies());
        rules.iter().rev().find_map(|rule| rule.reply(&text, replies))
    }
}

/// A request as it came over the wire.
struct Arrival {
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Arrival {
    /// A header, if it is a text.
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A request as it is read.
struct Asked<'a> {
    number: u64,
    dialect: Dialect,
    arrival: &'a Arrival,
    form: Option<Value>,
}

fn whole(asked: Asked<'_>) -> Request {
    let arrival = asked.arrival;
    let keys = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];
    let key = keys.into_iter().find_map(|name| arrival.header(name));
    // Parsed before, if only in part.
    let body: Value = serde_json::from_slice(&arrival.body).unwrap_or_default();
    let model = asked.dialect.model_in_path(arrival.uri.path());
    let model = model.or_else(|| body["model"].as_str().map(str::to_owned));
    Request {
        model: model.unwrap_or_default(),
        body,
        form: asked.form,
        key: key.map(|key| key.trim_start_matches("Bearer ").to_owned()),
        at: Instant::now(),
    }
}

#[cfg(test)]
mod tests;
