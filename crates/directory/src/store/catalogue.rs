//! `control.models` and `control.model_aliases`, with the `control.budgets` that apply to an agent.

use std::collections::BTreeMap;

use holdfast_llm::{ModelCard, Supplement};
use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ModelId};
use serde::Deserialize;
use serde_json::Value;
use sqlx::types::Json;
use tracing::warn;
use uuid::Uuid;

use crate::{Budget, PlanLimits};

/// A tenant's additions to the built-in catalogue, and the budgets that apply to an agent.
#[derive(Debug, Default)]
pub(crate) struct CatalogueAdditions {
    pub(crate) supplement: Supplement,
    pub(crate) budgets: Vec<Budget>,
    /// Limits of the tenant's plan.
    pub(crate) limits: PlanLimits,
}

#[derive(sqlx::FromRow)]
struct Row {
    models: Option<Json<BTreeMap<String, Value>>>,
    aliases: Option<Json<BTreeMap<String, String>>>,
    budgets: Option<Json<Vec<Limits>>>,
    limits: Option<Json<PlanLimits>>,
}

#[derive(Deserialize)]
struct Limits {
    agent: Option<Uuid>,
    tokens: Option<u64>,
    micros: Option<u64>,
}

/// Returns a tenant's additions, and the budgets of the whole tenant and of this agent.
pub(crate) async fn additions(
    tx: &mut TenantTx,
    agent: AgentId,
) -> sqlx::Result<CatalogueAdditions> {
    const SQL: &str = "
        select (select jsonb_object_agg(model, card) from control.models where tenant_id = $1)
                   as models,
               (select jsonb_object_agg(alias, model) from control.model_aliases
                where tenant_id = $1) as aliases,
               (select jsonb_agg(jsonb_build_object(
                    'agent', agent_id, 'tokens', tokens, 'micros', micros))
                from control.budgets
                where tenant_id = $1 and (agent_id is null or agent_id = $2)) as budgets,
               (select limits from control.tenants where tenant_id = $1) as limits";
    let tenant = tx.tenant().as_uuid();
    let row: Row =
        holdfast_pg::query_as(SQL).bind(tenant).bind(agent.as_uuid()).fetch_one(tx.conn()).await?;
    let models = row.models.map(|models| models.0).unwrap_or_default();
    let aliases = row.aliases.map(|aliases| aliases.0).unwrap_or_default();
    let budgets = row.budgets.map(|budgets| budgets.0).unwrap_or_default();
    let limits = |one: Limits| Budget {
        agent: one.agent.map(AgentId::from),
        tokens: one.tokens,
        micros: one.micros,
    };
    Ok(CatalogueAdditions {
        supplement: Supplement {
            models: models.into_iter().filter_map(card).collect(),
            aliases: aliases
                .into_iter()
                .filter_map(|(alias, model)| Some((alias, model.parse().ok()?)))
                .collect(),
        },
        budgets: budgets.into_iter().map(limits).collect(),
        limits: row.limits.map(|limits| limits.0).unwrap_or_default(),
    })
}

/// Parses a stored model; one that another version wrote and this one cannot read is skipped.
fn card((model, card): (String, Value)) -> Option<(ModelId, ModelCard)> {
    match serde_json::from_value(card) {
        Ok(card) => Some((model.parse().ok()?, card)),
        Err(_) => {
            warn!(model, "a model of the tenant's catalogue cannot be read");
            None
        }
    }
}

pub(crate) async fn put_model(
    tx: &mut TenantTx,
    model: &ModelId,
    card: &ModelCard,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.models (tenant_id, model, card) values ($1, $2, $3)
        on conflict (tenant_id, model) do update set card = excluded.card, updated_at = now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(model.to_string())
        .bind(Json(card))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether the model existed.
pub(crate) async fn delete_model(tx: &mut TenantTx, model: &str) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.models where tenant_id = $1 and model = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(model).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

pub(crate) async fn put_alias(tx: &mut TenantTx, alias: &str, model: &ModelId) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.model_aliases (tenant_id, alias, model) values ($1, $2, $3)
        on conflict (tenant_id, alias) do update set model = excluded.model, updated_at = now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(alias)
        .bind(model.to_string())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether the alias existed.
pub(crate) async fn delete_alias(tx: &mut TenantTx, alias: &str) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.model_aliases where tenant_id = $1 and alias = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(alias).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

/// Returns the number of models and aliases that a tenant has added, other than these.
pub(crate) async fn count_except(
    tx: &mut TenantTx,
    model: Option<&ModelId>,
    alias: Option<&str>,
) -> sqlx::Result<i64> {
    const SQL: &str = "
        select (select count(*) from control.models
                where tenant_id = $1 and model is distinct from $2)
             + (select count(*) from control.model_aliases
                where tenant_id = $1 and alias is distinct from $3)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(model.map(ModelId::to_string))
        .bind(alias)
        .fetch_one(tx.conn())
        .await
}
