//! Limits on processes and connections of MCP servers, for all tenants and for each.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use holdfast_types::TenantId;

use super::lock;

#[derive(Debug)]
pub(super) struct TenantSlots {
    limit: usize,
    limit_per_tenant: usize,
    /// What is limited, for errors: `servers run as processes`.
    what: &'static str,
    taken: Mutex<HashMap<TenantId, usize>>,
}

/// A slot of a tenant, released on drop.
#[derive(Debug)]
pub(super) struct TenantSlot {
    slots: Arc<TenantSlots>,
    pub(super) tenant: TenantId,
}

impl TenantSlots {
    pub(super) fn new(what: &'static str, limit: usize, limit_per_tenant: usize) -> Arc<Self> {
        Arc::new(Self { limit, limit_per_tenant, what, taken: Mutex::default() })
    }

    pub(super) fn acquire(self: &Arc<Self>, tenant: TenantId) -> Result<TenantSlot, String> {
        let mut taken = lock(&self.taken);
        let all: usize = taken.values().sum();
        let own = taken.get(&tenant).copied().unwrap_or(0);
        let (limit, whose) = match () {
            () if own >= self.limit_per_tenant => (self.limit_per_tenant, "for this tenant"),
            () if all >= self.limit => (self.limit, "here"),
            () => {
                taken.insert(tenant, own + 1);
                return Ok(TenantSlot { slots: Arc::clone(self), tenant });
            }
        };
        Err(format!(
            "{limit} {} {whose}, which is the limit: try again when one has been idle for a while",
            self.what
        ))
    }
}

impl Drop for TenantSlot {
    fn drop(&mut self) {
        let mut taken = lock(&self.slots.taken);
        if let Some(own) = taken.get_mut(&self.tenant) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_share_of_the_slots() {
        let slots = TenantSlots::new("servers run", 3, 2);
        let (noisy, quiet) = (TenantId::generate(), TenantId::generate());

        let held = [slots.acquire(noisy).unwrap(), slots.acquire(noisy).unwrap()];

        assert!(slots.acquire(noisy).unwrap_err().starts_with("2 servers run for this tenant"));
        let other = slots.acquire(quiet).unwrap();
        assert!(slots.acquire(quiet).unwrap_err().starts_with("3 servers run here"));
        drop((held, other));
        assert!(lock(&slots.taken).is_empty());
    }
}
