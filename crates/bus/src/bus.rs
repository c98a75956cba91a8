//! NATS connection.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, Event, HeaderMap, ServerAddr, connection::State, jetstream};
use bytes::Bytes;
use futures::FutureExt as _;
use holdfast_kit::trace;
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::{
    Config, Error, Subject, Subscription, login,
    rights::{self, DeniedRight},
    signature::Signatures,
};

/// Maximum wait for an answer of NATS or JetStream.
pub(crate) const NATS_TIMEOUT: Duration = Duration::from_secs(2);

/// A NATS connection. Cheap to clone.
#[derive(Clone)]
pub struct Bus {
    pub(crate) client: Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) config: Arc<Config>,
    pub(crate) may_create_streams: bool,
    pub(crate) signatures: Arc<Signatures>,
    health: Arc<Health>,
}

/// State of the connection, from the events of the client.
#[derive(Debug, Default)]
struct Health {
    /// Prefix of the installation's subjects.
    prefix: String,
    /// The loss of the connection was logged.
    known_down: AtomicBool,
    /// Events after which a subscriber may lack messages.
    losses: AtomicU64,
    /// Reason of the last attempt to connect that was refused, as it was logged.
    refusal: Mutex<Option<String>>,
    /// Rights that were denied on this connection and logged.
    denied: Mutex<HashSet<DeniedRight>>,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("prefix", &self.config.prefix).finish_non_exhaustive()
    }
}

impl Bus {
    /// Connects to NATS as client `name`, which reads replies to it below `_INBOX.<name>` only. NATS
    /// may be down: the client keeps trying.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub async fn connect(config: &Config, name: &str) -> Result<Self, Error> {
        let what = "write letters, digits, `-` and `_`";
        if !config.prefix.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return Err(Error::Config { setting: "prefix", what });
        }
        if config.subscription_capacity == 0 {
            return Err(Error::Config {
                setting: "subscription_capacity",
                what: "write 1 or more",
            });
        }
        if ![1, 3, 5].contains(&config.events_replicas) {
            return Err(Error::Config { setting: "events_replicas", what: "write 1, 3 or 5" });
        }
        let what = "write `nats://host:4222`, several separated by commas";
        let url = |_| Error::Config { setting: "url", what };
        let servers = config.url.expose_secret().split(',').map(|url| url.trim().parse());
        let servers: Vec<ServerAddr> = servers.collect::<Result<_, _>>().map_err(url)?;

        let health = Arc::new(Health { prefix: config.prefix.clone(), ..Health::default() });
        let client = login::options(config, &servers)?
            .name(name)
            .custom_inbox_prefix(format!("_INBOX.{name}"))
            .retry_on_initial_connect()
            .connection_timeout(config.connect_timeout)
            .subscription_capacity(config.subscription_capacity)
            .request_timeout(Some(NATS_TIMEOUT))
            // A network that drops packets silently is noticed within half a minute.
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(reconnect_delay)
            // Chooses no server: it is told why the last attempts failed.
            .reconnect_to_server_callback({
                let health = Arc::clone(&health);
                move |servers, _| {
                    health.log_reason(servers.into_iter().find_map(|server| server.last_error));
                    std::future::ready(None)
                }
            })
            .event_callback({
                let health = Arc::clone(&health);
                move |event| {
                    health.process(&event);
                    std::future::ready(())
                }
            })
            .connect(servers)
            .await
            .map_err(|error| Error::Unavailable(Some(error.into())))?;
        let timeout = config.connect_timeout;
        tokio::spawn(log_if_unreachable(client.clone(), timeout, Arc::clone(&health)));

        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(NATS_TIMEOUT);
        let service = (config.clone(), name.to_owned());
        tokio::spawn(rights::try_all(client.clone(), jetstream.clone(), service));
        let config = Arc::new(config.clone());
        let may_create_streams = rights::may_create_streams(name);
        let signatures = Arc::default();
        Ok(Self { client, jetstream, config, may_create_streams, signatures, health })
    }

    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Version of the NATS server, and the time of a round trip.
    ///
    /// # Errors
    ///
    /// If NATS is unavailable.
    pub async fn server_status(&self) -> Result<(String, Duration), Error> {
        if !self.is_connected() {
            return Err(Error::Unavailable(None));
        }
        let began = Instant::now();
        with_timeout(self.client.flush()).await?;
        Ok((self.client.server_info().version, began.elapsed()))
    }

    /// Number of times that all subscribers of this connection may have lost messages: it broke.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.health.losses.load(Ordering::Relaxed)
    }

    /// Publishes a message immediately, or drops and counts it. Never waits and never fails.
    pub fn publish(&self, subject: &Subject, payload: Bytes) {
        // The client would buffer the message, but a late hint is worse than none.
        if !self.is_connected() {
            count_drop(subject, "nats is not there");
            return;
        }
        let publish = self.client.publish_with_headers(self.prefixed(subject), headers(), payload);
        // Ready at once unless the client's queue is full. `unconstrained`, since a task that has
        // used up its tokio budget would see a full queue that is not full.
        match tokio::task::unconstrained(publish).now_or_never() {
            Some(Ok(())) => {}
            Some(Err(error)) => count_drop(subject, &error.to_string()),
            None => count_drop(subject, "too much is waiting to be sent"),
        }
    }

    /// Waits until published messages are sent, but at most one second. Call it before the process
    /// ends.
    pub async fn flush(&self) {
        if self.is_connected()
            && !matches!(timeout(NATS_TIMEOUT / 2, self.client.flush()).await, Ok(Ok(())))
        {
            debug!("what was published last may be lost");
        }
    }

    /// Subscribes to a subject. NATS may be down: the subscription then begins when NATS is back.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn subscribe(&self, subject: &Subject) -> Result<Subscription, Error> {
        let subscribe = self.client.subscribe(self.prefixed(subject));
        Ok(Subscription::new(&self.config.prefix, with_timeout(subscribe).await?))
    }

    /// Subscribes like [`subscribe`](Self::subscribe), but each message goes to only one member of
    /// `group`.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn subscribe_queue(
        &self,
        subject: &Subject,
        group: &str,
    ) -> Result<Subscription, Error> {
        let subscribe = self.client.queue_subscribe(self.prefixed(subject), group.to_owned());
        Ok(Subscription::new(&self.config.prefix, with_timeout(subscribe).await?))
    }

    pub(crate) fn prefixed(&self, subject: &Subject) -> String {
        match self.config.prefix.as_str() {
            "" => subject.to_string(),
            prefix => format!("{prefix}.{subject}"),
        }
    }
}

