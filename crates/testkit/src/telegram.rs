//! A Telegram Bot API that never leaves the machine.
//!
//! It keeps the rules that a bridge can break: an update comes again until a higher `offset`
//! confirms it; a second `getUpdates` for the same bot ends the first with 409 Conflict; a text
//! has 1 to 4096 characters; a bot with a webhook cannot poll. Webhooks are called with one
//! update at a time, and again until they answer 2xx.

mod api;
mod bot;
mod form;
mod incoming;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::routing::any;
use serde_json::Value;

use crate::faults::Faults;
use crate::http::{LOCALHOST, Server};
use crate::scratch::lock;
use bot::Bot;

pub use incoming::Incoming;

/// The name that every bot here has; `@holdfast_bot` in a text mentions it.
pub const BOT_NAME: &str = "holdfast_bot";

/// The API on a loopback port; it is gone when dropped.
#[derive(Debug)]
pub struct FakeTelegram {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    bots: Mutex<HashMap<String, Arc<Bot>>>,
    calls: Mutex<Vec<Call>>,
    sends: Mutex<Vec<Sent>>,
    /// (chat, message) to the text it has now.
    texts: Mutex<HashMap<(i64, i64), String>>,
    /// A file's id to its content.
    files: Mutex<HashMap<String, Vec<u8>>>,
    next_message: AtomicI64,
    conflicts: AtomicU64,
    bad_entities: AtomicU64,
    polls: AtomicU64,
    hasty: AtomicBool,
    null_results: AtomicBool,
    faults: Faults,
}

/// A method that a bot called, whatever came of it.
#[derive(Debug, Clone)]
pub struct Call {
    pub at: Instant,
    pub token: String,
    pub method: String,
    pub params: Value,
}

/// A message that a bot has sent, whether or not it heard of it.
#[derive(Debug, Clone)]
pub struct Sent {
    pub at: Instant,
    pub token: String,
    /// Where to; negative for groups.
    pub chat: i64,
    pub topic: Option<i64>,
    /// The message that it replies to.
    pub reply_to: Option<i64>,
    /// The text as it was sent.
    pub text: String,
    /// `MarkdownV2` or `HTML`.
    pub parse_mode: Option<String>,
    pub message_id: i64,
}

/// What an update is called, for later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// Rising by one for each bot.
    pub update_id: i64,
    pub message_id: i64,
}

impl FakeTelegram {
    /// A Telegram where any token is a bot's.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_on(LOCALHOST).await
    }

    /// Listens on a free port of this address.
    pub async fn start_on(ip: IpAddr) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let router = Router::new()
            .route("/{bot}/{method}", any(api::handle))
            .route("/file/{bot}/files/{id}", any(api::file))
            .with_state(Arc::clone(&shared));
        Ok(Self { server: Server::start_on(ip, router).await?, shared })
    }

    /// The base URL, which a client follows with `/bot<token>/<method>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// The address, for a [`crate::Proxy`].
    #[must_use]
    pub const fn addr(&self) -> std::net::SocketAddr {
        self.server.addr()
    }

    /// What goes wrong. Only methods that change something are affected: those that send, edit
    /// and delete.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The next `times` messages with a `parse_mode` are refused: "can't parse entities".
    pub fn refuse_entities(&self, times: u64) {
        self.shared.bad_entities.store(times, Ordering::Relaxed);
    }

    /// From now on a poll is answered at once, if with nothing.
    pub fn answer_polls_at_once(&self) {
        self.shared.hasty.store(true, Ordering::Relaxed);
    }

    /// How often bots have polled.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.shared.polls.load(Ordering::Relaxed)
    }

    /// From now on what edits a keyboard is answered `{"ok": true, "result": null}`.
    pub fn answer_edits_with_null(&self) {
        self.shared.null_results.store(true, Ordering::Relaxed);
    }

    /// Has a file under this id, for a bot to fetch.
    pub fn put_file(&self, id: &str, content: impl Into<Vec<u8>>) {
        lock(&self.shared.files).insert(id.to_owned(), content.into());
    }

    /// From now on the token is nobody's: every method answers 401.
    pub fn revoke(&self, token: &str) {
        self.shared.bot(token).revoke();
    }

    /// Somebody writes to the bot.
    pub fn push(&self, token: &str, incoming: Incoming) -> Pushed {
        let message_id = match incoming.edited {
            Some(message_id) => message_id,
            None => self.shared.next_message_id(),
        };
        let update_id = self.shared.bot(token).push(incoming.update(message_id));
        Pushed { update_id, message_id }
    }

    /// An update of any kind; its `update_id` is given here and returned.
    pub fn push_raw(&self, token: &str, update: Value) -> i64 {
        self.shared.bot(token).push(update)
    }

    /// How many updates the bot has not confirmed yet.
    #[must_use]
    pub fn pending(&self, token: &str) -> usize {
        self.shared.bot(token).pending()
    }

    /// What the bots have sent, oldest first.
    #[must_use]
    pub fn sends(&self) -> Vec<Sent> {
        lock(&self.shared.sends).clone()
    }

    /// What they have called, oldest first; `getUpdates` is left out.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.shared.calls).clone()
    }

    /// What a sent message says now, after edits; `None` if there is none.
    #[must_use]
    pub fn text_of(&self, chat: i64, message_id: i64) -> Option<String> {
        lock(&self.shared.texts).get(&(chat, message_id)).cloned()
    }

    /// How often two polled the same bot at once.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.shared.conflicts.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn bot(&self, token: &str) -> Arc<Bot> {
        Arc::clone(lock(&self.bots).entry(token.to_owned()).or_default())
    }

    fn next_message_id(&self) -> i64 {
        self.next_message.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(test)]
mod tests;
