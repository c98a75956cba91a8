//! An isolated Redis for each test.

use holdfast_lock::{Config, Locks};
use holdfast_testkit::redis::Namespace;

/// Locks with their own prefix in the shared Redis. The keys are deleted with them.
pub struct World {
    pub locks: Locks,
    pub namespace: Namespace,
}

impl World {
    pub async fn new() -> Self {
        let namespace = Namespace::create().await.unwrap();
        Self { locks: locks(namespace.url(), namespace.prefix()), namespace }
    }

    /// The same locks, as another process would use them.
    pub fn elsewhere(&self) -> Locks {
        locks(self.namespace.url(), self.namespace.prefix())
    }
}

pub fn locks(url: &str, prefix: &str) -> Locks {
    let config = Config { url: url.into(), prefix: prefix.to_owned(), ..Config::default() };
    Locks::connect_lazy(&config).unwrap()
}
