//! Budget that several owners share: an amount in total, and less for each owner.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Budget of bytes, calls or the like. Requests beyond it are refused, not queued.
#[derive(Debug)]
pub struct Budget<K> {
    used: Mutex<UsedAmounts<K>>,
}

#[derive(Debug)]
struct UsedAmounts<K> {
    max_total: u64,
    max_per_owner: u64,
    total: u64,
    by_owner: HashMap<K, u64>,
}

/// Reason why a share cannot grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetSpent {
    /// The owners together have used up the budget.
    Total,
    /// The owner has used up its part.
    Owner,
}

/// Part of a budget, given back when it is dropped.
pub struct BudgetShare<K: Hash + Eq> {
    budget: Arc<Budget<K>>,
    owner: K,
    amount: AtomicU64,
}

impl<K: Hash + Eq + Clone> Budget<K> {
    pub fn new(max_total: u64, max_per_owner: u64) -> Arc<Self> {
        let by_owner = HashMap::new();
        let used = UsedAmounts { max_total, max_per_owner, total: 0, by_owner };
        Arc::new(Self { used: Mutex::new(used) })
    }

    /// Returns an empty share for an owner.
    pub fn share(self: &Arc<Self>, owner: K) -> BudgetShare<K> {
        BudgetShare { budget: Arc::clone(self), owner, amount: AtomicU64::new(0) }
    }
}

impl<K> Budget<K> {
    /// Amount that all owners together use.
    pub fn used(&self) -> u64 {
        self.lock().total
    }

    /// Changes the limits. What is used beyond them stays until it is given back.
    pub fn set_limits(&self, max_total: u64, max_per_owner: u64) {
        let mut used = self.lock();
        used.max_total = max_total;
        used.max_per_owner = max_per_owner;
    }

    fn lock(&self) -> MutexGuard<'_, UsedAmounts<K>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone> BudgetShare<K> {
    /// Adds an amount to the share.
    ///
    /// # Errors
    ///
    /// If the budget has less left; the share is unchanged then.
    pub fn grow(&self, amount: u64) -> Result<(), BudgetSpent> {
        self.grow_to(amount, u64::MAX)
    }

    /// As [`grow`](Self::grow), with another limit for this owner, if it is lower.
    pub fn grow_to(&self, amount: u64, max_of_owner: u64) -> Result<(), BudgetSpent> {
        let mut used = self.budget.lock();
        let total = used.total.saturating_add(amount);
        if total > used.max_total {
            return Err(BudgetSpent::Total);
        }
        let of_owner = used.by_owner.get(&self.owner).copied().unwrap_or(0).saturating_add(amount);
        if of_owner > used.max_per_owner.min(max_of_owner) {
            return Err(BudgetSpent::Owner);
        }
        used.total = total;
        used.by_owner.insert(self.owner.clone(), of_owner);
        drop(used);
        self.amount.fetch_add(amount, Ordering::Relaxed);
        Ok(())
    }
}

impl<K: Hash + Eq> Drop for BudgetShare<K> {
    fn drop(&mut self) {
        let amount = *self.amount.get_mut();
        if amount == 0 {
            return;
        }
        let mut used = self.budget.lock();
        used.total -= amount;
        if let Some(of_owner) = used.by_owner.get_mut(&self.owner) {
            *of_owner -= amount;
            if *of_owner == 0 {
                used.by_owner.remove(&self.owner);
            }
        }
    }
}

impl<K: Hash + Eq + fmt::Debug> fmt::Debug for BudgetShare<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetShare")
            .field("owner", &self.owner)
            .field("amount", &self.amount)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_cannot_use_up_what_all_share() {
        let budget = Budget::new(30, 20);
        let (noisy, quiet) = (budget.share("noisy"), budget.share("quiet"));

        noisy.grow(15).unwrap();
        assert_eq!(noisy.grow(6), Err(BudgetSpent::Owner));
        noisy.grow(5).unwrap();
        assert_eq!(budget.share("noisy").grow(1), Err(BudgetSpent::Owner));
        quiet.grow(10).unwrap();
        assert_eq!(quiet.grow(1), Err(BudgetSpent::Total));

        drop(noisy);
        quiet.grow(10).unwrap();
        drop(quiet);
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().by_owner.is_empty());
    }
}
