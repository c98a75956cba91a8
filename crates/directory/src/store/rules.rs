//! `control.rules`.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelRoute};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{NewRule, Pattern, RoutingRule};

#[derive(sqlx::FromRow)]
struct Row {
    channel: Option<String>,
    user_id: Option<String>,
    pattern: Option<String>,
    agent_id: Uuid,
    tools: Option<Vec<String>>,
    by_model: Option<Json<ModelRoute>>,
    disabled: bool,
}

impl Row {
    fn read(self) -> RoutingRule {
        RoutingRule {
            channel: self.channel,
            user_id: self.user_id,
            pattern: self.pattern.map(Pattern::new),
            agent: self.agent_id.into(),
            tools: self.tools,
            by_model: self.by_model.map(|route| route.0),
            disabled: self.disabled,
        }
    }
}

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<RoutingRule>> {
    const SQL: &str = "select channel, user_id, pattern, agent_id, tools, by_model, disabled \
                       from control.rules where tenant_id = $1 order by position, rule_id";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// Returns a name of the state of the rules: another one after every change.
pub(crate) async fn version(tx: &mut TenantTx) -> sqlx::Result<String> {
    const SQL: &str = "select coalesce(md5(string_agg(rule_id::text || disabled::text, ',' \
                       order by position, rule_id)), 'none') \
                       from control.rules where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

pub(crate) async fn delete_all(tx: &mut TenantTx) -> sqlx::Result<()> {
    const SQL: &str = "delete from control.rules where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).execute(tx.conn()).await?;
    Ok(())
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    position: i32,
    new: &NewRule,
    agent: AgentId,
    by_model: Option<&ModelRoute>,
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.rules (tenant_id, rule_id, position, channel, user_id, \
                       pattern, agent_id, tools, by_model, disabled) \
                       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(Uuid::now_v7())
        .bind(position)
        .bind(&new.channel)
        .bind(&new.user_id)
        .bind(&new.pattern)
        .bind(agent.as_uuid())
        .bind(&new.tools)
        .bind(by_model.map(Json))
        .bind(new.disabled)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns the number of rules, and the position after the last one.
pub(crate) async fn end(tx: &mut TenantTx) -> sqlx::Result<(i64, i32)> {
    const SQL: &str = "select count(*), coalesce(max(position) + 1, 0) \
                       from control.rules where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).fetch_one(tx.conn()).await
}

/// Enables the disabled rules that lead to an agent. Returns how many there were.
pub(crate) async fn enable(tx: &mut TenantTx, agent: AgentId) -> sqlx::Result<u64> {
    const SQL: &str = "update control.rules set disabled = false \
                       where tenant_id = $1 and agent_id = $2 and disabled";
    let tenant = tx.tenant().as_uuid();
    let done =
        holdfast_pg::query(SQL).bind(tenant).bind(agent.as_uuid()).execute(tx.conn()).await?;
    Ok(done.rows_affected())
}
