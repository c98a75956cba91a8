//! Approval rules: calls of an agent that were allowed always and need no further approval.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TenantId};
use jiff::Timestamp;
use sqlx::FromRow;
use uuid::Uuid;

use super::{Approval, subject_hash};
use crate::{Approvals, Error};

/// Permission for an agent's calls without a new approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRule {
    pub id: Uuid,
    pub agent: AgentId,
    pub tool: String,
    /// SHA-256 of the approved subject.
    pub subject_hash: Vec<u8>,
    /// Pattern of allowed calls, as the tool defined it; `None` allows the approved subject only.
    pub pattern: Option<String>,
    /// Description for people, in one line.
    pub summary: String,
    pub created_by: Option<String>,
    pub created_at: Timestamp,
    /// Time of the last call that the rule allowed.
    pub last_used_at: Option<Timestamp>,
    /// Summary of that call, in one line.
    pub last_used: Option<String>,
}

/// Maximum number of rules that are read at once.
const MAX_RULES_READ: i64 = 512;

impl Approvals<'_> {
    /// Returns the rules of an agent for a tool; `None` is every agent, every tool.
    pub async fn rules(
        self,
        tenant: TenantId,
        agent: Option<AgentId>,
        tool: Option<&str>,
    ) -> Result<Vec<ApprovalRule>, Error> {
        const SQL: &str = "
            select rule_id, agent_id, tool, subject_hash, pattern, summary, created_by, created_at,
                   last_used_at, last_used
            from session.approval_rules
            where tenant_id = $1 and ($2::uuid is null or agent_id = $2)
              and ($3::text is null or tool = $3)
            order by created_at desc limit $4";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<RuleRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.map(AgentId::as_uuid))
            .bind(tool)
            .bind(MAX_RULES_READ)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(ApprovalRule::from).collect())
    }

    /// Records that rules allowed a call.
    pub async fn use_rules(
        self,
        tenant: TenantId,
        rules: &[Uuid],
        used: &str,
    ) -> Result<(), Error> {
        const SQL: &str = "
            update session.approval_rules set last_used_at = clock_timestamp(), last_used = $3
            where tenant_id = $1 and rule_id = any($2)";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(rules)
            .bind(used)
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Deletes a rule.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such rule.
    pub async fn delete_rule(self, tenant: TenantId, rule: Uuid) -> Result<(), Error> {
        const SQL: &str =
            "delete from session.approval_rules where tenant_id = $1 and rule_id = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        let gone = holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(rule)
            .execute(tx.conn())
            .await?
            .rows_affected();
        if gone == 0 {
            return Err(Error::NotFound { what: "approval rule", name: rule.to_string() });
        }
        Ok(tx.commit().await?)
    }
}

/// Stores a rule for an approved call; an existing rule stays unchanged.
pub(super) async fn insert_rule(
    tx: &mut TenantTx,
    approval: &Approval,
    by: &str,
) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.approval_rules
            (tenant_id, rule_id, agent_id, tool, subject_hash, pattern, summary, created_by,
             last_used_at, last_used)
        values ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(), $7)
        on conflict do nothing";
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(Uuid::now_v7())
        .bind(approval.agent.as_uuid())
        .bind(&approval.tool)
        .bind(subject_hash(&approval.subject).as_slice())
        .bind(&approval.pattern)
        .bind(&approval.summary)
        .bind(by)
        .execute(tx.conn())
        .await?;
    Ok(())
}

#[derive(FromRow)]
struct RuleRow {
    rule_id: Uuid,
    agent_id: Uuid,
    tool: String,
    subject_hash: Vec<u8>,
    pattern: Option<String>,
    summary: String,
    created_by: Option<String>,
    created_at: jiff_sqlx::Timestamp,
    last_used_at: Option<jiff_sqlx::Timestamp>,
    last_used: Option<String>,
}

impl From<RuleRow> for ApprovalRule {
    fn from(row: RuleRow) -> Self {
        Self {
            id: row.rule_id,
            agent: row.agent_id.into(),
            tool: row.tool,
            subject_hash: row.subject_hash,
            pattern: row.pattern,
            summary: row.summary,
            created_by: row.created_by,
            created_at: row.created_at.to_jiff(),
            last_used_at: row.last_used_at.map(jiff_sqlx::Timestamp::to_jiff),
            last_used: row.last_used,
        }
    }
}
