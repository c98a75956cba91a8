//! Lists that sessions share: that of a workspace is the list of all sessions that work in it.
//!
//! A session is named by its root session. It works on the list of its workspace if it is a member of
//! that, and on its own otherwise. Its own list becomes that of the workspace if this has none yet.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, SessionId};
use uuid::Uuid;

use crate::Error;

/// Id of a list: that of its root session, or of its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListId(Uuid);

impl ListId {
    pub const fn new(id: Uuid) -> Self {
        Self(id)
    }

    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

/// Finds the list that a root session works on.
pub(crate) async fn list_of(tx: &mut TenantTx, root: SessionId) -> Result<ListId, Error> {
    const SQL: &str = "
        select list_id from work.list_members where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_scalar(SQL).bind(tenant).bind(root.as_uuid());
    let shared: Option<Uuid> = query.fetch_optional(tx.conn()).await?;
    Ok(ListId::new(shared.unwrap_or(root.as_uuid())))
}

/// What a session finds that joins the list of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinedList {
    /// An empty list, or its own.
    New,
    /// The list of other sessions.
    Existing,
}

/// Lets a root session work on the list of a workspace. Both must exist.
pub async fn join_list(
    tx: &mut TenantTx,
    agent: AgentId,
    root: SessionId,
    workspace: Uuid,
) -> Result<JoinedList, Error> {
    const RENAME: &str = "
        update work.lists set list_id = $3, workspace_id = $3
        where tenant_id = $1 and list_id = $2
          and not exists (select from work.lists where tenant_id = $1 and list_id = $3)";
    const KEEP_RECORDS: &str = "
        update work.worklog set member_id = $2 where tenant_id = $1 and list_id = $3";
    const CREATE: &str = "
        insert into work.lists (tenant_id, list_id, agent_id, workspace_id)
        values ($1, $2, $3, $2) on conflict (tenant_id, list_id) do nothing";
    const JOIN: &str = "
        insert into work.list_members (tenant_id, session_id, list_id) values ($1, $2, $3)
        on conflict (tenant_id, session_id) do update set list_id = excluded.list_id";

    if list_of(tx, root).await?.as_uuid() == workspace {
        return Ok(JoinedList::Existing);
    }
    let (tenant, session) = (tx.tenant().as_uuid(), root.as_uuid());
    let query = holdfast_pg::query(RENAME).bind(tenant).bind(session).bind(workspace);
    let joined = if query.execute(tx.conn()).await?.rows_affected() == 1 {
        let query = holdfast_pg::query(KEEP_RECORDS).bind(tenant).bind(session).bind(workspace);
        query.execute(tx.conn()).await?;
        JoinedList::New
    } else {
        let query = holdfast_pg::query(CREATE).bind(tenant).bind(workspace).bind(agent.as_uuid());
        match query.execute(tx.conn()).await?.rows_affected() {
            0 => JoinedList::Existing,
            _ => JoinedList::New,
        }
    };
    let query = holdfast_pg::query(JOIN).bind(tenant).bind(session).bind(workspace);
    query.execute(tx.conn()).await?;
    Ok(joined)
}

/// Lets a root session work on its own list again.
pub async fn leave_list(tx: &mut TenantTx, root: SessionId) -> Result<(), Error> {
    const SQL: &str = "delete from work.list_members where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(root.as_uuid()).execute(tx.conn()).await?;
    Ok(())
}
