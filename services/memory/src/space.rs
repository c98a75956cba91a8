//! Cache of how each tenant is searched and of what a caller can see.
//!
//! **What can go wrong.** Another process changes the model or creates the tenant's own table, and
//! this one continues as before for up to [`FRESH`]. What it searches exists for longer: the
//! vectors and the table of a former model are deleted a minute after the change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_pg::Pools;
use holdfast_types::TenantId;
use uuid::Uuid;

use crate::{
    store::{
        search::{self, VisibleStats},
        spaces::{self, Space},
    },
    viewer::Viewer,
};

/// Maximum age of a cached view.
pub const VIEW_MAX_AGE: Duration = Duration::from_secs(5);

/// Maximum age of a large count: counting many units takes longer than searching them.
const LARGE_COUNT_MAX_AGE: Duration = Duration::from_secs(60);

/// Maximum counted units. Beyond it, a word's rarity has no more effect: document frequencies are
/// counted up to 1,001.
pub const MAX_COUNTED_UNITS: i64 = 20_000;

/// Minimum document frequency that is cached.
const MIN_CACHED_DOC_FREQ: i32 = 100;

/// Maximum entries of each cache; when it is full, it is cleared.
const MAX_CACHE_ENTRIES: usize = 10_000;

type ViewCache = HashMap<(TenantId, Uuid, String), (Instant, Arc<View>)>;

/// Divisor of the exact-scan limit, and upper bound, for the number of filtered units that are
/// scanned one by one. Looking up a unit by its key costs as much as comparing several adjacent
/// ones.
const SCAN_DIVISOR: i64 = 8;
const MAX_SCANNED_UNITS: i64 = 2_500;

/// Search settings and statistics for one agent and user.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// `None` until the tenant has a vector.
    pub space: Option<Space>,
    /// Authors and number of visible units.
    pub seen: VisibleStats,
    /// Time of that count.
    counted: Option<Instant>,
    /// Document frequencies of terms asked for so far; only where there are many units.
    holders: Option<Arc<Mutex<HashMap<String, i32>>>>,
}

impl View {
    /// Returns the cached document frequencies of terms.
    pub fn doc_freqs(&self, terms: &[String]) -> Vec<Option<i32>> {
        let Some(holders) = self.holders() else { return Vec::new() };
        terms.iter().map(|term| holders.get(term).copied()).collect()
    }

    /// Caches document frequencies. Low ones are left out: they are counted quickly, and each new
    /// unit changes them noticeably.
    pub fn cache_doc_freqs(&self, terms: &[String], held_by: &[i32]) {
        let Some(mut holders) = self.holders() else { return };
        if holders.len() >= MAX_CACHE_ENTRIES {
            holders.clear();
        }
        let known = terms.iter().cloned().zip(held_by.iter().copied());
        holders.extend(known.filter(|(_, units)| *units >= MIN_CACHED_DOC_FREQ));
    }

    fn holders(&self) -> Option<MutexGuard<'_, HashMap<String, i32>>> {
        let holders = self.holders.as_ref()?;
        Some(holders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Clone)]
pub struct Views {
    pools: Pools,
    exact_up_to: i64,
    known: Arc<Mutex<ViewCache>>,
}

impl Views {
    /// Creates an empty cache. Up to `exact_up_to` vectors are scanned even if there is an index.
    pub fn new(pools: Pools, exact_up_to: u32) -> Self {
        Self { pools, exact_up_to: exact_up_to.into(), known: Arc::default() }
    }

    /// Returns the view of an agent and user, from the cache if it is recent.
    pub async fn of(&self, tenant: TenantId, who: &Viewer) -> sqlx::Result<Arc<View>> {
        let key = (tenant, who.agent, who.user.clone());
        let before = self.known().get(&key).cloned();
        if let Some((read, view)) = &before
            && read.elapsed() < VIEW_MAX_AGE
        {
            return Ok(Arc::clone(view));
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let space = spaces::get(&mut tx).await?;
        let view =
            match before.filter(|(_, before)| self.is_large_and_recent(before, space.as_ref())) {
                Some((_, before)) => View { space, ..View::clone(&before) },
                None => {
                    let model = space.as_ref().map_or("", |space| space.model.as_str());
                    let most = MAX_COUNTED_UNITS.max(self.exact_up_to + 1);
                    let seen = search::visible_stats(&mut tx, who, model, (most, self.exact_up_to))
                        .await?;
                    let holders = (seen.vectors > self.exact_up_to).then(Arc::default);
                    View { space, seen, counted: Some(Instant::now()), holders }
                }
            };
        tx.finish_reading();
        let view = Arc::new(view);
        let mut known = self.known();
        if known.len() >= MAX_CACHE_ENTRIES {
            known.clear();
        }
        known.insert(key, (Instant::now(), Arc::clone(&view)));
        Ok(view)
    }

    /// Returns whether the former count was large and recent, with the same model.
    fn is_large_and_recent(&self, before: &View, space: Option<&Space>) -> bool {
        let same = before.space.as_ref().map(|space| &space.model) == space.map(|now| &now.model);
        same && before.seen.vectors > self.exact_up_to
            && before.counted.is_some_and(|counted| counted.elapsed() < LARGE_COUNT_MAX_AGE)
    }

    /// Returns the indexed table to search for these kinds; `None` means an exact scan.
    pub fn index_table(&self, view: &View, kinds: &[i16]) -> Option<String> {
        if view.seen.vectors_of(kinds) <= self.exact_up_to {
            return None;
        }
        view.space.as_ref().and_then(|space| space.own.clone())
    }

    /// Returns the number of filtered units up to which each one is scanned; with more, the index
    /// finds enough of them.
    pub fn max_scanned_units(&self) -> i64 {
        (self.exact_up_to / SCAN_DIVISOR).min(MAX_SCANNED_UNITS)
    }

    /// Removes a tenant's views after a change.
    pub fn invalidate(&self, tenant: TenantId) {
        self.known().retain(|(of, ..), _| *of != tenant);
    }

    fn known(&self) -> MutexGuard<'_, ViewCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn what_many_hold_is_not_counted_again_and_what_few_hold_is() {
        let view = View { holders: Some(Arc::default()), ..View::default() };
        view.cache_doc_freqs(
            &terms(&["tea", "zebra", "cup"]),
            &[MIN_CACHED_DOC_FREQ, 0, MIN_CACHED_DOC_FREQ - 1],
        );

        assert_eq!(
            view.doc_freqs(&terms(&["cup", "tea", "zebra"])),
            [None, Some(MIN_CACHED_DOC_FREQ), None]
        );
    }

    #[test]
    fn where_there_is_little_all_is_counted() {
        let view = View::default();
        view.cache_doc_freqs(&terms(&["tea"]), &[MIN_CACHED_DOC_FREQ]);

        assert_eq!(view.doc_freqs(&terms(&["tea"])), []);
    }
}
