//! An isolated NATS for each test.

use std::time::Duration;

use bytes::Bytes;
use holdfast_bus::{Bus, Config, Error, RequestKeys, Subject};
use holdfast_testkit::nats::Namespace;
use tokio::time::{Instant, sleep, timeout};

/// Maximum duration of an operation, on a machine that may stall.
const PATIENCE: Duration = Duration::from_secs(60);

/// Key with which all buses of a test sign.
pub const REQUEST_KEY: [u8; 32] = [1; 32];

/// A bus with its own prefix in the shared NATS. Its streams are deleted with it.
pub struct World {
    pub bus: Bus,
    pub namespace: Namespace,
}

impl World {
    pub async fn new() -> Self {
        Self::with(|config| config).await
    }

    pub async fn with(set: impl FnOnce(Config) -> Config) -> Self {
        let namespace = Namespace::create().await.unwrap();
        let config = config(namespace.url(), namespace.prefix());
        Self { bus: connect(&set(config)).await, namespace }
    }

    /// The same bus, as another process would connect to it.
    pub async fn elsewhere(&self) -> Bus {
        connect(&config(self.namespace.url(), self.namespace.prefix())).await
    }
}

pub fn config(url: &str, prefix: &str) -> Config {
    Config { url: url.into(), prefix: prefix.to_owned(), ..Config::default() }
}

/// A bus that is connected, since messages published earlier are dropped.
pub async fn connect(config: &Config) -> Bus {
    let bus = Bus::connect(config, "test").await.unwrap();
    RequestKeys::new([REQUEST_KEY]).install(&bus);
    connected(&bus).await;
    bus
}

pub async fn connected(bus: &Bus) {
    soon(async {
        while !bus.is_connected() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Limits the duration of an operation that should be fast.
pub async fn soon<T>(wait: impl Future<Output = T>) -> T {
    timeout(PATIENCE, wait).await.unwrap()
}

/// Repeats a call that NATS does not answer in time.
pub async fn patiently(call: impl AsyncFn() -> Result<(), Error>) {
    let end = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Err(Error::Unavailable(_)) if Instant::now() < end => {
                sleep(Duration::from_millis(100)).await;
            }
            done => return done.unwrap(),
        }
    }
}

/// Publishes an event. By its id it is stored once, also if it is sent again.
pub async fn publish(bus: &Bus, subject: &Subject, id: &str, payload: impl Into<Bytes>) {
    let payload = payload.into();
    patiently(async || bus.publish_event(subject, id, payload.clone()).await).await;
}

/// Creates the stream of events.
pub async fn ensure_streams(bus: &Bus) {
    patiently(async || bus.ensure_streams().await).await;
}
