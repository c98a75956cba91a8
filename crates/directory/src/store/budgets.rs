//! `control.budgets`.

use holdfast_pg::TenantTx;
use holdfast_types::AgentId;
use uuid::Uuid;

use crate::Budget;

/// Returns the stored form of an amount.
fn number(amount: Option<u64>) -> Option<i64> {
    amount.map(|amount| i64::try_from(amount).unwrap_or(i64::MAX))
}

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<Budget>> {
    const SQL: &str = "select agent_id, tokens, micros from control.budgets \
                       where tenant_id = $1 order by agent_id nulls first";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<(Option<Uuid>, Option<i64>, Option<i64>)> =
        holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    let budget = |(agent, tokens, micros): (Option<Uuid>, Option<i64>, Option<i64>)| Budget {
        agent: agent.map(AgentId::from),
        tokens: tokens.map(i64::unsigned_abs),
        micros: micros.map(i64::unsigned_abs),
    };
    Ok(rows.into_iter().map(budget).collect())
}

pub(crate) async fn put(tx: &mut TenantTx, budget: &Budget) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.budgets (tenant_id, agent_id, tokens, micros) values ($1, $2, $3, $4)
        on conflict on constraint budgets_key do update
            set tokens = excluded.tokens, micros = excluded.micros, updated_at = now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(budget.agent.map(|agent| agent.as_uuid()))
        .bind(number(budget.tokens))
        .bind(number(budget.micros))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether the budget existed.
pub(crate) async fn delete(tx: &mut TenantTx, agent: Option<AgentId>) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.budgets \
                       where tenant_id = $1 and agent_id is not distinct from $2";
    let tenant = tx.tenant().as_uuid();
    let agent = agent.map(|agent| agent.as_uuid());
    let done = holdfast_pg::query(SQL).bind(tenant).bind(agent).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
