//! Cache of search results for similar queries.
//!
//! Two queries are similar if the Jaccard index of their trigrams is at least 0.7. Tenants share no
//! entries: response times would tell what others search for.

use std::{collections::BTreeSet, time::Duration};

use holdfast_types::TenantId;
use tokio::time::Instant;

use super::SearchResult;

/// Lifetime of an entry.
const CACHE_TTL: Duration = Duration::from_secs(300);
/// Maximum number of entries.
const MAX_CACHED_SEARCHES: usize = 50;
/// Minimum Jaccard index of similar queries, as (numerator, denominator).
const MIN_TRIGRAM_SIMILARITY: (usize, usize) = (7, 10);

/// Query and the parameters that must be equal for a hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchKey {
    tenant: TenantId,
    registries: Vec<String>,
    limit: usize,
    trigrams: BTreeSet<[char; 3]>,
}

impl SearchKey {
    pub(super) fn new(
        tenant: TenantId,
        registries: Vec<String>,
        query: &str,
        limit: usize,
    ) -> Self {
        let words = query.to_lowercase();
        // Padded on both sides, so that a query of one letter has trigrams, too.
        let letters: Vec<char> = std::iter::repeat_n(' ', 2)
            .chain(words.split_whitespace().collect::<Vec<_>>().join(" ").chars())
            .chain([' '])
            .collect();
        let trigrams = letters.windows(3).filter_map(|three| three.try_into().ok()).collect();
        Self { tenant, registries, limit, trigrams }
    }

    /// Sizes of the intersection and the union of the trigrams, if the queries are similar and the
    /// other parameters equal.
    fn similarity(&self, other: &Self) -> Option<(usize, usize)> {
        let is_alike = self.tenant == other.tenant
            && self.registries == other.registries
            && self.limit == other.limit;
        let both = self.trigrams.intersection(&other.trigrams).count();
        let either = self.trigrams.len() + other.trigrams.len() - both;
        let (part, whole) = MIN_TRIGRAM_SIMILARITY;
        (is_alike && both * whole >= either * part).then_some((both, either))
    }
}

#[derive(Debug)]
struct CachedSearch {
    key: SearchKey,
    at: Instant,
    found: SearchResult,
}

/// Entries, the least recently used first.
#[derive(Debug, Default)]
pub(super) struct SearchCache(Vec<CachedSearch>);

impl SearchCache {
    /// Result of the most similar query.
    pub(super) fn get(&mut self, key: &SearchKey) -> Option<SearchResult> {
        self.0.retain(|kept| kept.at.elapsed() < CACHE_TTL);
        let mut nearest: Option<(usize, (usize, usize))> = None;
        for (at, kept) in self.0.iter().enumerate() {
            let Some((both, either)) = kept.key.similarity(key) else { continue };
            // Compares fractions by cross-multiplication.
            if nearest.is_none_or(|(_, (b, e))| both * e >= b * either) {
                nearest = Some((at, (both, either)));
            }
        }
        let kept = self.0.remove(nearest?.0);
        let found = kept.found.clone();
        self.0.push(kept);
        Some(found)
    }

    /// Stores a result; evicts the least recently used one if the cache is full.
    pub(super) fn put(&mut self, key: SearchKey, found: SearchResult) {
        self.0.retain(|kept| kept.key != key);
        if self.0.len() >= MAX_CACHED_SEARCHES {
            self.0.remove(0);
        }
        self.0.push(CachedSearch { key, at: Instant::now(), found });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: TenantId, query: &str, limit: usize) -> SearchKey {
        SearchKey::new(tenant, vec!["hub".to_owned()], query, limit)
    }

    fn found(why: &str) -> SearchResult {
        SearchResult { hits: Vec::new(), failed: vec![(why.to_owned(), String::new())] }
    }

    #[tokio::test(start_paused = true)]
    async fn nearly_the_same_question_is_answered_and_another_is_not() {
        let (mut cache, tenant) = (SearchCache::default(), TenantId::generate());
        cache.put(key(tenant, "read a long pdf file", 5), found("pdf"));

        for alike in ["read a long pdf file", "READ a  long PDF files", "read a long pdf"] {
            assert_eq!(cache.get(&key(tenant, alike, 5)), Some(found("pdf")), "{alike}");
        }
        for other in ["read a pdf", "write a long letter", "", "r"] {
            assert_eq!(cache.get(&key(tenant, other, 5)), None, "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_limit_another_tenant_and_other_registries_are_other_questions() {
        let (mut cache, tenant) = (SearchCache::default(), TenantId::generate());
        cache.put(key(tenant, "pdf", 5), found("pdf"));

        assert_eq!(cache.get(&key(tenant, "pdf", 6)), None);
        assert_eq!(cache.get(&key(TenantId::generate(), "pdf", 5)), None);
        assert_eq!(cache.get(&SearchKey::new(tenant, vec![], "pdf", 5)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_good_for_five_minutes() {
        let (mut cache, tenant) = (SearchCache::default(), TenantId::generate());
        cache.put(key(tenant, "pdf", 5), found("pdf"));

        tokio::time::advance(CACHE_TTL - Duration::from_millis(1)).await;
        assert!(cache.get(&key(tenant, "pdf", 5)).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(cache.get(&key(tenant, "pdf", 5)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_unused_for_longest_goes() {
        let (mut cache, tenant) = (SearchCache::default(), TenantId::generate());
        // A letter of its own each, so that no two are alike.
        let query = |at: usize| ('\u{4e00}'..).nth(at).map_or_else(String::new, String::from);
        for at in 0..MAX_CACHED_SEARCHES {
            cache.put(key(tenant, &query(at), 5), found(&query(at)));
        }
        assert!(cache.get(&key(tenant, &query(0), 5)).is_some());

        cache.put(key(tenant, "one more of them", 5), found("more"));

        assert_eq!(cache.0.len(), MAX_CACHED_SEARCHES);
        assert_eq!(cache.get(&key(tenant, &query(0), 5)), Some(found(&query(0))));
        assert_eq!(cache.get(&key(tenant, &query(1), 5)), None);
    }
}
