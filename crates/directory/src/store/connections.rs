//! `control.connections`.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ConnectionScope, ConnectionSettings};
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Connection, Error};

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    kind: String,
    agent_id: Option<Uuid>,
    used_by: String,
    settings: Json<Value>,
    has_secret: bool,
    updated_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> Result<Connection, Error> {
        let corrupt = |error| Error::corrupt("connection", anyhow::Error::from(error));
        let kind = self.kind.parse().map_err(corrupt)?;
        Ok(Connection {
            to: ConnectionSettings::from_settings(kind, self.settings.0).map_err(corrupt)?,
            agent: self.agent_id.map(AgentId::from),
            used_by: self.used_by.parse::<ConnectionScope>().map_err(corrupt)?,
            name: self.name,
            has_secret: self.has_secret,
            updated_at: self.updated_at.to_jiff(),
        })
    }
}

pub(crate) async fn all(tx: &mut TenantTx) -> Result<Vec<Connection>, Error> {
    const SQL: &str = "select name, kind, agent_id, used_by, settings, \
                       secret is not null as has_secret, updated_at \
                       from control.connections where tenant_id = $1 order by name";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    rows.into_iter().map(Row::read).collect()
}

/// Returns the connections that an agent may use.
pub(crate) async fn of_agent(tx: &mut TenantTx, agent: AgentId) -> Result<Vec<Connection>, Error> {
    const SQL: &str = "select name, kind, agent_id, used_by, settings, \
                       secret is not null as has_secret, updated_at \
                       from control.connections where tenant_id = $1 \
                       and (agent_id is null or agent_id = $2) order by name";
    let tenant = tx.tenant().as_uuid();
    let agent = agent.as_uuid();
    let rows: Vec<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(agent).fetch_all(tx.conn()).await?;
    rows.into_iter().map(Row::read).collect()
}

pub(crate) async fn get(tx: &mut TenantTx, name: &str) -> Result<Option<Connection>, Error> {
    const SQL: &str = "select name, kind, agent_id, used_by, settings, \
                       secret is not null as has_secret, updated_at \
                       from control.connections where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(name).fetch_optional(tx.conn()).await?;
    row.map(Row::read).transpose()
}

/// Returns the sealed secret of a connection.
pub(crate) async fn secret(tx: &mut TenantTx, name: &str) -> sqlx::Result<Option<Vec<u8>>> {
    const SQL: &str = "select secret from control.connections where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let secret: Option<Option<Vec<u8>>> =
        holdfast_pg::query_scalar(SQL).bind(tenant).bind(name).fetch_optional(tx.conn()).await?;
    Ok(secret.flatten())
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.connections where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

/// Stores a connection; `sealed` of `None` keeps the stored secret.
pub(crate) async fn put(
    tx: &mut TenantTx,
    connection: &Connection,
    sealed: Option<&[u8]>,
) -> Result<Connection, Error> {
    const SQL: &str = "insert into control.connections as c \
                       (tenant_id, name, kind, agent_id, used_by, settings, secret) \
                       values ($1, $2, $3, $4, $5, $6, $7) \
                       on conflict (tenant_id, name) do update set kind = excluded.kind, \
                       agent_id = excluded.agent_id, used_by = excluded.used_by, \
                       settings = excluded.settings, \
                       secret = coalesce(excluded.secret, c.secret), updated_at = now() \
                       returning name, kind, agent_id, used_by, settings, \
                       secret is not null as has_secret, updated_at";
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(&connection.name)
        .bind(connection.to.kind().as_str())
        .bind(connection.agent.map(|agent| agent.as_uuid()))
        .bind(connection.used_by.to_string())
        .bind(Json(connection.to.settings()))
        .bind(sealed)
        .fetch_one(tx.conn())
        .await?;
    row.read()
}

/// Returns whether the connection existed.
pub(crate) async fn delete(tx: &mut TenantTx, name: &str) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.connections where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(name).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
