//! Firings in progress on this replica, counted by tenant.
//!
//! When the backlog is full, tenants with few firings in it may still add some: one tenant's due
//! firings do not wait until another tenant's thousands are delivered.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_schedule::store::Firing;
use holdfast_types::TenantId;
use tokio::time::Instant;

/// Firings that this replica has claimed and not delivered yet. Clones share the count.
#[derive(Debug, Clone)]
pub struct Backlog {
    state: Arc<Mutex<BacklogState>>,
    max_firings: usize,
}

#[derive(Debug, Default)]
struct BacklogState {
    count: usize,
    tenants: HashMap<TenantId, usize>,
    /// Time and size of each claimed batch, oldest first.
    batches: VecDeque<(Instant, usize)>,
}

impl Backlog {
    /// Creates an empty backlog with a limit of `most` firings.
    pub fn new(most: u32) -> Self {
        Self { state: Arc::default(), max_firings: usize::try_from(most).unwrap_or(usize::MAX) }
    }

    /// Returns how many firings may still be claimed, besides `more` that are about to be added.
    pub fn room(&self, more: usize) -> u32 {
        let room = self.max_firings.saturating_sub(self.lock_state().count).saturating_sub(more);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Returns the tenants that have at least the average number of firings here. A tenant below
    /// the average can reach it but not exceed it, so the backlog stays near its limit.
    pub fn crowded_tenants(&self) -> Vec<TenantId> {
        let held = self.lock_state();
        let (all, tenants) = (held.count, held.tenants.len());
        let crowd = held.tenants.iter().filter(|(_, count)| **count * tenants >= all);
        crowd.map(|(tenant, _)| *tenant).collect()
    }

    /// Whether there are more than `count` firings, or the oldest batch is older than `age`.
    pub fn is_behind(&self, count: usize, age: Duration) -> bool {
        let held = self.lock_state();
        held.count > count || held.batches.front().is_some_and(|(at, _)| at.elapsed() > age)
    }

    /// Adds firings that were claimed at `at`.
    pub fn add(&self, firings: &[Firing], at: Instant) {
        let mut held = self.lock_state();
        held.count += firings.len();
        held.batches.push_back((at, firings.len()));
        for firing in firings {
            *held.tenants.entry(firing.id.tenant).or_default() += 1;
        }
    }

    /// Removes firings that were delivered or given back.
    pub fn done(&self, firings: &[Firing]) {
        let mut held = self.lock_state();
        held.count = held.count.saturating_sub(firings.len());
        let mut left = firings.len();
        while let Some((_, count)) = held.batches.front_mut() {
            if *count > left {
                *count -= left;
                break;
            }
            left -= *count;
            held.batches.pop_front();
        }
        for firing in firings {
            let tenant = firing.id.tenant;
            match held.tenants.get_mut(&tenant) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(held.tenants.remove(&tenant)),
            }
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, BacklogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::{firings, tenant};

    #[test]
    fn a_tenant_that_has_less_than_the_average_is_no_crowd() {
        let backlog = Backlog::new(100);
        let begun = Instant::now();
        backlog.add(&firings(1, 90), begun);
        assert_eq!(backlog.crowded_tenants(), [tenant(1)], "one alone is one");

        backlog.add(&firings(2, 10), begun);

        assert_eq!((backlog.room(0), backlog.crowded_tenants()), (0, vec![tenant(1)]));
        backlog.done(&firings(1, 90));
        assert_eq!((backlog.room(20), backlog.crowded_tenants()), (70, vec![tenant(2)]));
        backlog.done(&firings(2, 10));
        assert_eq!((backlog.room(0), backlog.crowded_tenants()), (100, vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_been_in_hand_for_long_is_behind_until_it_is_done() {
        let (backlog, second) = (Backlog::new(100), Duration::from_secs(1));
        backlog.add(&firings(1, 3), Instant::now());
        tokio::time::advance(second * 2).await;
        backlog.add(&firings(2, 5), Instant::now());

        assert!(backlog.is_behind(10, second), "three are old");
        backlog.done(&firings(1, 2));
        assert!(backlog.is_behind(10, second), "one is old");
        backlog.done(&firings(1, 2));
        assert!(!backlog.is_behind(10, second));
        assert!(backlog.is_behind(3, second), "four are many");
        backlog.done(&firings(2, 4));
        assert!(!backlog.is_behind(0, Duration::ZERO));
    }
}
