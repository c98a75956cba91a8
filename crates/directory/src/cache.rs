//! A small map whose values are forgotten after a while.
//!
//! For what is asked at every request and changes seldom. It is bounded: when
//! it is full and nothing in it is old, all of it goes, which costs a look-up
//! each and no more.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    entries: Mutex<HashMap<K, (Instant, V)>>,
    keeps: Duration,
    most: usize,
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) fn new(keeps: Duration, most: usize) -> Self {
        Self { entries: Mutex::new(HashMap::new()), keeps, most }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let entries = self.lock();
        let (at, value) = entries.get(key)?;
        (at.elapsed() < self.keeps).then(|| value.clone())
    }

    /// Remembers what was read at `at`, which is when the reading *began*: what changed
    /// since then must not look fresh for longer than promised.
    pub(crate) fn put(&self, key: K, value: V, at: Instant) {
        let mut entries = self.lock();
        if entries.len() >= self.most && !entries.contains_key(&key) {
            entries.retain(|_, (at, _)| at.elapsed() < self.keeps);
            if entries.len() >= self.most {
                entries.clear();
            }
        }
        entries.insert(key, (at, value));
    }

    pub(crate) fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, (Instant, V)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_forgotten_in_time_and_on_request() {
        let cache = Cache::new(Duration::from_secs(60), 9);
        let now = Instant::now();
        let long_ago = now.checked_sub(Duration::from_secs(61)).unwrap();

        cache.put("new", 1, now);
        cache.put("old", 2, long_ago);
        cache.put("gone", 3, now);
        cache.forget(&"gone");

        assert_eq!(
            [cache.get(&"new"), cache.get(&"old"), cache.get(&"gone")],
            [Some(1), None, None]
        );
    }

    #[test]
    fn it_never_holds_more_than_it_may() {
        let cache = Cache::new(Duration::from_secs(60), 3);

        for n in 0..100 {
            cache.put(n, n, Instant::now());

            assert_eq!(cache.get(&n), Some(n));
            assert!(cache.lock().len() <= 3);
        }
    }
}
