//! Which skills of all registries fit a question (spec SKL-006).
//!
//! Registries are asked at once, two at a time, and each has a minute. One that does not answer is
//! named beside what the others found. What was found is good for a while, for questions that
//! are nearly the same, from the same tenant.

mod cache;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use holdfast_types::TenantId;

use self::cache::{Cache, Key};
use crate::{Error, Hit, Policy, Registries, Registry};

/// How many registries are asked at once.
const AT_ONCE: usize = 2;
/// How long each may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most characters of a question.
const MOST_QUERY: usize = 400;
/// How many skills are found if nothing is said.
pub const DEFAULT_FOUND: usize = 5;
/// The most skills that are found.
pub const MOST_FOUND: usize = 20;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Skills, the best first.
    pub hits: Vec<Hit>,
    /// Registries that did not answer, and why.
    pub failed: Vec<(String, String)>,
}

/// Finds skills in registries.
#[derive(Debug, Default)]
pub struct Finder {
    registries: Registries,
    cache: Mutex<Cache>,
}

impl Finder {
    /// Finds in these.
    #[must_use]
    pub fn new(registries: Registries) -> Self {
        Self { registries, cache: Mutex::default() }
    }

    /// The registries that it finds in.
    #[must_use]
    pub const fn registries(&self) -> &Registries {
        &self.registries
    }

    /// Skills that fit a question, `limit` at most, of the registries that the tenant allows.
    ///
    /// # Errors
    ///
    /// If the question or the limit is none, the policy allows no registry, or none answers.
    pub async fn find(
        &self,
        tenant: TenantId,
        policy: &Policy,
        query: &str,
        limit: usize,
    ) -> Result<Found, Error> {
        let query = crate::registry::one_line(query, MOST_QUERY + 1);
        if query.is_empty() || query.chars().count() > MOST_QUERY {
            return Err(Error::Invalid(format!(
                "a question has from 1 to {MOST_QUERY} characters: say in a few words what the \
                 skill should do"
            )));
        }
        if !(1..=MOST_FOUND).contains(&limit) {
            return Err(Error::Invalid(format!("`limit` must be from 1 to {MOST_FOUND}")));
        }
        if self.registries.iter().next().is_none() {
            // Nobody set any up: nothing is forbidden, and nothing is there.
            return Ok(Found::default());
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
        let key = Key::new(tenant, names, &query, limit);
        if let Some(found) = self.cache().get(&key) {
            return Ok(found);
        }

        let asked = allowed.len();
        let asking =
            allowed.into_iter().map(|registry| ask(registry, query.clone(), limit).boxed());
        let asking: Vec<BoxFuture<'static, _>> = asking.collect();
        // In the operator's order, so that of two that fit alike the first one's comes first.
        let answers: Vec<_> = stream::iter(asking).buffered(AT_ONCE).collect().await;
        let mut found = Found::default();
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
        best(&mut found.hits, limit);
        // Half an answer would be taken for a whole one.
        if found.failed.is_empty() {
            self.cache().put(key, found.clone());
        }
        Ok(found)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a registry finds, and its name.
async fn ask(
    registry: Arc<dyn Registry>,
    query: String,
    limit: usize,
) -> (String, Result<Vec<Hit>, Error>) {
    let name = registry.name().to_owned();
    let found = tokio::time::timeout(PATIENCE, registry.search(&query, limit)).await;
    let found = found.unwrap_or_else(|_| {
        let why = format!("it took longer than {} s", PATIENCE.as_secs());
        Err(Error::Unavailable { registry: name.clone(), why })
    });
    (name, found)
}

/// The best first, and no more than `limit`. What is no number is the worst.
fn best(hits: &mut Vec<Hit>, limit: usize) {
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
