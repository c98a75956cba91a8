//! Cache of search results: models repeat the same search more often than people.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use holdfast_types::TenantId;
use tokio::time::Instant;

use super::SearchResults;

/// Time for which a result is used.
const RESULT_TTL: Duration = Duration::from_secs(15 * 60);

/// Maximum number of entries.
const MAX_ENTRIES: usize = 512;

/// Cache key. Tenants share no entries: the response time would reveal the searches of others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Query {
    pub(super) tenant: TenantId,
    pub(super) text: String,
    pub(super) count: usize,
}

#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<Query, (Instant, SearchResults)>>);

impl Cache {
    /// Returns the result for a query, unless it is too old.
    pub(super) fn get(&self, query: &Query) -> Option<SearchResults> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, found) = kept.get(query)?;
        (at.elapsed() < RESULT_TTL).then(|| found.clone())
    }

    /// Stores a result; removes the oldest one if the cache is full.
    pub(super) fn put(&self, query: Query, found: SearchResults) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (at, _)| at.elapsed() < RESULT_TTL);
        if kept.len() >= MAX_ENTRIES
            && let Some(oldest) =
                kept.iter().min_by_key(|(_, (at, _))| *at).map(|(query, _)| query.clone())
        {
            kept.remove(&oldest);
        }
        kept.insert(query, (Instant::now(), found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(tenant: TenantId, text: &str) -> Query {
        Query { tenant, text: text.to_owned(), count: 5 }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_good_for_a_quarter_of_an_hour() {
        let (cache, tenant) = (Cache::default(), TenantId::generate());
        let found = SearchResults { answer: Some("x".into()), hits: vec![] };
        cache.put(query(tenant, "a"), found.clone());

        tokio::time::advance(RESULT_TTL - Duration::from_secs(1)).await;
        assert_eq!(cache.get(&query(tenant, "a")), Some(found));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get(&query(tenant, "a")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_goes_when_there_are_too_many() {
        let (cache, tenant) = (Cache::default(), TenantId::generate());
        for n in 0..=MAX_ENTRIES {
            cache.put(query(tenant, &n.to_string()), SearchResults::default());
            tokio::time::advance(Duration::from_millis(1)).await;
        }

        assert_eq!(cache.get(&query(tenant, "0")), None);
        assert_eq!(cache.0.lock().unwrap().len(), MAX_ENTRIES);
        assert!(cache.get(&query(tenant, "1")).is_some());
    }
}
