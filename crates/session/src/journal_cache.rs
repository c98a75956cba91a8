//! Cache of the newest journal entries that this process has read, so that a turn reads only later
//! ones.
//!
//! A journal is append-only and session ids are not reused, so cached entries are correct but
//! incomplete. If the last cached entry is not in the journal (the database was restored from a
//! backup, or lost its last commits in a failover), or an erasure has changed entries, the journal
//! is read again. Entries are shared with the cache, so that a load copies none under the lock.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use holdfast_types::{Entry, RunId, SessionId, TenantId};

/// One entry with its `seq` and run.
pub(crate) type JournalEntry = (i64, RunId, Entry);

/// Maximum size of the cache, in bytes as estimated by [`weight`].
const MAX_CACHE_BYTES: usize = 8 * 1024 * 1024;

/// Cached entries by session; the least recently used are evicted first.
#[derive(Debug, Default)]
pub(crate) struct JournalCache(Mutex<CachedJournals>);

#[derive(Debug, Default)]
struct CachedJournals {
    tails: HashMap<(TenantId, SessionId), CachedJournal>,
    weight: usize,
    /// Counter of uses, for the eviction order.
    clock: u64,
}

/// The newest entries of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CachedEntries {
    /// Version of the journal that they were read of.
    pub version: i32,
    pub entries: Vec<Arc<JournalEntry>>,
}

#[derive(Debug)]
struct CachedJournal {
    cached: CachedEntries,
    /// Number of entries that were asked for; fewer entries are the whole journal.
    history: i64,
    weight: usize,
    used: u64,
}

impl JournalCache {
    /// Returns the cached part of a journal's newest `history` entries; empty if there is none.
    pub fn get(&self, tenant: TenantId, session: SessionId, history: i64) -> CachedEntries {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        match kept.tails.get_mut(&(tenant, session)) {
            Some(tail) if tail.history == history => {
                tail.used = now;
                tail.cached.clone()
            }
            _ => CachedEntries::default(),
        }
    }

    /// Stores a journal's newest entries.
    pub fn put(&self, tenant: TenantId, session: SessionId, history: i64, cached: CachedEntries) {
        let weight = cached.entries.iter().map(|entry| estimate_bytes(&entry.2)).sum();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let tail = CachedJournal { cached, history, weight, used: kept.clock };
        kept.weight += weight;
        if let Some(old) = kept.tails.insert((tenant, session), tail) {
            kept.weight -= old.weight;
        }
        if kept.weight > MAX_CACHE_BYTES {
            kept.evict();
        }
    }
}

impl CachedJournals {
    /// Evicts the least recently used journals until a quarter of the cache is free, so that
    /// eviction is rare.
    fn evict(&mut self) {
        let mut by_use: Vec<_> = self.tails.iter().map(|(key, tail)| (tail.used, *key)).collect();
        by_use.sort_unstable();
        for (_, key) in by_use {
            if self.weight <= MAX_CACHE_BYTES / 4 * 3 {
                return;
            }
            if let Some(gone) = self.tails.remove(&key) {
                self.weight -= gone.weight;
            }
        }
    }
}

/// Estimates an entry's size in memory, in bytes.
fn estimate_bytes(entry: &Entry) -> usize {
    const BASE_BYTES: usize = size_of::<JournalEntry>() + 64;
    BASE_BYTES
        + match entry {
            Entry::Heard { body, .. } => body.text.len() + 128,
            Entry::Thought { text, calls, model, .. } => {
                let calls: usize = calls.iter().map(|call| call.input.len() + 128).sum();
                text.len() + model.len() + calls
            }
            Entry::Called { call, .. } => call.len(),
            Entry::Returned { output, .. } => output.len() + 256,
            Entry::Noted { text, .. } => text.len(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::Note;

    fn note(seq: i64, bytes: usize) -> CachedEntries {
        let run = RunId::from(uuid::Uuid::nil());
        let entry = (seq, run, Entry::noted(Note::Summary, "x".repeat(bytes)));
        CachedEntries { version: 0, entries: vec![Arc::new(entry)] }
    }

    #[test]
    fn what_was_put_is_got_by_who_asks_for_as_much() {
        let (tails, tenant, session) =
            (JournalCache::default(), TenantId::generate(), SessionId::generate());

        tails.put(tenant, session, 9, note(1, 1));

        assert_eq!(tails.get(tenant, session, 9), note(1, 1));
        assert!(tails.get(tenant, session, 10).entries.is_empty());
        assert!(tails.get(TenantId::generate(), session, 9).entries.is_empty());
    }

    #[test]
    fn cached_entries_are_shared_and_not_copied() {
        let (tails, tenant, session) =
            (JournalCache::default(), TenantId::generate(), SessionId::generate());
        let cached = note(1, 1);

        tails.put(tenant, session, 9, cached.clone());

        let got = tails.get(tenant, session, 9);
        assert!(Arc::ptr_eq(&got.entries[0], &cached.entries[0]));
    }

    #[test]
    fn the_longest_unused_goes_when_the_room_is_full() {
        let (tails, tenant) = (JournalCache::default(), TenantId::generate());
        let sessions: Vec<SessionId> = (0..9).map(|_| SessionId::generate()).collect();

        for session in &sessions {
            tails.put(tenant, *session, 9, note(1, MAX_CACHE_BYTES / 8));
            tails.get(tenant, sessions[0], 9);
        }

        let has = |n: usize| !tails.get(tenant, sessions[n], 9).entries.is_empty();
        assert_eq!([has(0), has(1), has(8)], [true, false, true]);
        assert!(tails.0.lock().unwrap().weight <= MAX_CACHE_BYTES);
    }
}
