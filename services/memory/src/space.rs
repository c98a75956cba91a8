//! How a tenant is searched and by whom, remembered for some seconds.
//!
//! **What can go wrong.** Another process changes the model or makes the tenant's own table: this
//! one goes on as before for [`FRESH`]. What it searches is there for longer than that: the vectors
//! of a former model, and its table, are taken away a minute after the change.

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
        search::{self, Seen},
        spaces::{self, Space},
    },
    who::Who,
};

/// For how long what was read is believed.
pub const FRESH: Duration = Duration::from_secs(5);

/// For how long it is believed that there is much: to count much takes longer than to search it.
const MUCH: Duration = Duration::from_secs(60);

/// Of more units than these a word's rarity is not told apart: holders are counted up to 1,001.
pub const COUNTED: i64 = 20_000;

/// From so many units on that hold a term it is remembered how many they are.
const MANY: i32 = 100;

/// The most that is remembered, of views and of a view's terms; beyond it all is read again.
const MOST: usize = 10_000;

type Known = HashMap<(TenantId, Uuid, String), (Instant, Arc<View>)>;

/// What part of what is still compared whole is few, and how many are at the most: each unit is looked
/// up by its keys then, which takes as long as to compare several that lie together.
const FEW: i64 = 8;
const MOST_FEW: i64 = 2_500;

/// How someone's things are searched.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// How the tenant is searched; `None` until it has a vector.
    pub space: Option<Space>,
    /// Who wrote what is seen, and how much there is of it.
    pub seen: Seen,
    /// When that was counted.
    counted: Option<Instant>,
    /// Where there is much: how many units hold a term, of the terms that were asked for since.
    holders: Option<Arc<Mutex<HashMap<String, i32>>>>,
}

impl View {
    /// How many units hold each of these terms, where it is known.
    pub fn held_by(&self, terms: &[String]) -> Vec<Option<i32>> {
        let Some(holders) = self.holders() else { return Vec::new() };
        terms.iter().map(|term| holders.get(term).copied()).collect()
    }

    /// So many units hold each of these terms. It is remembered of those that many hold: few are soon
    /// counted, and each new one counts.
    pub fn learn(&self, terms: &[String], held_by: &[i32]) {
        let Some(mut holders) = self.holders() else { return };
        if holders.len() >= MOST {
            holders.clear();
        }
        let known = terms.iter().cloned().zip(held_by.iter().copied());
        holders.extend(known.filter(|(_, units)| *units >= MANY));
    }

    fn holders(&self) -> Option<MutexGuard<'_, HashMap<String, i32>>> {
        let holders = self.holders.as_ref()?;
        Some(holders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What was read.
#[derive(Debug, Clone)]
pub struct Views {
    pools: Pools,
    exact_up_to: i64,
    known: Arc<Mutex<Known>>,
}

impl Views {
    /// Nothing yet. Up to so many vectors are searched exactly, whatever index there is.
    pub fn new(pools: Pools, exact_up_to: u32) -> Self {
        Self { pools, exact_up_to: exact_up_to.into(), known: Arc::default() }
    }

    /// How `who`'s things are searched.
    pub async fn of(&self, tenant: TenantId, who: &Who) -> sqlx::Result<Arc<View>> {
        let key = (tenant, who.agent, who.user.clone());
        let before = self.known().get(&key).cloned();
        if let Some((read, view)) = &before
            && read.elapsed() < FRESH
        {
            return Ok(Arc::clone(view));
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let space = spaces::get(&mut tx).await?;
        let view = match before.filter(|(_, before)| self.is_much(before, space.as_ref())) {
            Some((_, before)) => View { space, ..View::clone(&before) },
            None => {
                let model = space.as_ref().map_or("", |space| space.model.as_str());
                let most = COUNTED.max(self.exact_up_to + 1);
                let seen = search::seen(&mut tx, who, model, (most, self.exact_up_to)).await?;
                let holders = (seen.vectors > self.exact_up_to).then(Arc::default);
                View { space, seen, counted: Some(Instant::now()), holders }
            }
        };
        tx.finish_reading();
        let view = Arc::new(view);
        let mut known = self.known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, (Instant::now(), Arc::clone(&view)));
        Ok(view)
    }

    /// Whether it was much not long ago, of the same model.
    fn is_much(&self, before: &View, space: Option<&Space>) -> bool {
        let same = before.space.as_ref().map(|space| &space.model) == space.map(|now| &now.model);
        same && before.seen.vectors > self.exact_up_to
            && before.counted.is_some_and(|counted| counted.elapsed() < MUCH)
    }

    /// The table to search for these kinds by index; `None` is the exact scan.
    pub fn own(&self, view: &View, kinds: &[i16]) -> Option<String> {
        if view.seen.vectors_of(kinds) <= self.exact_up_to {
            return None;
        }
        view.space.as_ref().and_then(|space| space.own.clone())
    }

    /// Of so many units that filters leave of more, each is looked at; among more than that an index
    /// finds enough.
    pub fn few(&self) -> i64 {
        (self.exact_up_to / FEW).min(MOST_FEW)
    }

    /// Something of a tenant's changed: it is read again.
    pub fn forget(&self, tenant: TenantId) {
        self.known().retain(|(of, ..), _| *of != tenant);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
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
        view.learn(&terms(&["tea", "zebra", "cup"]), &[MANY, 0, MANY - 1]);

        assert_eq!(view.held_by(&terms(&["cup", "tea", "zebra"])), [None, Some(MANY), None]);
    }

    #[test]
    fn where_there_is_little_all_is_counted() {
        let view = View::default();
        view.learn(&terms(&["tea"]), &[MANY]);

        assert_eq!(view.held_by(&terms(&["tea"])), []);
    }
}
