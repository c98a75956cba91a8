//! Queue of firings to deliver: one queue per tenant, in turns.
//!
//! Tenants take turns with one part of their firings each, and no tenant has two parts in progress.
//! However many firings one tenant has, another's are delivered as soon as a delivery slot is free.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    time::Duration,
};

use holdfast_schedule::store::Firing;
use holdfast_types::TenantId;
use tokio::time::Instant;

use crate::clock::ClaimedBatch;

/// Maximum number of firings in one part.
const MAX_PART_SIZE: usize = 1_000;

/// Returns the maximum size of a part by how many replicas died while delivering its firings.
///
/// One of the firings may be the cause, so the parts shrink until it is delivered alone.
const fn max_part_size(lost: i32) -> usize {
    match lost {
        ..=1 => MAX_PART_SIZE,
        2 => 100,
        3 => 10,
        _ => 1,
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    tenants: HashMap<TenantId, TenantQueue>,
    /// Tenants with waiting firings and no part in progress.
    turns: VecDeque<TenantId>,
}

#[derive(Debug, Default)]
struct TenantQueue {
    firings: BTreeMap<PartGroup, VecDeque<(Firing, Instant)>>,
    /// Whether a part is in progress.
    is_busy: bool,
}

/// Property by which firings are grouped into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartGroup {
    is_again: bool,
    /// Maximum size of a part.
    max_size: usize,
}

impl PartGroup {
    const fn of(firing: &Firing) -> Self {
        Self { is_again: firing.attempt > 1, max_size: max_part_size(firing.lost) }
    }
}

/// Firings of one tenant that are delivered together.
#[derive(Debug)]
pub struct Part {
    pub tenant: TenantId,
    pub firings: Vec<Firing>,
    /// Whether they were handed out before.
    pub is_again: bool,
    /// Time when the first of them was claimed.
    at: Instant,
}

impl Part {
    /// Returns the time since the first firing was claimed.
    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

impl Queue {
    pub fn add(&mut self, handed: ClaimedBatch) {
        for firing in handed.firings {
            let tenant = firing.id.tenant;
            let waiting = self.tenants.entry(tenant).or_default();
            if waiting.firings.is_empty() && !waiting.is_busy {
                self.turns.push_back(tenant);
            }
            waiting
                .firings
                .entry(PartGroup::of(&firing))
                .or_default()
                .push_back((firing, handed.at));
        }
    }

    /// Takes the next tenant's part: the group of the firing that has waited longest. Call
    /// [`done`](Self::done) when it is delivered.
    pub fn take(&mut self) -> Option<Part> {
        let tenant = self.turns.pop_front()?;
        let waiting = self.tenants.get_mut(&tenant)?;
        waiting.is_busy = true;
        let first = |of: &VecDeque<(Firing, Instant)>| of.front().map(|(_, at)| *at);
        let (alike, at) = waiting
            .firings
            .iter()
            .filter_map(|(alike, firings)| Some((*alike, first(firings)?)))
            .min_by_key(|(alike, at)| (*at, Reverse(alike.max_size)))?;
        let waits = waiting.firings.get_mut(&alike)?;
        let firings =
            waits.drain(..alike.max_size.min(waits.len())).map(|(firing, _)| firing).collect();
        if waits.is_empty() {
            waiting.firings.remove(&alike);
        }
        Some(Part { tenant, firings, is_again: alike.is_again, at })
    }

    /// Marks the tenant's part as delivered.
    pub fn done(&mut self, tenant: TenantId) {
        let Entry::Occupied(mut waiting) = self.tenants.entry(tenant) else { return };
        if waiting.get().firings.is_empty() {
            waiting.remove();
            return;
        }
        waiting.get_mut().is_busy = false;
        self.turns.push_back(tenant);
    }

