//! Turns of tenants at a connection pool.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use holdfast_types::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits how many requests of one tenant wait in the pool's queue, which is in the order of arrival.
///
/// Further ones wait here, behind their own tenant's. So the first request of another tenant has a few
/// before it, and not a thousand.
#[derive(Debug)]
pub(crate) struct TenantTurns {
    per_tenant: usize,
    /// Of tenants that have requests.
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// Turn of one request, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct TenantTurn<'t> {
    turns: &'t TenantTurns,
    tenant: TenantId,
    permit: Option<OwnedSemaphorePermit>,
}

impl TenantTurns {
    pub fn new(per_tenant: usize) -> Self {
        Self { per_tenant, tenants: Mutex::default() }
    }

    /// Waits for a turn. Dropping the future gives the place up.
    pub async fn take(&self, tenant: TenantId) -> TenantTurn<'_> {
        let mut turn = TenantTurn { turns: self, tenant, permit: None };
        let new = || Arc::new(Semaphore::new(self.per_tenant));
        let places = Arc::clone(self.lock().entry(tenant).or_insert_with(new));
        // No error: nobody closes it.
        turn.permit = places.acquire_owned().await.ok();
        turn
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<Semaphore>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TenantTurn<'_> {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut tenants = self.turns.lock();
        // Requests that wait or have a turn hold it, too.
        if tenants.get(&self.tenant).is_some_and(|places| Arc::strong_count(places) == 1) {
            tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_tenant_waits_for_its_own_requests_only() {
        let turns = TenantTurns::new(2);
        let (busy, quiet) = (TenantId::generate(), TenantId::generate());
        let at_once = async |tenant| timeout(Duration::ZERO, turns.take(tenant)).await.ok();

        let held = (turns.take(busy).await, turns.take(busy).await);
        assert!(at_once(busy).await.is_none());
        assert!(at_once(quiet).await.is_some());

        drop(held.0);
        assert!(at_once(busy).await.is_some());
        drop(held.1);
        assert!(turns.lock().is_empty());
    }
}
