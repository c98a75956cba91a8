//! Limit on the concurrent sends of one account (promise I10).
//!
//! A receiver that answers slowly, or not at all, occupies a slot until the timeout. Without a
//! limit, one tenant's receivers could occupy all slots, and every other tenant's replies would
//! wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use holdfast_types::AccountId;

/// Number of sends in progress for each account.
#[derive(Debug)]
pub struct SendSlots {
    most: usize,
    used: Mutex<HashMap<AccountId, usize>>,
}

/// One send of an account; released on drop.
#[derive(Debug)]
pub struct SendSlot {
    shares: Arc<SendSlots>,
    account: AccountId,
}

impl SendSlots {
    /// Limits each account to a quarter of the slots, and at least one.
    #[must_use]
    pub fn of(slots: usize) -> Arc<Self> {
        Arc::new(Self { most: (slots / 4).max(1), used: Mutex::default() })
    }

    /// Takes a slot for an account; `None` if the account has reached its limit.
    #[must_use]
    pub fn take(self: &Arc<Self>, account: AccountId) -> Option<SendSlot> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let count = used.entry(account).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(SendSlot { shares: Arc::clone(self), account })
    }
}

impl Drop for SendSlot {
    fn drop(&mut self) {
        let mut used = self.shares.used.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn an_account_has_a_quarter_and_leaves_the_rest_to_others() {
        let (shares, one, other) = (SendSlots::of(8), AccountId::generate(), AccountId::generate());

        let held: Vec<SendSlot> = (0..2).map_while(|_| shares.take(one)).collect();

        assert_eq!(held.len(), 2);
        assert!(shares.take(one).is_none());
        assert!(shares.take(other).is_some());
        drop(held);
        assert!(shares.take(one).is_some());
        assert!(shares.used.lock().unwrap().is_empty());
    }

    #[test]
    fn there_is_always_one() {
        assert!(SendSlots::of(1).take(AccountId::generate()).is_some());
    }
}
