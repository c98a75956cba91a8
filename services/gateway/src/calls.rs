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
    open: Arc<Budget<TenantId>>,
}

/// One open call. Dropping it ends the call.
#[derive(Debug)]
pub struct OpenCall {
    share: Option<BudgetShare<TenantId>>,
    open: Arc<Budget<TenantId>>,
}

impl CallLimiter {
    pub fn new() -> Self {
        Self { open: Budget::new(0, 0) }
    }

    /// Opens a call for a tenant, within limits in total and for one tenant, which may change. Its
    /// plan may allow it fewer than others.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] or [`Error::TooManyCalls`], depending on the limit that is reached.
    pub fn open(
        &self,
        tenant: TenantId,
        (most, most_of_one): (u32, u32),
        of_plan: Option<u32>,
    ) -> Result<OpenCall, Error> {
        self.open.set_limits(most.into(), most_of_one.into());
        let limit = of_plan.map_or(most_of_one, |most| most.min(most_of_one));
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
        let calls = CallLimiter::new();
        let (noisy, quiet) = (TenantId::generate(), TenantId::generate());

        let open = |tenant, of_plan| calls.open(tenant, (3, 2), of_plan);
        let held = [open(noisy, None).unwrap(), open(noisy, Some(9)).unwrap()];

        assert!(matches!(open(noisy, Some(9)), Err(Error::TooManyCalls { limit: 2 })));
        let other = open(quiet, None).unwrap();
        assert!(matches!(open(quiet, Some(1)), Err(Error::Full)));
        let raised = calls.open(quiet, (4, 2), None).unwrap();
        drop((held, raised));
        assert!(matches!(open(quiet, Some(1)), Err(Error::TooManyCalls { limit: 1 })));
        drop(other);
        assert_eq!(calls.open.used(), 0);
    }
}
