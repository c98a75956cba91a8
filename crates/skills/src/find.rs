//! Search for skills in all registries (spec SKL-006).
//!
//! Two registries are asked at a time, each with a timeout of a minute. Registries that fail are
//! listed beside the hits of the others. Results are cached for similar queries of the same tenant.

mod cache;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use holdfast_types::TenantId;

use self::cache::{SearchCache, SearchKey};
use crate::{Error, Policy, Registries, Registry, SkillHit};

/// Number of concurrent requests to registries.
const MAX_CONCURRENT_REGISTRIES: usize = 2;
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_QUERY_CHARS: usize = 400;
/// Default number of search results.
pub const DEFAULT_SEARCH_LIMIT: usize = 5;
/// Maximum number of search results.
pub const MAX_SEARCH_LIMIT: usize = 20;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchResult {
    /// Ordered by score, the best first.
    pub hits: Vec<SkillHit>,
    /// Names of the registries that failed, with the reasons.
    pub failed: Vec<(String, String)>,
}

/// Search over registries, with a cache.
#[derive(Debug, Default)]
pub struct Finder {
    registries: Registries,
    cache: Mutex<SearchCache>,
}

impl Finder {
    #[must_use]
    pub fn new(registries: Registries) -> Self {
        Self { registries, cache: Mutex::default() }
    }

    #[must_use]
    pub const fn registries(&self) -> &Registries {
        &self.registries
    }

    /// Searches the registries that the tenant's policy allows. Returns at most `limit` skills.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for the query or the limit, [`Error::Forbidden`] if the policy allows no
    /// registry, [`Error::Unavailable`] if all registries fail.
    pub async fn find(
        &self,
        tenant: TenantId,
        policy: &Policy,
        query: &str,
        limit: usize,
    ) -> Result<SearchResult, Error> {
        let query = crate::registry::one_line(query, MAX_QUERY_CHARS + 1);
        if query.is_empty() || query.chars().count() > MAX_QUERY_CHARS {
            return Err(Error::Invalid(format!(
                "a question has from 1 to {MAX_QUERY_CHARS} characters: say in a few words what the \
                 skill should do"
            )));
        }
        if !(1..=MAX_SEARCH_LIMIT).contains(&limit) {
            return Err(Error::Invalid(format!("`limit` must be from 1 to {MAX_SEARCH_LIMIT}")));
        }
        if self.registries.iter().next().is_none() {
            // No registries are configured: an empty result, not a refusal by the policy.
            return Ok(SearchResult::default());
        }
        let is_allowed = |registry: &&Arc<dyn Registry>| policy.check(registry.name()).is_ok();
        let allowed: Vec<Arc<dyn Registry>> =
            self.registries.iter().filter(is_allowed).cloned().collect();
        if allowed.is_empty() {
            return Err(Error::Forbidden(
                "no registry of skills may be used here: ask the tenant's administrator".to_owned(),
            ));
        }
        let names = allowed.iter().map(|registry| registry.name().to_owned()).collect();
        let key = SearchKey::new(tenant, names, &query, limit);
        if let Some(found) = self.cache().get(&key) {
            return Ok(found);
        }

        let asked = allowed.len();
        let asking = allowed
            .into_iter()
            .map(|registry| search_registry(registry, query.clone(), limit).boxed());
        let asking: Vec<BoxFuture<'static, _>> = asking.collect();
        // `buffered` keeps the operator's order, and sorting is stable: among equal scores, hits of
        // the first registry come first.
        let answers: Vec<_> =
            stream::iter(asking).buffered(MAX_CONCURRENT_REGISTRIES).collect().await;
        let mut found = SearchResult::default();
        for (name, answer) in answers {
            match answer {
                Ok(hits) => found.hits.extend(hits),
                Err(error) => found.failed.push((name, error.to_string())),
            }
        }
        if found.failed.len() == asked {
            let why: Vec<String> = found.failed.into_iter().map(|(_, why)| why).collect();
            return Err(Error::Unavailable { registry: "any".to_owned(), why: why.join("; ") });
        }
        keep_best(&mut found.hits, limit);
        // An incomplete result is not cached.
        if found.failed.is_empty() {
            self.cache().put(key, found.clone());
        }
        Ok(found)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, SearchCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Searches one registry; also returns its name.
async fn search_registry(
    registry: Arc<dyn Registry>,
    query: String,
    limit: usize,
) -> (String, Result<Vec<SkillHit>, Error>) {
    let name = registry.name().to_owned();
    let found = tokio::time::timeout(REGISTRY_TIMEOUT, registry.search(&query, limit)).await;
    let found = found.unwrap_or_else(|_| {
        let why = format!("it took longer than {} s", REGISTRY_TIMEOUT.as_secs());
        Err(Error::Unavailable { registry: name.clone(), why })
    });
    (name, found)
}

/// Sorts by score, the best first, and truncates. A score that is not finite counts as 0.
fn keep_best(hits: &mut Vec<SkillHit>, limit: usize) {
    for hit in &mut *hits {
        if !hit.score.is_finite() {
            hit.score = 0.0;
        }
    }
    hits.sort_by(|a, b| b.score.total_cmp(&a.score));
    hits.truncate(limit);
}

#[cfg(test)]
mod tests;
