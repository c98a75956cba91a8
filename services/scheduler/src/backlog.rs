//! What this replica has in hand: how much, and whose.
//!
//! When there is no room for more, there still is for tenants that have little of it: what is due to
//! one does not wait until what another has by the thousand is delivered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use holdfast_jobs::Firing;
use holdfast_types::TenantId;

/// Firings that this replica has been handed and has not delivered. Cloning shares the count.
#[derive(Debug, Clone)]
pub struct Backlog {
    held: Arc<Mutex<Held>>,
    most: usize,
}

#[derive(Debug, Default)]
struct Held {
    count: usize,
    tenants: HashMap<TenantId, usize>,
}

impl Backlog {
    /// None yet, and so many at most.
    pub fn of(most: u32) -> Self {
        Self { held: Arc::default(), most: usize::try_from(most).unwrap_or(usize::MAX) }
    }

    /// How many more there may be, beside those that are about to be added.
    pub fn room(&self, more: usize) -> u32 {
        let room = self.most.saturating_sub(self.held().count).saturating_sub(more);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// The tenants that have as much of it as the average, or more. Whoever has less gets no further
    /// than that, so all of it stays about as large as it may be.
    pub fn crowd(&self) -> Vec<TenantId> {
        let held = self.held();
        let (all, tenants) = (held.count, held.tenants.len());
        let crowd = held.tenants.iter().filter(|(_, count)| **count * tenants >= all);
        crowd.map(|(tenant, _)| *tenant).collect()
    }

    /// So many more are in hand.
    pub fn add(&self, firings: &[Firing]) {
        let mut held = self.held();
        held.count += firings.len();
        for firing in firings {
            *held.tenants.entry(firing.id.tenant).or_default() += 1;
        }
    }

    /// These are off our hands.
    pub fn done(&self, firings: &[Firing]) {
        let mut held = self.held();
        held.count = held.count.saturating_sub(firings.len());
        for firing in firings {
            let tenant = firing.id.tenant;
            match held.tenants.get_mut(&tenant) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(held.tenants.remove(&tenant)),
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::{firings, tenant};

    #[test]
    fn a_tenant_that_has_less_than_the_average_is_no_crowd() {
        let backlog = Backlog::of(100);
        backlog.add(&firings(1, 90));
        assert_eq!(backlog.crowd(), [tenant(1)], "one alone is one");

        backlog.add(&firings(2, 10));

        assert_eq!((backlog.room(0), backlog.crowd()), (0, vec![tenant(1)]));
        backlog.done(&firings(1, 90));
        assert_eq!((backlog.room(20), backlog.crowd()), (70, vec![tenant(2)]));
        backlog.done(&firings(2, 10));
        assert_eq!((backlog.room(0), backlog.crowd()), (100, vec![]));
    }
}
