//! An isolated NATS for each test.

use std::time::Duration;

use holdfast_bus::{Bus, Config};
use holdfast_testkit::nats::Namespace;
use tokio::time::timeout;

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
    timeout(Duration::from_secs(10), wait).await.unwrap()
}
