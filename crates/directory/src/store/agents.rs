//! `control.agents`.

pub(crate) mod behaviors;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, AgentName};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Agent, AgentSettings, AgentState, NewAgent, RoutedAgent, routing::AgentReference};

#[derive(sqlx::FromRow)]
struct Row {
    agent_id: Uuid,
    name: String,
    description: String,
    instructions: String,
    model: Option<String>,
    is_default: bool,
    settings: Json<AgentSettings>,
    state: String,
    definition_version: i64,
    version: i64,
    created_at: jiff_sqlx::Timestamp,
    updated_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> Agent {
        Agent {
            id: self.agent_id.into(),
            name: AgentName::new(&self.name),
            description: self.description,
            instructions: self.instructions,
            model: self.model,
            is_default: self.is_default,
            settings: self.settings.0,
            state: read_state(&self.state),
            definition_version: self.definition_version,
            version: self.version,
            created_at: self.created_at.to_jiff(),
            updated_at: self.updated_at.to_jiff(),
        }
    }
}

/// Reads a state. One that only a newer version knows takes no turns here.
fn read_state(stored: &str) -> AgentState {
    stored.parse().unwrap_or(AgentState::Disabled)
}

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<Agent>> {
    const SQL: &str = "select agent_id, name, description, instructions, model, is_default, \
                       settings, state, definition_version, version, created_at, updated_at \
                       from control.agents where tenant_id = $1 order by created_at, agent_id";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

pub(crate) async fn cards(tx: &mut TenantTx) -> sqlx::Result<Vec<RoutedAgent>> {
    const SQL: &str = "select agent_id, name, is_default, settings, state from control.agents \
                       where tenant_id = $1 order by created_at, agent_id";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<(Uuid, String, bool, Json<AgentSettings>, String)> =
        holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    let cards = rows.into_iter().map(|(id, name, is_default, settings, state)| RoutedAgent {
        id: id.into(),
        name: AgentName::new(&name),
        is_default,
        settings: settings.0,
        state: read_state(&state),
    });
    Ok(cards.collect())
}

pub(crate) async fn find(
    tx: &mut TenantTx,
    wanted: &AgentReference,
) -> sqlx::Result<Option<Agent>> {
    const SQL: &str = "select agent_id, name, description, instructions, model, is_default, \
                       settings, state, definition_version, version, created_at, updated_at from control.agents \
                       where tenant_id = $1 and (agent_id = $2 or name = $3)";
    let tenant = tx.tenant().as_uuid();
    let (id, name) = match wanted {
        AgentReference::Id(id) => (Some(id.as_uuid()), None),
        AgentReference::Name(name) => (None, Some(name)),
    };
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id)
        .bind(name)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Row::read))
}

/// Returns the flagged agent, else the first.
pub(crate) async fn default(tx: &mut TenantTx) -> sqlx::Result<Option<Agent>> {
    const SQL: &str = "select agent_id, name, description, instructions, model, is_default, \
                       settings, state, definition_version, version, created_at, updated_at from control.agents \
                       where tenant_id = $1 order by is_default desc, created_at, agent_id limit 1";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).fetch_optional(tx.conn()).await?;
    Ok(row.map(Row::read))
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.agents where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

pub(crate) async fn insert(tx: &mut TenantTx, id: AgentId, new: &NewAgent) -> sqlx::Result<Agent> {
    const SQL: &str = "insert into control.agents (tenant_id, agent_id, name, description, \
                       instructions, model, is_default, settings) \
                       values ($1, $2, $3, $4, $5, $6, $7, $8) \
                       returning agent_id, name, description, instructions, model, is_default, \
                       settings, state, definition_version, version, created_at, updated_at";
    write(tx, SQL, id, new).await
}

pub(crate) async fn update(tx: &mut TenantTx, id: AgentId, new: &NewAgent) -> sqlx::Result<Agent> {
    const SQL: &str = "update control.agents set name = $3, description = $4, instructions = $5, \
                       model = $6, is_default = $7, settings = $8, version = version + 1, \
                       updated_at = now() where tenant_id = $1 and agent_id = $2 \
                       returning agent_id, name, description, instructions, model, is_default, \
                       settings, state, definition_version, version, created_at, updated_at";
    write(tx, SQL, id, new).await
}

pub(crate) async fn set_state(
    tx: &mut TenantTx,
    id: AgentId,
    state: AgentState,
) -> sqlx::Result<Agent> {
    const SQL: &str = "update control.agents set state = $3, updated_at = now() \
                       where tenant_id = $1 and agent_id = $2 \
                       returning agent_id, name, description, instructions, model, is_default, \
                       settings, state, definition_version, version, created_at, updated_at";
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(state.as_str())
        .fetch_one(tx.conn())
        .await?;
    Ok(row.read())
}

async fn write(
    tx: &mut TenantTx,
    sql: &'static str,
    id: AgentId,
    new: &NewAgent,
) -> sqlx::Result<Agent> {
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(sql)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(new.name.as_str())
        .bind(&new.description)
        .bind(&new.instructions)
        .bind(&new.model)
        .bind(new.is_default)
        .bind(Json(&new.settings))
        .fetch_one(tx.conn())
        .await?;
    Ok(row.read())
}

pub(crate) async fn clear_default(tx: &mut TenantTx) -> sqlx::Result<()> {
    const SQL: &str = "update control.agents set is_default = false, version = version + 1 \
                       where tenant_id = $1 and is_default";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).execute(tx.conn()).await?;
    Ok(())
}

pub(crate) async fn delete(tx: &mut TenantTx, id: AgentId) -> sqlx::Result<()> {
    const SQL: &str = "delete from control.agents where tenant_id = $1 and agent_id = $2";
    // The agent's memories are erased later.
    const FORGET: &str = "select memory.forget_later('agent', $1)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id.as_uuid()).execute(tx.conn()).await?;
    holdfast_pg::query(FORGET).bind(id.to_string()).execute(tx.conn()).await?;
    Ok(())
}
