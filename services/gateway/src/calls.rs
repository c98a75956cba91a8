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
pub struct Calls {
    most: u32,
    most_of_one: u32,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: u32,
    of: HashMap<TenantId, u32>,
}

/// One open call. Dropping it ends the call.
#[derive(Debug)]
pub struct Call {
    tenant: TenantId,
    calls: Arc<Calls>,
}

impl Calls {
    /// Limits in total, and for one tenant.
    pub fn new(most: u32, most_of_one: u32) -> Self {
        Self { most, most_of_one, open: Mutex::default() }
    }

    /// Opens a call for a tenant.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] or [`Error::TooManyCalls`], depending on the limit that is reached.
    pub fn open(self: &Arc<Self>, tenant: TenantId) -> Result<Call, Error> {
        let mut open = self.lock();
        if open.all >= self.most {
            return Err(Error::Full);
        }
        let of_one = open.of.entry(tenant).or_default();
        if *of_one >= self.most_of_one {
            return Err(Error::TooManyCalls { limit: self.most_of_one });
        }
        *of_one += 1;
        open.all += 1;
        metrics::gauge!("holdfast_gateway_open_calls").set(f64::from(open.all));
        drop(open);
        Ok(Call { tenant, calls: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut open = self.calls.lock();
        open.all = open.all.saturating_sub(1);
        if let Some(of_one) = open.of.get_mut(&self.tenant) {
            *of_one = of_one.saturating_sub(1);
            if *of_one == 0 {
                open.of.remove(&self.tenant);
            }
        }
        metrics::gauge!("holdfast_gateway_open_calls").set(f64::from(open.all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_cannot_take_the_place_of_all() {
        let calls = Arc::new(Calls::new(3, 2));
        let (noisy, quiet) = (TenantId::generate(), TenantId::generate());

        let held = [calls.open(noisy).unwrap(), calls.open(noisy).unwrap()];

        assert!(matches!(calls.open(noisy), Err(Error::TooManyCalls { limit: 2 })));
        let other = calls.open(quiet).unwrap();
        assert!(matches!(calls.open(quiet), Err(Error::Full)));
        drop((held, other));
        assert_eq!(calls.lock().all, 0);
        assert!(calls.lock().of.is_empty());
    }
}
