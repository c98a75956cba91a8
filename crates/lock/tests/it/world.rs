//! An isolated Redis for each test.

use std::time::Duration;

use holdfast_lock::{Config, Locks, REDIS_TIMEOUT, SessionLock};
use holdfast_testkit::redis::Namespace;
use holdfast_types::RunnerId;

/// Locks with their own prefix in the shared Redis. The keys are deleted with them.
pub struct World {
    pub locks: Locks,
    pub namespace: Namespace,
}

impl World {
    pub async fn new() -> Self {
        let namespace = Namespace::create().await.unwrap();
        Self { locks: patient_locks(namespace.url(), namespace.prefix()), namespace }
    }

    /// The same locks, as another process would use them.
    pub fn elsewhere(&self) -> Locks {
        patient_locks(self.namespace.url(), self.namespace.prefix())
    }

    pub async fn session_owner(&self, lock: SessionLock) -> Option<(i64, RunnerId)> {
        session_owner(self.namespace.url(), self.namespace.prefix(), lock).await
    }
}

/// Returns the epoch and the runner that a session's lock names.
pub async fn session_owner(url: &str, prefix: &str, lock: SessionLock) -> Option<(i64, RunnerId)> {
    let client = redis::Client::open(url).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let (tenant, session) = (lock.tenant.as_uuid(), lock.session.as_uuid());
    let key = format!("{prefix}lock:{}:session:{}", tenant.simple(), session.simple());
    let stored: Option<String> = redis::cmd("GET").arg(key).query_async(&mut redis).await.unwrap();
    let stored = stored?;
    let (epoch, runner) = stored.split_once(':').unwrap();
    Some((epoch.parse().unwrap(), runner.parse().unwrap()))
}

/// Locks with the timeout of the product.
pub fn locks(url: &str, prefix: &str) -> Locks {
    locks_with(url, prefix, REDIS_TIMEOUT)
}

/// Locks to which a stall of the machine is no outage of Redis.
pub fn patient_locks(url: &str, prefix: &str) -> Locks {
    locks_with(url, prefix, Duration::from_secs(60))
}

fn locks_with(url: &str, prefix: &str, call_timeout: Duration) -> Locks {
    let prefix = prefix.to_owned();
    let config = Config { url: url.into(), prefix, call_timeout, ..Config::default() };
    Locks::connect_lazy(&config).unwrap()
}
