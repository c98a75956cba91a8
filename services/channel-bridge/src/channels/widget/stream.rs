//! Server-sent events of a page: the messages that are new for its visitor.
//!
//! A reply that this bridge sends is shown at once. One that another bridge sends is noticed within
//! seconds, in the database.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::response::{
    IntoResponse as _, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, stream};
use serde_json::json;
use tokio::{sync::Notify, time::timeout};
use tracing::debug;

use super::Widget;

/// Interval at which the database is read for replies that another bridge sent.
const READ_INTERVAL: Duration = Duration::from_secs(3);

/// Maximum number of pages that listen to one account in this process.
const MAX_LISTENERS: usize = 2000;

/// Maximum number of pages of one visitor that listen.
const MAX_LISTENERS_PER_VISITOR: usize = 8;

/// Time after which a page has to connect again: shorter than the time that a bridge has to stop.
const MAX_DURATION: Duration = Duration::from_secs(30);

/// Pages that listen, by visitor.
#[derive(Debug, Default)]
pub struct Listeners(Arc<Mutex<HashMap<String, Vec<Arc<Listener>>>>>);

#[derive(Debug, Default)]
pub struct Listener {
    changed: Notify,
    /// Number of times that typing was to be shown.
    typing: AtomicU64,
}

/// Registration of a listener, which ends when it is dropped.
#[derive(Debug)]
pub struct Registration {
    listeners: Listeners,
    visitor: String,
    listener: Arc<Listener>,
}

impl Listeners {
    /// Registers a page; `None` if there are too many.
    fn register(&self, visitor: &str) -> Option<Registration> {
        let mut all = self.lock();
        let count: usize = all.values().map(Vec::len).sum();
        let of_visitor = all.get(visitor).map_or(0, Vec::len);
        if count >= MAX_LISTENERS || of_visitor >= MAX_LISTENERS_PER_VISITOR {
            return None;
        }
        let listener = Arc::new(Listener::default());
        all.entry(visitor.to_owned()).or_default().push(Arc::clone(&listener));
        let listeners = Self(Arc::clone(&self.0));
        Some(Registration { listeners, visitor: visitor.to_owned(), listener })
    }

    pub fn wake(&self, visitor: &str) {
        for listener in self.lock().get(visitor).into_iter().flatten() {
            listener.changed.notify_one();
        }
    }

    pub fn show_typing(&self, visitor: &str) {
        for listener in self.lock().get(visitor).into_iter().flatten() {
            listener.typing.fetch_add(1, Ordering::Relaxed);
            listener.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Listener>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut all = self.listeners.lock();
        if let Some(of_visitor) = all.get_mut(&self.visitor) {
            of_visitor.retain(|listener| !Arc::ptr_eq(listener, &self.listener));
            if of_visitor.is_empty() {
                all.remove(&self.visitor);
            }
        }
    }
}

struct State {
    widget: Arc<Widget>,
    registration: Registration,
    after: i64,
    typing: u64,
    ends: tokio::time::Instant,
}

impl Widget {
    /// Streams the visitor's messages after a position; `None` if too many pages listen.
    pub(super) fn stream(self: Arc<Self>, visitor: &str, after: i64) -> Option<Response> {
        let registration = self.listeners.register(visitor)?;
        let ends = tokio::time::Instant::now() + MAX_DURATION;
        let state = State { widget: self, registration, after, typing: 0, ends };
        let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
        Some(Sse::new(events(state)).keep_alive(keep_alive).into_response())
    }
}

fn events(state: State) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(state, async |mut state| {
        loop {
            if tokio::time::Instant::now() >= state.ends || state.widget.stopping.is_cancelled() {
                return None;
            }
            if let Some(event) = next_event(&mut state).await {
                return Some((Ok(event), state));
            }
            let changed = state.registration.listener.changed.notified();
            let stopping = state.widget.stopping.cancelled();
            tokio::select! {
                _ = timeout(READ_INTERVAL, changed) => {}
                () = stopping => {}
            }
        }
    })
}

/// Returns the messages that are new, or that typing is to be shown.
async fn next_event(state: &mut State) -> Option<Event> {
    let State { widget, registration, after, typing, .. } = state;
    let account = &widget.account;
    let accounts = widget.directory.accounts();
    let read = accounts.widget_messages(account.tenant, account.id, &registration.visitor, *after);
    let messages = match read.await {
        Ok(messages) => messages,
        Err(error) => {
            debug!(%error, "the messages of a widget cannot be read now");
            return None;
        }
    };
    if let Some(last) = messages.last() {
        *after = last.seq;
        let shown: Vec<_> = messages.iter().map(super::receive::message_json).collect();
        let data = json!({"messages": shown}).to_string();
        return Some(Event::default().id(after.to_string()).data(data));
    }
    let shown = registration.listener.typing.load(Ordering::Relaxed);
    if shown == *typing {
        return None;
    }
    *typing = shown;
    Some(Event::default().event("typing").data("{}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_has_a_few_pages_and_they_are_forgotten() {
        let listeners = Listeners::default();
        let pages: Vec<_> =
            (0..MAX_LISTENERS_PER_VISITOR).map(|_| listeners.register("a").unwrap()).collect();

        assert!(listeners.register("a").is_none());
        assert!(listeners.register("b").is_some());
        drop(pages);
        assert!(listeners.lock().is_empty());
    }
}
