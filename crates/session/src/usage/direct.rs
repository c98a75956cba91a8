//! Requests to models that a client makes without a turn, such as transcriptions.
//!
//! Each is a run of a session that does not exist, like the run of a session that was deleted with its
//! answer: usage, budgets and lists of runs count it as any other.

use holdfast_types::{AgentId, RunId, SessionId, TenantId, Usage};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;

use super::{UsageRecords, WriteCost, to_column};
use crate::Error;

/// A request that a provider has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectRequest {
    /// Agent whose budget is charged.
    pub agent: AgentId,
    /// Model as `provider:id`.
    pub model: String,
    pub usage: Usage,
    pub started_at: Timestamp,
    /// Verified author, as in messages.
    pub person: Option<String>,
}

impl UsageRecords<'_> {
    /// Records a request, and charges the budgets with it.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub async fn record_direct(
        self,
        tenant: TenantId,
        request: &DirectRequest,
        spent: &WriteCost,
    ) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.runs
                (tenant_id, run_id, session_id, agent_id, epoch, outcome, steps, model, input_tokens,
                 cached_tokens, output_tokens, started_at, cost_micros, messages, channel, person)
            values ($1, $2, $3, $4, 0, 'completed', 1, $5, $6, $7, $8, $9, $10, 0, 'api', $11)";

        let DirectRequest { agent, model, usage, started_at, person } = request;
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(RunId::generate().as_uuid())
            .bind(SessionId::generate().as_uuid())
            .bind(agent.as_uuid())
            .bind(model)
            .bind(to_column(usage.input))
            .bind(to_column(usage.cached))
            .bind(to_column(usage.output))
            .bind(started_at.to_sqlx())
            .bind(to_column(spent.run_micros))
            .bind(person)
            .execute(tx.conn())
            .await?;
        spent.charge_budgets(&mut tx).await?;
        Ok(tx.commit().await?)
    }
}
