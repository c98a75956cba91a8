//! Limits on the concurrent sends of one account and of one tenant (promise I10).
//!
//! A receiver that answers slowly, or not at all, occupies a slot until the timeout. Without a
//! limit, one tenant's receivers could occupy all slots, and every other tenant's replies would
//! wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use holdfast_session::SendCapacity;
use holdfast_types::{AccountId, TenantId};

/// Number of sends in progress for each account.
#[derive(Debug)]
pub struct SendSlots {
    slots: usize,
    used: Mutex<HashMap<(TenantId, AccountId), usize>>,
}

/// One send of an account; released on drop.
#[derive(Debug)]
pub struct SendSlot {
    slots: Arc<SendSlots>,
    account: (TenantId, AccountId),
}

impl SendSlots {
    /// Limits each account to a quarter of the slots, and at least one. The last quarter of the
    /// slots is for tenants that use less than a quarter.
    #[must_use]
    pub fn of(slots: usize) -> Arc<Self> {
        Arc::new(Self { slots, used: Mutex::default() })
    }

    /// Returns what can be sent with this number of free slots.
    #[must_use]
    pub fn capacity(&self, free: usize) -> SendCapacity {
        let count = |slots: usize| i64::try_from(slots).unwrap_or(i64::MAX);
        let used = self.used();
        SendCapacity {
            slots: count(free),
            per_account: count(self.share()),
            per_tenant: count(self.share()),
            reserved: count(self.reserved()),
            elsewhere: Vec::new(),
            used: used
                .iter()
                .map(|((tenant, account), n)| (*tenant, *account, count(*n)))
                .collect(),
        }
    }

    /// Counts a send of an account.
    #[must_use]
    pub fn take(self: &Arc<Self>, tenant: TenantId, account: AccountId) -> SendSlot {
        *self.used().entry((tenant, account)).or_default() += 1;
        SendSlot { slots: Arc::clone(self), account: (tenant, account) }
    }

    fn share(&self) -> usize {
        (self.slots / 4).max(1)
    }

    const fn reserved(&self) -> usize {
        self.slots / 4
    }

    fn used(&self) -> MutexGuard<'_, HashMap<(TenantId, AccountId), usize>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendSlot {
    /// Whether replies may wait for this slot although others are free: the account has no further
    /// one, or only the reserved ones are free.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let used = self.slots.used();
        used.get(&self.account).is_some_and(|count| *count >= self.slots.share())
            || used.values().sum::<usize>() + self.slots.reserved() >= self.slots.slots
    }
}

impl Drop for SendSlot {
    fn drop(&mut self) {
        let mut used = self.slots.used();
        if let Some(count) = used.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                used.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_may_use_a_quarter_and_at_least_one() {
        let (tenant, account) = (TenantId::generate(), AccountId::generate());
        let slots = SendSlots::of(8);

        let first = slots.take(tenant, account);
        assert!(!first.is_awaited());
        let second = slots.take(tenant, account);

        assert!(second.is_awaited());
        let used = vec![(tenant, account, 2)];
        let capacity = SendCapacity {
            per_account: 2,
            per_tenant: 2,
            reserved: 2,
            used,
            ..SendCapacity::slots(6)
        };
        assert_eq!(slots.capacity(6), capacity);
        drop((first, second));
        assert!(slots.capacity(8).used.is_empty());
        assert_eq!(SendSlots::of(1).capacity(1), SendCapacity::slots(1));
    }

    #[test]
    fn the_last_slot_before_the_reserved_ones_is_awaited() {
        let (tenant, slots) = (TenantId::generate(), SendSlots::of(8));
        let mut taken: Vec<_> = (0..5).map(|_| slots.take(tenant, AccountId::generate())).collect();
        assert!(!taken[0].is_awaited());

        taken.push(slots.take(tenant, AccountId::generate()));

        assert!(taken[0].is_awaited());
    }
}
