//! `control.bindings`.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelRoute, Peer};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Binding, NewBinding, routing::peer_kind};

#[derive(sqlx::FromRow)]
struct Row {
    binding_id: Uuid,
    channel: String,
    account: String,
    peer_kind: Option<String>,
    peer_id: Option<String>,
    guild: Option<String>,
    team: Option<String>,
    agent_id: Uuid,
    by_model: Option<Json<ModelRoute>>,
    also: Vec<Uuid>,
}

impl Row {
    fn read(self) -> Binding {
        let kind = self.peer_kind.as_deref().and_then(peer_kind);
        Binding {
            id: self.binding_id,
            channel: self.channel,
            account: self.account,
            peer: kind.zip(self.peer_id).map(|(kind, id)| Peer { kind, id }),
            guild: self.guild,
            team: self.team,
            agent: self.agent_id.into(),
            by_model: self.by_model.map(|route| route.0),
            also: self.also.into_iter().map(AgentId::from).collect(),
        }
    }
}

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<Binding>> {
    const SQL: &str = "select binding_id, channel, account, peer_kind, peer_id, guild, team, agent_id, \
                       by_model, also from control.bindings where tenant_id = $1 order by position, binding_id";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    id: Uuid,
    new: &NewBinding,
    agent: AgentId,
    by_model: Option<&ModelRoute>,
    also: &[AgentId],
) -> sqlx::Result<Binding> {
    const SQL: &str = "insert into control.bindings (tenant_id, binding_id, channel, account, \
                       peer_kind, peer_id, guild, team, agent_id, by_model, also) \
                       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
                       returning binding_id, channel, account, peer_kind, peer_id, guild, team, \
                       agent_id, by_model, also";
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id)
        .bind(&new.channel)
        .bind(&new.account)
        .bind(new.peer.as_ref().map(|peer| peer.kind.as_str()))
        .bind(new.peer.as_ref().map(|peer| peer.id.as_str()))
        .bind(&new.guild)
        .bind(&new.team)
        .bind(agent.as_uuid())
        .bind(by_model.map(Json))
        .bind(also.iter().map(|agent| agent.as_uuid()).collect::<Vec<_>>())
        .fetch_one(tx.conn())
        .await?;
    Ok(row.read())
}

/// Returns whether the binding existed.
pub(crate) async fn delete(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.bindings where tenant_id = $1 and binding_id = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(id).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
