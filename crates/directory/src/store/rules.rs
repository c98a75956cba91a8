//! `control.rules`.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelRoute};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{NewRule, Pattern, Rule};

#[derive(sqlx::FromRow)]
struct Row {
    channel: Option<String>,
    user_id: Option<String>,
    pattern: Option<String>,
    agent_id: Uuid,
    tools: Option<Vec<String>>,
    by_model: Option<Json<ModelRoute>>,
}

impl Row {
    fn read(self) -> Rule {
        Rule {
            channel: self.channel,
            user_id: self.user_id,
            pattern: self.pattern.map(Pattern::new),
            agent: self.agent_id.into(),
            tools: self.tools,
            by_model: self.by_model.map(|route| route.0),
        }
    }
}

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<Rule>> {
    const SQL: &str = "select channel, user_id, pattern, agent_id, tools, by_model \
                       from control.rules where tenant_id = $1 order by position, rule_id";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = sqlx::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

pub(crate) async fn delete_all(tx: &mut TenantTx) -> sqlx::Result<()> {
    const SQL: &str = "delete from control.rules where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    sqlx::query(SQL).bind(tenant).execute(tx.conn()).await?;
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
                       pattern, agent_id, tools, by_model) \
                       values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let tenant = tx.tenant().as_uuid();
    sqlx::query(SQL)
        .bind(tenant)
        .bind(Uuid::now_v7())
        .bind(position)
        .bind(&new.channel)
        .bind(&new.user_id)
        .bind(&new.pattern)
        .bind(agent.as_uuid())
        .bind(&new.tools)
        .bind(by_model.map(Json))
        .execute(tx.conn())
        .await?;
    Ok(())
}
