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
use holdfast_doors::{ClientNetwork, NetworkBudget, NetworkShare};
use holdfast_kit::{Budget, BudgetShare};
use holdfast_types::TenantId;
use serde_json::json;
use tokio::{sync::Notify, time::timeout};
use tracing::debug;

use super::Widget;

/// Interval at which the database is read for replies that another bridge sent.
const READ_INTERVAL: Duration = Duration::from_secs(3);

/// Maximum number of pages that listen to this process.
const MAX_LISTENERS: u64 = 10_000;

/// Maximum number of pages that listen to the accounts of one tenant in this process. Each reads the
/// database every [`READ_INTERVAL`].
const MAX_LISTENERS_PER_TENANT: u64 = 2000;

/// Maximum number of pages of one network that listen to one account.
const MAX_LISTENERS_PER_NETWORK: u64 = 100;

/// Maximum number of pages of one visitor that listen.
const MAX_LISTENERS_PER_VISITOR: usize = 8;

/// Time after which a page has to connect again: shorter than the time that a bridge has to stop.
const MAX_DURATION: Duration = Duration::from_secs(30);

/// Pages that listen to one account.
#[derive(Debug)]
pub struct Listeners {
    by_visitor: Arc<Mutex<ListenersByVisitor>>,
    networks: NetworkBudget,
    tenant: TenantId,
    /// Pages that listen to all accounts of the process.
    pages: Arc<Budget<TenantId>>,
}

type ListenersByVisitor = HashMap<String, Vec<Arc<Listener>>>;

/// Budget of the pages that listen to a process.
pub fn page_budget() -> Arc<Budget<TenantId>> {
    Budget::new(MAX_LISTENERS, MAX_LISTENERS_PER_TENANT)
}

#[derive(Debug, Default)]
pub struct Listener {
    changed: Notify,
    /// Number of times that typing was to be shown.
    typing: AtomicU64,
}

/// Registration of a listener, which ends when it is dropped.
#[derive(Debug)]
pub struct Registration {
    by_visitor: Arc<Mutex<ListenersByVisitor>>,
    visitor: String,
    listener: Arc<Listener>,
    _of_tenant: BudgetShare<TenantId>,
    _of_network: NetworkShare,
}

impl Listeners {
    pub fn new(tenant: TenantId, pages: Arc<Budget<TenantId>>) -> Self {
        Self { by_visitor: Arc::default(), networks: NetworkBudget::default(), tenant, pages }
    }

    /// Registers a page; `None` if there are too many. Pages behind a proxy that names no clients
    /// belong to no network.
    fn register(&self, visitor: &str, network: Option<ClientNetwork>) -> Option<Registration> {
        let of_tenant = self.pages.share(self.tenant);
        of_tenant.grow(1).ok()?;
        let of_network = self.networks.admit(network, u64::MAX, MAX_LISTENERS_PER_NETWORK).ok()?;
        let mut all = lock(&self.by_visitor);
        let of_visitor = all.get(visitor).map_or(0, Vec::len);
        if of_visitor >= MAX_LISTENERS_PER_VISITOR {
            return None;
        }
        let listener = Arc::new(Listener::default());
        all.entry(visitor.to_owned()).or_default().push(Arc::clone(&listener));
        drop(all);
        Some(Registration {
            by_visitor: Arc::clone(&self.by_visitor),
            visitor: visitor.to_owned(),
            listener,
            _of_tenant: of_tenant,
            _of_network: of_network,
        })
    }

    pub fn wake(&self, visitor: &str) {
        for listener in lock(&self.by_visitor).get(visitor).into_iter().flatten() {
            listener.changed.notify_one();
        }
    }

    pub fn show_typing(&self, visitor: &str) {
        for listener in lock(&self.by_visitor).get(visitor).into_iter().flatten() {
            listener.typing.fetch_add(1, Ordering::Relaxed);
            listener.changed.notify_one();
        }
    }
}

fn lock(listeners: &Mutex<ListenersByVisitor>) -> MutexGuard<'_, ListenersByVisitor> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut all = lock(&self.by_visitor);
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
    pub(super) fn stream(
        self: Arc<Self>,
        (visitor, network): (&str, Option<ClientNetwork>),
        after: i64,
    ) -> Option<Response> {
        let registration = self.listeners.register(visitor, network)?;
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
        let listeners = Listeners::new(TenantId::generate(), page_budget());
        let register = |visitor| listeners.register(visitor, None);
        let pages: Vec<_> =
            (0..MAX_LISTENERS_PER_VISITOR).map(|_| register("a").unwrap()).collect();

        assert!(register("a").is_none());
        assert!(register("b").is_some());
        drop(pages);
        assert!(lock(&listeners.by_visitor).is_empty());
    }

    #[test]
    fn pages_of_one_network_or_of_one_tenant_leave_room_for_others() {
        let pages = page_budget();
        let of_tenant = || Listeners::new(TenantId::generate(), Arc::clone(&pages));
        let (crowded, other) = (of_tenant(), of_tenant());
        let network = |n: u8| Some(ClientNetwork::of([8, 8, 8, n].into()));
        let register = |visitor: u64, n: u8| crowded.register(&visitor.to_string(), network(n));

        let held: Vec<_> =
            (0..MAX_LISTENERS_PER_NETWORK).map(|visitor| register(visitor, 1).unwrap()).collect();
        assert!(register(5000, 1).is_none());
        assert!(register(5000, 2).is_some());

        let rest = MAX_LISTENERS_PER_TENANT - MAX_LISTENERS_PER_NETWORK;
        let more: Vec<_> =
            (0..rest).map(|n| crowded.register(&format!("more {n}"), None).unwrap()).collect();
        assert!(register(5000, 2).is_none());
        assert!(other.register("visitor", network(2)).is_some());
        drop((held, more));
        assert_eq!(pages.used(), 0);
        assert!(register(5000, 1).is_some());
    }
}
