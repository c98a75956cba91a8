//! The audit log: reading it, and recording how calls ended.

use holdfast_types::TenantId;

use crate::{AuditEvent, AuditFilter, CallOutcome, Directory, Error, store};

/// The audit log.
#[derive(Debug, Clone, Copy)]
pub struct Audit<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn audit(&self) -> Audit<'_> {
        Audit(self)
    }
}

impl Audit<'_> {
    /// Returns events, newest first.
    pub async fn list(
        self,
        tenant: TenantId,
        filter: &AuditFilter,
    ) -> Result<Vec<AuditEvent>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let events = store::audit::page(&mut tx, filter).await?;
        tx.commit().await?;
        Ok(events)
    }

    /// Records how a call ended, unless it succeeded and its own transaction has recorded it.
    pub async fn record_outcome(
        self,
        tenant: TenantId,
        call: CallOutcome<'_>,
    ) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        store::audit::record_outcome(&mut tx, &call).await?;
        tx.commit().await?;
        Ok(())
    }
}
