//! Settings of a session.

mod links;
mod zones;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{SessionId, SessionSettings, TenantId};
use sqlx::types::Json;

pub use links::KeyChanges;
pub use zones::Preferences;

use crate::{
    Claim, Error, Sessions,
    sessions::{lock_claimed, session_not_found},
};

/// Changes that people make to a session beside its conversation; `None` keeps a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionChanges {
    /// At most 200 characters; empty removes it.
    pub label: Option<String>,
    pub pinned: Option<bool>,
    /// At most 32 of 64 characters each; an empty list removes them.
    pub tags: Option<Vec<String>>,
}

/// Settings of sessions, and time zones of people, from [`Sessions::settings`].
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    pub(crate) pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn settings(&self) -> Settings<'_> {
        Settings { pools: &self.pools }
    }
}

impl Settings<'_> {
    /// Returns the settings of a session; the defaults if there is no such session.
    pub async fn get(self, tenant: TenantId, session: SessionId) -> Result<SessionSettings, Error> {
        const SQL: &str = "
            select settings from session.sessions where tenant_id = $1 and session_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Json<SessionSettings>> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(found.map(|settings| settings.0).unwrap_or_default())
    }

    /// Changes a session's label or tags, or pins it. The order of the list stays.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn change(
        self,
        tenant: TenantId,
        session: SessionId,
        changes: SessionChanges,
    ) -> Result<(), Error> {
        const SQL: &str = "
            update session.sessions set
                given_label = case when $3::text is null then given_label else nullif($3, '') end,
                pinned_at = case when $4::bool is null then pinned_at
                                 when $4 then coalesce(pinned_at, clock_timestamp()) end,
                given_tags = case when $5::text[] is null then given_tags
                                  else nullif($5, '{}') end
            where tenant_id = $1 and session_id = $2 and kind <> ''";

        let mut tx = self.pools.tenant(tenant).await?;
        let changed = holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(changes.label)
            .bind(changes.pinned)
            .bind(changes.tags)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        if changed.rows_affected() == 0 { Err(session_not_found(session)) } else { Ok(()) }
    }

    /// Replaces the settings of a claimed session.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn set(self, claim: &Claim, settings: &SessionSettings) -> Result<(), Error> {
        let mut tx = self.pools.tenant(claim.tenant).await?;
        lock_claimed(&mut tx, claim).await?;
        store(&mut tx, claim, settings).await?;
        Ok(tx.commit().await?)
    }
}

/// Replaces the settings of a session whose lease row the caller has locked.
pub(crate) async fn store(
    tx: &mut TenantTx,
    claim: &Claim,
    settings: &SessionSettings,
) -> sqlx::Result<()> {
    const SQL: &str = "
        update session.sessions set settings = $3
        where tenant_id = $1 and session_id = $2";

    holdfast_pg::query(SQL)
        .bind(claim.tenant.as_uuid())
        .bind(claim.session.as_uuid())
        .bind(Json(settings))
        .execute(tx.conn())
        .await?;
    Ok(())
}