/// Returns the headers of every message: the trace context.
pub(crate) fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(traceparent) = trace::current() {
        headers.insert(trace::TRACEPARENT, traceparent);
    }
    headers
}

pub(crate) async fn with_timeout<T, E: Into<anyhow::Error>>(
    subscribe: impl Future<Output = Result<T, E>>,
) -> Result<T, Error> {
    match timeout(NATS_TIMEOUT, subscribe).await {
        Ok(outcome) => outcome.map_err(|error| Error::Unavailable(Some(error.into()))),
        Err(_) => Err(Error::Unavailable(None)),
    }
}

fn count_drop(subject: &Subject, why: &str) {
    metrics::counter!("holdfast_bus_dropped_total", "kind" => subject.family()).increment(1);
    debug!(%subject, why, "a message was dropped");
}

/// Reconnect delay: 0, then 50 ms, doubled up to 2 s.
fn reconnect_delay(attempt: usize) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(2)).unwrap_or(u32::MAX).min(6);
    match attempt {
        0 | 1 => Duration::ZERO,
        _ => (Duration::from_millis(50) * 2_u32.pow(doublings)).min(Duration::from_secs(2)),
    }
}

impl Health {
    fn process(&self, event: &Event) {
        match event {
            Event::Connected => {
                *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.denied.lock().unwrap_or_else(PoisonError::into_inner).clear();
                if self.known_down.swap(false, Ordering::Relaxed) {
                    info!("nats is back");
                }
            }
            Event::Disconnected => {
                self.losses.fetch_add(1, Ordering::Relaxed);
                if !self.known_down.swap(true, Ordering::Relaxed) {
                    warn!("nats is gone; going on without wake-ups, a poll finds what is to do");
                }
            }
            // A slow subscriber is the only one that lost messages.
            Event::SlowConsumer(_) => {
                metrics::counter!("holdfast_bus_dropped_total", "kind" => "received").increment(1);
            }
            Event::LameDuckMode | Event::Draining | Event::Closed => debug!(%event, "nats"),
            Event::ServerError(error) => {
                let text = error.to_string();
                if let Some(right) = DeniedRight::parse(&text, &self.prefix) {
                    return self.log_denied(right);
                }
                let advice = login::advice(&text).unwrap_or_default();
                warn!(error = text, advice, "nats reports an error");
            }
            Event::ClientError(error) => debug!(%error, "nats reports an error"),
        }
    }
}

impl Health {
    /// Logs a denied right once per kind of subjects and connection.
    fn log_denied(&self, right: DeniedRight) {
        let kind = DeniedRight { subject: String::new(), ..right.clone() };
        if self.denied.lock().unwrap_or_else(PoisonError::into_inner).insert(kind) {
            let (operation, subject, advice) = (right.operation, &right.subject, right.advice());
            warn!(operation, subject, advice, "nats denies a right, messages are lost");
        }
    }

    /// Logs once why NATS refuses connections, if a person has to change something.
    fn log_reason(&self, error: Option<String>) {
        let Some((advice, error)) = error.and_then(|text| Some((login::advice(&text)?, text)))
        else {
            return;
        };
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        if refusal.as_ref() != Some(&advice) {
            warn!(error, advice, "nats refuses the connection");
            *refusal = Some(advice);
        }
    }
}

/// Reports NATS as down if the first connection never succeeded. The client reports only the loss
/// of an established connection.
async fn log_if_unreachable(client: Client, after: Duration, health: Arc<Health>) {
    sleep(after).await;
    if client.connection_state() != State::Connected {
        health.process(&Event::Disconnected);
    }
}
