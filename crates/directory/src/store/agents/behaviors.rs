//! `control.behaviors`.

use holdfast_pg::TenantTx;
use holdfast_types::AgentId;
use uuid::Uuid;

use crate::{BehaviorLayer, StoredBehavior, agent::behavior::MAX_BEHAVIOR_VERSIONS};

#[derive(sqlx::FromRow)]
struct Row {
    agent_id: Option<Uuid>,
    name: String,
    version: i64,
    source: String,
    is_current: bool,
    created_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> StoredBehavior {
        let layer = match self.agent_id {
            None => BehaviorLayer::Tenant,
            Some(_) => BehaviorLayer::Agent,
        };
        StoredBehavior {
            layer,
            name: self.name,
            version: self.version,
            source: self.source,
            is_current: self.is_current,
            created_at: self.created_at.to_jiff(),
        }
    }
}

/// Returns the behaviours in use of the tenant's layer, and of an agent's. Those of the tenant come
/// first.
pub(crate) async fn current(
    tx: &mut TenantTx,
    agent: Option<AgentId>,
) -> sqlx::Result<Vec<StoredBehavior>> {
    const SQL: &str = "select agent_id, name, version, source, is_current, created_at
                       from control.behaviors
                       where tenant_id = $1 and is_current and (agent_id is null or agent_id = $2)
                       order by agent_id nulls first, name";
    let (tenant, agent) = (tx.tenant().as_uuid(), agent.map(AgentId::as_uuid));
    let rows: Vec<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(agent).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// Returns a version of a behaviour in one layer; `None` is the one in use.
pub(crate) async fn get(
    tx: &mut TenantTx,
    agent: Option<AgentId>,
    name: &str,
    version: Option<i64>,
) -> sqlx::Result<Option<StoredBehavior>> {
    const SQL: &str = "select agent_id, name, version, source, is_current, created_at
                       from control.behaviors
                       where tenant_id = $1 and agent_id is not distinct from $2 and name = $3
                         and (version = $4 or $4::bigint is null and is_current)";
    let (tenant, agent) = (tx.tenant().as_uuid(), agent.map(AgentId::as_uuid));
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(agent)
        .bind(name)
        .bind(version)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Row::read))
}

/// Returns the versions of a behaviour in one layer, newest first.
pub(crate) async fn versions(
    tx: &mut TenantTx,
    agent: Option<AgentId>,
    name: &str,
) -> sqlx::Result<Vec<StoredBehavior>> {
    const SQL: &str = "select agent_id, name, version, source, is_current, created_at
                       from control.behaviors
                       where tenant_id = $1 and agent_id is not distinct from $2 and name = $3
                       order by version desc";
    let (tenant, agent) = (tx.tenant().as_uuid(), agent.map(AgentId::as_uuid));
    let rows: Vec<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(agent).bind(name).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// Counts the behaviours in use of one layer.
pub(crate) async fn count(tx: &mut TenantTx, agent: Option<AgentId>) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.behaviors
                       where tenant_id = $1 and agent_id is not distinct from $2 and is_current";
    let (tenant, agent) = (tx.tenant().as_uuid(), agent.map(AgentId::as_uuid));
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(agent).fetch_one(tx.conn()).await
}

/// Ends the use of a behaviour in one layer. Returns whether it was in use.
pub(crate) async fn retire(
    tx: &mut TenantTx,
    agent: Option<AgentId>,
    name: &str,
) -> sqlx::Result<bool> {
    const SQL: &str = "update control.behaviors set is_current = false
                       where tenant_id = $1 and agent_id is not distinct from $2 and name = $3
                         and is_current";
    let (tenant, agent) = (tx.tenant().as_uuid(), agent.map(AgentId::as_uuid));
    let done =
        holdfast_pg::query(SQL).bind(tenant).bind(agent).bind(name).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

/// Adds a version, which is in use from now on, and removes the oldest ones beyond the limit. The
/// one before must have been retired.
pub(crate) async fn add(
    tx: &mut TenantTx,
    agent: Option<AgentId>,
    name: &str,
    source: &str,
) -> sqlx::Result<StoredBehavior> {
    const SQL: &str = "
        insert into control.behaviors (tenant_id, agent_id, name, version, source)
        select $1, $2, $3, coalesce(max(version), 0) + 1, $4 from control.behaviors
        where tenant_id = $1 and agent_id is not distinct from $2 and name = $3
        returning agent_id, name, version, source, is_current, created_at";
    const PRUNE: &str = "
        delete from control.behaviors
        where tenant_id = $1 and agent_id is not distinct from $2 and name = $3 and version <= $4";
    let (tenant, agent) = (tx.tenant().as_uuid(), agent.map(AgentId::as_uuid));
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(agent)
        .bind(name)
        .bind(source)
        .fetch_one(tx.conn())
        .await?;
    holdfast_pg::query(PRUNE)
        .bind(tenant)
        .bind(agent)
        .bind(name)
        .bind(row.version - MAX_BEHAVIOR_VERSIONS)
        .execute(tx.conn())
        .await?;
    Ok(row.read())
}
