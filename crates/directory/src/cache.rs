//! Bounded cache with a time to live.
//!
//! For values that every request reads and that change seldom. If the cache is full and no entry
//! has expired, the oldest quarter is dropped.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    state: Mutex<CacheState<K, V>>,
    ttl: Duration,
    capacity: usize,
}

#[derive(Debug)]
struct CacheState<K, V> {
    entries: HashMap<K, (Instant, V)>,
    /// Time of the last [`forget`](Cache::forget).
    last_forgotten_at: Option<Instant>,
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) fn new(keeps: Duration, most: usize) -> Self {
        let known = CacheState { entries: HashMap::new(), last_forgotten_at: None };
        Self { state: Mutex::new(known), ttl: keeps, capacity: most }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let known = self.lock();
        let (at, value) = known.entries.get(key)?;
        (at.elapsed() < self.ttl).then(|| value.clone())
    }

    /// Stores a value that was read from `at` on, the *start* of the read: a change since then must
    /// not stay hidden for longer than promised. If any key was forgotten since `at`, the value is
    /// not stored, because it may be outdated.
    pub(crate) fn put(&self, key: K, value: V, at: Instant) {
        let mut known = self.lock();
        if known.last_forgotten_at.is_some_and(|forgot| at <= forgot) {
            return;
        }
        let entries = &mut known.entries;
        if entries.len() >= self.capacity && !entries.contains_key(&key) {
            entries.retain(|_, (at, _)| at.elapsed() < self.ttl);
            if entries.len() >= self.capacity {
                drop_oldest(entries, self.capacity / 4 + 1);
            }
        }
        entries.insert(key, (at, value));
    }

    pub(crate) fn forget(&self, key: &K) {
        let mut known = self.lock();
        known.entries.remove(key);
        known.last_forgotten_at = Some(Instant::now());
    }

    pub(crate) fn forget_if(&self, is_outdated: impl Fn(&V) -> bool) {
        let mut known = self.lock();
        known.entries.retain(|_, (_, value)| !is_outdated(value));
        known.last_forgotten_at = Some(Instant::now());
    }

    pub(crate) fn forget_expired(&self) {
        self.lock().entries.retain(|_, (at, _)| at.elapsed() < self.ttl);
    }

    fn lock(&self) -> MutexGuard<'_, CacheState<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the entries that were read first: so many, and those that were read at the same time.
fn drop_oldest<K, V>(entries: &mut HashMap<K, (Instant, V)>, count: usize) {
    let mut times: Vec<Instant> = entries.values().map(|(at, _)| *at).collect();
    let Some(last) = count.min(times.len()).checked_sub(1) else { return };
    let (_, last, _) = times.select_nth_unstable(last);
    let last = *last;
    entries.retain(|_, (at, _)| *at > last);
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
        cache.put("outdated", 4, now);
        cache.forget(&"gone");
        cache.forget_if(|value| *value == 4);

        assert_eq!(
            ["new", "old", "gone", "outdated"].map(|key| cache.get(&key)),
            [Some(1), None, None, None]
        );
        cache.forget_expired();
        assert_eq!(cache.lock().entries.keys().collect::<Vec<_>>(), [&"new"]);
    }

    #[test]
    fn what_was_being_read_while_it_was_forgotten_is_not_remembered() {
        let cache = Cache::new(Duration::from_secs(60), 9);
        let began = Instant::now();

        cache.forget(&"key");
        cache.put("key", "as it was", began);

        assert_eq!(cache.get(&"key"), None);
        cache.put("key", "as it is", Instant::now() + Duration::from_millis(1));
        assert_eq!(cache.get(&"key"), Some("as it is"));
    }

    #[test]
    fn a_full_cache_keeps_its_newest_values() {
        let cache = Cache::new(Duration::from_secs(60), 100);
        let begun = Instant::now();

        for n in 0..=100 {
            cache.put(n, n, begun + Duration::from_nanos(n));
        }

        let kept = (0..=100).filter(|n| cache.get(n).is_some());
        assert_eq!(kept.collect::<Vec<_>>(), (26..=100).collect::<Vec<_>>());
    }

    #[test]
    fn it_never_holds_more_than_it_may() {
        let cache = Cache::new(Duration::from_secs(60), 3);

        for n in 0..100 {
            cache.put(n, n, Instant::now());

            assert_eq!(cache.get(&n), Some(n));
            assert!(cache.lock().entries.len() <= 3);
        }
    }
}
