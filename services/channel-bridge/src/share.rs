//! Limit on the concurrent sends of one account (promise I10).
//!
//! A receiver that answers slowly, or not at all, occupies a slot until the timeout. Without a
//! limit, one tenant's receivers could occupy all slots, and every other tenant's replies would
//! wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use holdfast_session::SendCapacity;
use holdfast_types::AccountId;

/// Number of sends in progress for each account.
#[derive(Debug)]
pub struct SendSlots {
    per_account: i64,
    used: Mutex<HashMap<AccountId, i64>>,
}

/// One send of an account; released on drop.
#[derive(Debug)]
pub struct SendSlot {
    slots: Arc<SendSlots>,
    account: AccountId,
}

impl SendSlots {
    /// Limits each account to a quarter of the slots, and at least one.
    #[must_use]
    pub fn of(slots: usize) -> Arc<Self> {
        let per_account = i64::try_from((slots / 4).max(1)).unwrap_or(i64::MAX);
        Arc::new(Self { per_account, used: Mutex::default() })
    }

    /// Returns what can be sent with this number of free slots.
    #[must_use]
    pub fn capacity(&self, free: usize) -> SendCapacity {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        SendCapacity {
            slots: i64::try_from(free).unwrap_or(i64::MAX),
            per_account: self.per_account,
            used: used.iter().map(|(account, count)| (*account, *count)).collect(),
        }
    }

    /// Counts a send of an account.
    #[must_use]
    pub fn take(self: &Arc<Self>, account: AccountId) -> SendSlot {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used.entry(account).or_default() += 1;
        SendSlot { slots: Arc::clone(self), account }
    }
}

impl SendSlot {
    /// Whether the account has no further slot: its other replies wait for this one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        let used = self.slots.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.get(&self.account).is_some_and(|count| *count >= self.slots.per_account)
    }
}

impl Drop for SendSlot {
    fn drop(&mut self) {
        let mut used = self.slots.used.lock().unwrap_or_else(PoisonError::into_inner);
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
        let (slots, account) = (SendSlots::of(8), AccountId::generate());

        let first = slots.take(account);
        assert!(!first.is_last());
        let second = slots.take(account);

        assert!(second.is_last());
        let used = vec![(account, 2)];
        assert_eq!(slots.capacity(6), SendCapacity { slots: 6, per_account: 2, used });
        drop((first, second));
        assert!(slots.capacity(8).used.is_empty());
        assert_eq!(SendSlots::of(1).capacity(1), SendCapacity::slots(1));
    }
}
