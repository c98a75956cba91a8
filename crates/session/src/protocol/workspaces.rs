//! The local workspace of a session. Of the sessions with the same one, only one is claimed at a
//! time (see `claim`): its claim holds the workspace's lease, and its epoch is the fence.
//!
//! A workspace that *drains* is kept by its session after the turn, until the todos of the session
//! are finished. The runner with the duty of upkeep frees it then.

use holdfast_pg::TenantTx;
use holdfast_types::{SessionId, SessionState, TenantId};
use uuid::Uuid;

use crate::{Error, Sessions, sessions::lock};

/// Draining workspaces that one look finds.
const MAX_DRAINING: i64 = 1_000;

/// A local workspace for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceBinding {
    /// Id of the workspace.
    pub workspace: String,
    /// The session keeps it until its todos are finished.
    pub drains: bool,
}

impl Sessions {
    /// Sets the local workspace of a session, or removes it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::Conflict`] while the session runs: its claim does not hold the
    /// lease of another workspace.
    pub async fn bind_workspace(
        &self,
        tenant: TenantId,
        session: SessionId,
        binding: Option<&WorkspaceBinding>,
    ) -> Result<(), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let Some(lease) = lock(&mut tx, session).await? else {
            return Err(Error::NotFound { what: "session", name: session.to_string() });
        };
        if lease.state == SessionState::Running {
            return Err(Error::Conflict(
                "the session runs: bind it when its turn has ended".to_owned(),
            ));
        }
        bind_workspace(&mut tx, session, binding).await?;
        Ok(tx.commit().await?)
    }

    /// Returns sessions of all tenants that keep a workspace after their turn.
    pub async fn draining(&self) -> Result<Vec<(TenantId, SessionId)>, Error> {
        const SQL: &str = "
            select tenant_id, session_id from session.workspace_lease
            where lease_until = 'infinity' and session_id is not null limit $1";

        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid)> =
            holdfast_pg::query_as(SQL).bind(MAX_DRAINING).fetch_all(once.conn()).await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, session)| (tenant.into(), session.into())).collect())
    }

    /// Frees the workspace that a session keeps after its turn.
    pub async fn end_draining(&self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        const SQL: &str = "
            update session.workspace_lease set session_id = null, lease_until = null
            where tenant_id = $1 and session_id = $2 and lease_until = 'infinity'";

        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }
}

/// Sets the local workspace of a session, under the session's row lock. A session that runs must end
/// its claim after that: the next claim takes the lease.
pub async fn bind_workspace(
    tx: &mut TenantTx,
    session: SessionId,
    binding: Option<&WorkspaceBinding>,
) -> Result<(), Error> {
    const SQL: &str = "
        with freed as (
            update session.workspace_lease set session_id = null, lease_until = null
            where tenant_id = $1 and session_id = $2 and workspace is distinct from $3),
        described as (
            insert into session.workspace_lease (tenant_id, workspace, drains)
            select $1, $3, $4 where $3 is not null
            on conflict (tenant_id, workspace) do update set drains = excluded.drains)
        update session.session_lease set workspace = $3 where tenant_id = $1 and session_id = $2";

    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(binding.map(|binding| binding.workspace.as_str()))
        .bind(binding.is_some_and(|binding| binding.drains))
        .execute(tx.conn())
        .await?;
    Ok(())
}
