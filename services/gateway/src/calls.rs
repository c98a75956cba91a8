//! Limits on open calls, per tenant and in total.
//!
//! A stream may be open for minutes and holds a subscription; without a limit per tenant, one
//! tenant could use up the total.

use std::sync::Arc;

use holdfast_kit::{Budget, BudgetShare, BudgetSpent};
use holdfast_types::TenantId;

use crate::Error;

#[derive(Debug)]
pub struct CallLimiter {
    max_per_tenant: u32,
    open: Arc<Budget<TenantId>>,
}

/// One open call. Dropping it ends the call.
#[derive(Debug)]
pub struct OpenCall {
    share: Option<BudgetShare<TenantId>>,
    open: Arc<Budget<TenantId>>,
}

impl CallLimiter {
    /// Limits in total, and for one tenant.
    pub fn new(most: u32, most_of_one: u32) -> Self {
        Self { max_per_tenant: most_of_one, open: Budget::new(most.into(), most_of_one.into()) }
    }

    /// Opens a call for a tenant, whose plan may allow it fewer than others.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] or [`Error::TooManyCalls`], depending on the limit that is reached.
    pub fn open(&self, tenant: TenantId, of_plan: Option<u32>) -> Result<OpenCall, Error> {
        let limit = of_plan.map_or(self.max_per_tenant, |most| most.min(self.max_per_tenant));
        let share = self.open.share(tenant);
        share.grow_to(1, limit.into()).map_err(|spent| match spent {
            BudgetSpent::Total => Error::Full,
            BudgetSpent::Owner => Error::TooManyCalls { limit },
        })?;
        show(&self.open);
        Ok(OpenCall { share: Some(share), open: Arc::clone(&self.open) })
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        drop(self.share.take());
        show(&self.open);
    }
}

fn show(open: &Budget<TenantId>) {
    let open = u32::try_from(open.used()).unwrap_or(u32::MAX);
    metrics::gauge!("holdfast_gateway_open_calls").set(f64::from(open));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_cannot_take_the_place_of_all() {
        let calls = CallLimiter::new(3, 2);
        let (noisy, quiet) = (TenantId::generate(), TenantId::generate());

        let held = [calls.open(noisy, None).unwrap(), calls.open(noisy, Some(9)).unwrap()];

        assert!(matches!(calls.open(noisy, Some(9)), Err(Error::TooManyCalls { limit: 2 })));
        let other = calls.open(quiet, None).unwrap();
        assert!(matches!(calls.open(quiet, Some(1)), Err(Error::Full)));
        drop(held);
        assert!(matches!(calls.open(quiet, Some(1)), Err(Error::TooManyCalls { limit: 1 })));
        drop(other);
        assert_eq!(calls.open.used(), 0);
    }
}
