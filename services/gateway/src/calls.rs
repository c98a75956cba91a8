//! Limits on open calls, per tenant and in total.
//!
//! A stream may be open for minutes and holds a subscription; without a limit per tenant, one
//! tenant could use up the total.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use holdfast_types::TenantId;

use crate::Error;

#[derive(Debug)]
pub struct CallLimiter {
    max_total: u32,
    max_per_tenant: u32,
    open: Mutex<CallCounts>,
}

#[derive(Debug, Default)]
struct CallCounts {
    total: u32,
    by_tenant: HashMap<TenantId, u32>,
}

/// One open call. Dropping it ends the call.
#[derive(Debug)]
pub struct OpenCall {
    tenant: TenantId,
    calls: Arc<CallLimiter>,
}

impl CallLimiter {
    /// Limits in total, and for one tenant.
    pub fn new(most: u32, most_of_one: u32) -> Self {
        Self { max_total: most, max_per_tenant: most_of_one, open: Mutex::default() }
    }

    /// Opens a call for a tenant.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] or [`Error::TooManyCalls`], depending on the limit that is reached.
    pub fn open(self: &Arc<Self>, tenant: TenantId) -> Result<OpenCall, Error> {
        let mut open = self.lock();
        if open.total >= self.max_total {
            return Err(Error::Full);
        }
        let of_one = open.by_tenant.entry(tenant).or_default();
        if *of_one >= self.max_per_tenant {
            return Err(Error::TooManyCalls { limit: self.max_per_tenant });
        }
        *of_one += 1;
        open.total += 1;
        metrics::gauge!("holdfast_gateway_open_calls").set(f64::from(open.total));
        drop(open);
        Ok(OpenCall { tenant, calls: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, CallCounts> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut open = self.calls.lock();
        open.total = open.total.saturating_sub(1);
        if let Some(of_one) = open.by_tenant.get_mut(&self.tenant) {
            *of_one = of_one.saturating_sub(1);
            if *of_one == 0 {
                open.by_tenant.remove(&self.tenant);
            }
        }
        metrics::gauge!("holdfast_gateway_open_calls").set(f64::from(open.total));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_cannot_take_the_place_of_all() {
        let calls = Arc::new(CallLimiter::new(3, 2));
        let (noisy, quiet) = (TenantId::generate(), TenantId::generate());

        let held = [calls.open(noisy).unwrap(), calls.open(noisy).unwrap()];

        assert!(matches!(calls.open(noisy), Err(Error::TooManyCalls { limit: 2 })));
        let other = calls.open(quiet).unwrap();
        assert!(matches!(calls.open(quiet), Err(Error::Full)));
        drop((held, other));
        assert_eq!(calls.lock().total, 0);
        assert!(calls.lock().by_tenant.is_empty());
    }
}
