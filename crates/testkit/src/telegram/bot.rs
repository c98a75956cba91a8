//! One bot's updates: waiting to be polled, or pushed to its webhook.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::http;
use crate::scratch::lock;

/// How long after a failed call the webhook is called again; Telegram's own wait is longer.
const WEBHOOK_RETRY_DELAY: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Bot {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    updates: VecDeque<Value>,
    last_update: i64,
    /// Which poll is the current one, and whether it still waits.
    poll: u64,
    polling: bool,
    webhook: Option<Webhook>,
    revoked: bool,
}

#[derive(Debug)]
struct Webhook {
    url: String,
    _calling: DropGuard,
}

/// Why there are no updates to be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Conflict,
    Webhook,
}

/// What one poll asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Poll {
    pub(super) offset: i64,
    pub(super) limit: usize,
    pub(super) timeout: Duration,
}

impl Bot {
    pub(super) fn push(&self, mut update: Value) -> i64 {
        let mut state = lock(&self.state);
        state.last_update += 1;
        let id = state.last_update;
        update["update_id"] = json!(id);
        state.updates.push_back(update);
        drop(state);
        self.changed.notify_waiters();
        id
    }

    pub(super) fn pending(&self) -> usize {
        lock(&self.state).updates.len()
    }

    pub(super) fn revoke(&self) {
        lock(&self.state).revoked = true;
    }

    pub(super) fn is_revoked(&self) -> bool {
        lock(&self.state).revoked
    }

    /// Waits for updates and returns them; they stay until a later poll's offset confirms them.
    /// `on_conflict` runs if this poll ends another.
    pub(super) async fn poll(
        &self,
        poll: Poll,
        on_conflict: impl FnOnce(),
    ) -> Result<Vec<Value>, Refused> {
        let number = self.begin_poll(poll.offset, on_conflict)?;
        // Also when the client goes away and we are dropped in the middle.
        let _ended = EndOfPoll { bot: self, number };
        let end = Instant::now() + poll.timeout;
        loop {
            // Before looking, so that nothing is missed in between.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = lock(&self.state);
                if state.poll != number {
                    return Err(Refused::Conflict);
                }
                let updates: Vec<Value> = state.updates.iter().take(poll.limit).cloned().collect();
                if !updates.is_empty() {
                    return Ok(updates);
                }
            }
            if timeout_at(end, changed).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    fn begin_poll(&self, offset: i64, on_conflict: impl FnOnce()) -> Result<u64, Refused> {
        let mut state = lock(&self.state);
        if state.webhook.is_some() {
            return Err(Refused::Webhook);
        }
        if offset < 0 {
            // Counted from the end: all before is forgotten.
            let keep = usize::try_from(-offset).unwrap_or(usize::MAX);
            let forget = state.updates.len().saturating_sub(keep);
            state.updates.drain(..forget);
        } else {
            state.updates.retain(|update| update["update_id"].as_i64() >= Some(offset));
        }
        if state.polling {
            on_conflict();
        }
        state.poll += 1;
        state.polling = true;
        let number = state.poll;
        drop(state);
        self.changed.notify_waiters();
        Ok(number)
    }

    /// Calls the webhook with each update, until it is removed or replaced.
    pub(super) fn set_webhook(self: &Arc<Self>, url: String, secret: Option<String>) {
        let stop = CancellationToken::new();
        let calling = deliver(Arc::downgrade(self), url.clone(), secret);
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            tokio::select! { () = calling => {}, () = stopped => {} }
        });
        lock(&self.state).webhook = Some(Webhook { url, _calling: stop.drop_guard() });
    }

    pub(super) fn delete_webhook(&self) {
        lock(&self.state).webhook = None;
    }

    pub(super) fn webhook_url(&self) -> String {
        lock(&self.state).webhook.as_ref().map(|webhook| webhook.url.clone()).unwrap_or_default()
    }

    async fn next_update(&self) -> Value {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(update) = lock(&self.state).updates.front() {
                return update.clone();
            }
            changed.await;
        }
    }
}

async fn deliver(bot: std::sync::Weak<Bot>, url: String, secret: Option<String>) {
    loop {
        let Some(bot) = bot.upgrade() else { return };
        // Looks up now and then, so that a bot that is gone is not kept alive by waiting for it.
        let Ok(update) = tokio::time::timeout(Duration::from_secs(1), bot.next_update()).await
        else {
            continue;
        };
        let mut headers = vec![("content-type", "application/json")];
        if let Some(secret) = &secret {
            headers.push(("x-telegram-bot-api-secret-token", secret));
        }
        match http::request("POST", &url, &headers, update.to_string().as_bytes()).await {
            Ok(answer) if (200..300).contains(&answer.status) => {
                lock(&bot.state).updates.retain(|other| other["update_id"] != update["update_id"]);
            }
            Ok(_) | Err(_) => tokio::time::sleep(WEBHOOK_RETRY_DELAY).await,
        }
    }
}

struct EndOfPoll<'a> {
    bot: &'a Bot,
    number: u64,
}

impl Drop for EndOfPoll<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.bot.state);
        if state.poll == self.number {
            state.polling = false;
        }
    }
}
