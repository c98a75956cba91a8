//! `control.policies`.

use holdfast_pg::TenantTx;
use holdfast_types::AgentId;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::policy::{Policies, StoredPolicy};

#[derive(sqlx::FromRow)]
struct Row {
    agent_id: Option<Uuid>,
    document: Json<Value>,
    version: i64,
    updated_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> StoredPolicy {
        StoredPolicy {
            document: self.document.0,
            version: self.version,
            updated_at: Some(self.updated_at.to_jiff()),
        }
    }
}

/// Returns the policies of the tenant and of an agent, in one query.
pub(crate) async fn both(tx: &mut TenantTx, agent: AgentId) -> sqlx::Result<Policies> {
    const SQL: &str = "select agent_id, document, version, updated_at from control.policies \
                       where tenant_id = $1 and (agent_id is null or agent_id = $2)";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(agent.as_uuid()).fetch_all(tx.conn()).await?;
    let mut both = Policies::default();
    for row in rows {
        match row.agent_id {
            None => both.tenant = row.read(),
            Some(_) => both.agent = row.read(),
        }
    }
    Ok(both)
}

pub(crate) async fn get(
    tx: &mut TenantTx,
    agent: Option<AgentId>,
) -> sqlx::Result<Option<StoredPolicy>> {
    const SQL: &str = "select agent_id, document, version, updated_at from control.policies \
                       where tenant_id = $1 and agent_id is not distinct from $2";
    let (tenant, agent) = (tx.tenant().as_uuid(), agent.map(AgentId::as_uuid));
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(agent).fetch_optional(tx.conn()).await?;
    Ok(row.map(Row::read))
}

pub(crate) async fn put(
    tx: &mut TenantTx,
    agent: Option<AgentId>,
    document: &Value,
) -> sqlx::Result<StoredPolicy> {
    const SQL: &str = "insert into control.policies as p (tenant_id, agent_id, document) \
                       values ($1, $2, $3) \
                       on conflict on constraint policies_key do update \
                       set document = excluded.document, version = p.version + 1, \
                       updated_at = now() returning agent_id, document, version, updated_at";
    let (tenant, agent) = (tx.tenant().as_uuid(), agent.map(AgentId::as_uuid));
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(agent)
        .bind(Json(document))
        .fetch_one(tx.conn())
        .await?;
    Ok(row.read())
}
