//! Events of tenants: their list, and their publication.

pub mod webhooks;

use holdfast_pg::SystemTx;

use crate::{Directory, Error, TenantEvent, TenantEventFilter, store};

/// Days that published events and notices about limits are kept.
const KEPT_DAYS: i32 = 90;

/// Events of tenants.
#[derive(Debug, Clone, Copy)]
pub struct TenantEvents<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn tenant_events(&self) -> TenantEvents<'_> {
        TenantEvents(self)
    }
}

impl TenantEvents<'_> {
    /// Returns events, oldest first.
    pub async fn list(self, filter: TenantEventFilter) -> Result<Vec<TenantEvent>, Error> {
        let mut tx = self.0.pools.system().await?;
        let events = store::tenant_events::page(&mut tx, filter).await?;
        tx.finish_reading();
        Ok(events)
    }

    /// Takes up to `limit` events that are not yet in the log of events, in the transaction that logs
    /// them.
    pub async fn take_unlogged(
        self,
        tx: &mut SystemTx,
        limit: i64,
    ) -> Result<Vec<TenantEvent>, Error> {
        Ok(store::tenant_events::take_unlogged(tx, limit).await?)
    }

    /// Publishes up to `batch` events, oldest first, and marks those that were published. An event
    /// whose mark is lost is published again under the same id.
    ///
    /// `publish` returns how many events it published, counted from the first. Returns how many this
    /// call has marked; less than `batch`: no more events wait, or publishing failed.
    pub async fn relay(
        self,
        batch: i64,
        publish: impl AsyncFnOnce(&[TenantEvent]) -> usize,
    ) -> Result<u64, Error> {
        let mut once = self.0.pools.system_connection().await?;
        let events = store::tenant_events::unpublished(&mut once, batch).await?;
        once.done();
        if events.is_empty() {
            return Ok(0);
        }
        let count = publish(&events).await;
        let published: Vec<i64> = events.iter().take(count).map(|event| event.id).collect();
        if published.is_empty() {
            return Ok(0);
        }
        let mut once = self.0.pools.system_connection().await?;
        let marked = store::tenant_events::mark_published(&mut once, &published).await?;
        once.done();
        Ok(marked)
    }

    /// Deletes published events and notices after 90 days, and those of a tenant that is gone at once.
    /// Returns the number of events.
    pub async fn prune(self) -> Result<u64, Error> {
        let mut once = self.0.pools.system_connection().await?;
        let events = store::tenant_events::prune(&mut once, KEPT_DAYS).await?;
        once.done();
        Ok(events)
    }
}