    /// Removes and returns all waiting firings.
    pub fn drain(&mut self) -> Vec<Firing> {
        self.turns.clear();
        let all = self.tenants.values_mut().map(|waiting| std::mem::take(&mut waiting.firings));
        all.flat_map(BTreeMap::into_values).flatten().map(|(firing, _)| firing).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use holdfast_schedule::store::{FiringRef, JobKind, Origin, Slot};
    use holdfast_types::JobId;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    pub fn tenant(number: u128) -> TenantId {
        Uuid::from_u128(number).into()
    }

    /// So many firings of a tenant, each of a job of its own.
    pub fn firings(of: u128, count: u128) -> Vec<Firing> {
        let (at, kind) = (Timestamp::UNIX_EPOCH, JobKind::At);
        let job = |number| JobId::from(Uuid::from_u128(number));
        let id = |number| FiringRef { tenant: tenant(of), job: job(number), slot: Slot::at(at) };
        (0..count)
            .map(|number| Firing {
                id: id(number),
                kind,
                origin: Origin::Due,
                at,
                attempt: 1,
                lost: 0,
            })
            .collect()
    }

    fn handed(of: u128, count: u128) -> ClaimedBatch {
        ClaimedBatch { firings: firings(of, count), at: Instant::now() }
    }

    fn taken(queue: &mut Queue) -> Option<(TenantId, usize)> {
        queue.take().map(|part| (part.tenant, part.firings.len()))
    }

    #[test]
    fn what_came_last_is_the_next_to_go_if_it_is_another_tenants() {
        let mut queue = Queue::default();
        queue.add(handed(1, 2_500));
        assert_eq!(taken(&mut queue), Some((tenant(1), MAX_PART_SIZE)));
        queue.add(handed(2, 1));

        assert_eq!(taken(&mut queue), Some((tenant(2), 1)), "the other is at its first part");
        assert_eq!(taken(&mut queue), None, "of neither two parts are under way");
        queue.done(tenant(2));
        queue.done(tenant(1));
        assert_eq!(taken(&mut queue), Some((tenant(1), MAX_PART_SIZE)));
        queue.add(handed(3, 1));
        queue.done(tenant(1));
        assert_eq!(taken(&mut queue), Some((tenant(3), 1)));
        assert_eq!(taken(&mut queue), Some((tenant(1), 500)));
        queue.done(tenant(1));
        assert_eq!(taken(&mut queue), None);
    }

    #[test]
    fn what_was_handed_out_before_goes_apart_and_what_was_lost_more_often_in_smaller_parts() {
        let mut queue = Queue::default();
        let again = |count, lost| {
            let firings = firings(1, count).into_iter();
            firings.map(|firing| Firing { attempt: 7, lost, ..firing }).collect()
        };
        let mut all =
            [firings(1, 3), again(500, 0), again(500, 1), again(150, 2), again(11, 3), again(2, 4)]
                .concat();
        // However they are mixed.
        all.sort_unstable_by_key(|firing| (firing.id.job, firing.lost));
        queue.add(ClaimedBatch { firings: all, at: Instant::now() });

        let mut parts = Vec::new();
        while let Some(part) = queue.take() {
            parts.push((part.firings.len(), part.is_again));
            queue.done(part.tenant);
        }

        let again = [1_000, 100, 50, 10, 1, 1, 1].map(|count| (count, true));
        assert_eq!(parts, [[(3, false)].as_slice(), &again].concat());
    }

    #[test]
    fn what_is_given_back_is_what_is_not_under_way() {
        let mut queue = Queue::default();
        queue.add(handed(1, 1_001));
        queue.add(handed(2, 2));
        assert_eq!(taken(&mut queue), Some((tenant(1), MAX_PART_SIZE)));

        let mut back = queue.drain();

        back.sort_unstable_by_key(|firing| firing.id);
        assert_eq!(back, [firings(1, 1_001).split_off(MAX_PART_SIZE), firings(2, 2)].concat());
        queue.done(tenant(1));
        assert_eq!(taken(&mut queue), None);
    }
}
