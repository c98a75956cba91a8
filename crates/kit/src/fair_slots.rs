//! Slots that several owners share fairly: commands, windows, child processes.
//!
//! A free slot goes to the waiting owner that holds the fewest, so an owner with many requests
//! waits behind one with few. The last quarter of the slots, one at least, is for owners that hold
//! less than a quarter, so that somebody new need not wait until a busy owner is done.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

pub struct FairSlots<K: Hash + Eq + Clone> {
    total: usize,
    state: Mutex<SlotState<K>>,
}

struct SlotState<K: Hash + Eq + Clone> {
    free: usize,
    held: HashMap<K, usize>,
    /// In the order of their requests.
    waiting: VecDeque<Waiter<K>>,
}

struct Waiter<K: Hash + Eq + Clone> {
    owner: K,
    granted: oneshot::Sender<FairSlot<K>>,
}

/// One slot of an owner, free again when it is dropped.
pub struct FairSlot<K: Hash + Eq + Clone> {
    slots: Option<Arc<FairSlots<K>>>,
    owner: K,
}

impl<K: Hash + Eq + Clone> FairSlots<K> {
    /// At least one slot.
    pub fn new(total: usize) -> Arc<Self> {
        let total = total.max(1);
        let state = SlotState { free: total, held: HashMap::new(), waiting: VecDeque::new() };
        Arc::new(Self { total, state: Mutex::new(state) })
    }

    /// Waits for a slot. Dropping the future gives the place in the queue up.
    pub async fn acquire(self: &Arc<Self>, owner: K) -> FairSlot<K> {
        let slot = self.enqueue(owner.clone());
        self.grant();
        // No error: the queue lives as long as `self`, and a waiter leaves it with its slot.
        slot.await.unwrap_or(FairSlot { slots: None, owner })
    }

    fn enqueue(&self, owner: K) -> oneshot::Receiver<FairSlot<K>> {
        let (granted, slot) = oneshot::channel();
        let mut state = self.lock();
        state.waiting.retain(|waiter| !waiter.granted.is_closed());
        state.waiting.push_back(Waiter { owner, granted });
        slot
    }

    /// Gives free slots to the owners that wait.
    fn grant(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let Some(next) = state.next(self.total) else { return };
            let Some(waiter) = state.waiting.remove(next) else { return };
            if waiter.granted.is_closed() {
                continue;
            }
            state.free -= 1;
            *state.held.entry(waiter.owner.clone()).or_default() += 1;
            drop(state);
            let slot = FairSlot { slots: Some(Arc::clone(self)), owner: waiter.owner };
            // A waiter that is gone by now drops the slot, which grants it to another.
            drop(waiter.granted.send(slot));
        }
    }

    fn release(self: &Arc<Self>, owner: &K) {
        let mut state = self.lock();
        state.free += 1;
        if let Some(held) = state.held.get_mut(owner) {
            *held -= 1;
            if *held == 0 {
                state.held.remove(owner);
            }
        }
        drop(state);
        self.grant();
    }

    fn lock(&self) -> MutexGuard<'_, SlotState<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone> SlotState<K> {
    /// Returns the index of the waiter that gets the next free slot.
    fn next(&self, total: usize) -> Option<usize> {
        let share = (total / 4).max(1);
        let reserved = share.min(total - 1);
        let held = |waiter: &Waiter<K>| self.held.get(&waiter.owner).copied().unwrap_or(0);
        let may_take = |held| self.free > 0 && (held < share || self.free > reserved);
        let waiting = self.waiting.iter().enumerate().map(|(at, waiter)| (held(waiter), at));
        let (held, at) = waiting.min()?;
        may_take(held).then_some(at)
    }
}

impl<K: Hash + Eq + Clone> Drop for FairSlot<K> {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.release(&self.owner);
        }
    }
}

impl<K: Hash + Eq + Clone> fmt::Debug for FairSlots<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairSlots").field("total", &self.total).finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone> fmt::Debug for FairSlot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairSlot").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Poll};

    use super::*;

    /// Polls a future once.
    async fn now<F: Future>(future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn a_busy_owner_leaves_room_for_a_new_one() {
        let slots = FairSlots::new(8);
        let mut held = Vec::new();
        while let Some(slot) = now(slots.acquire("busy")).await {
            held.push(slot);
        }

        assert_eq!(held.len(), 6);
        let new = now(slots.acquire("new")).await;
        assert!(new.is_some());
        assert!(now(slots.acquire("busy")).await.is_none());
    }

    #[tokio::test]
    async fn a_free_slot_goes_to_the_owner_with_the_fewest() {
        let slots = FairSlots::new(2);
        let first = slots.acquire("busy").await;
        let second = slots.acquire("other").await;
        let mut again = pin!(slots.acquire("busy"));
        assert!(now(again.as_mut()).await.is_none());
        let mut new = pin!(slots.acquire("new"));
        assert!(now(new.as_mut()).await.is_none());

        drop(second);

        assert!(now(again.as_mut()).await.is_none());
        let new = now(new.as_mut()).await;
        assert!(new.is_some());
        drop((first, new));
        assert!(now(again.as_mut()).await.is_some());
        assert_eq!(slots.lock().free, 2);
        assert!(slots.lock().held.is_empty());
    }

    #[tokio::test]
    async fn who_stops_waiting_takes_no_slot() {
        let slots = FairSlots::new(1);
        let held = slots.acquire("a").await;
        assert!(now(slots.acquire("b")).await.is_none());

        drop(held);

        assert!(now(slots.acquire("c")).await.is_some());
    }
}
