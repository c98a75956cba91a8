//! Approval decisions: the decision and the session's wake-up, in one transaction.

use holdfast_pg::TenantTx;
use holdfast_types::{
    ApprovalDecision, ApprovalId, ApprovalState, RunnerId, SessionState, TenantId,
};
use uuid::Uuid;

use super::{
    Approval, Row, approval, approval_not_found, close::close, emit_approval_event,
    rules::insert_rule,
};
use crate::{
    Approvals, Error, SessionOwner,
    protocol::sweep::{KeepWait, make_ready},
    sessions::lock,
};

/// A person's decision about a pending approval, to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewDecision<'a> {
    pub verdict: ApprovalDecision,
    /// Who decides: an API key's or a person's id, or `channel:sender`.
    pub by: &'a str,
    /// Why the call is denied: the model reads it. Cut to [`MAX_REASON_CHARS`](Self::MAX_REASON_CHARS).
    pub reason: Option<&'a str>,
}

impl<'a> NewDecision<'a> {
    pub const MAX_REASON_CHARS: usize = 1_000;

    /// A decision without a reason.
    #[must_use]
    pub const fn new(verdict: ApprovalDecision, by: &'a str) -> Self {
        Self { verdict, by, reason: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionResult {
    pub approval: Approval,
    /// The same decision was made before; nothing changed.
    pub duplicate: bool,
    /// A wake-up should be sent.
    pub wake: bool,
    /// The runner that has the session and should read the decision.
    pub running: Option<SessionOwner>,
}

impl Approvals<'_> {
    /// Decides about a pending approval, and makes its session ready. The caller must have checked
    /// the permission.
    ///
    /// Repeating the same decision changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such approval, [`Error::Conflict`] if there is
    /// another decision or the request expired.
    pub async fn resolve(
        self,
        tenant: TenantId,
        id: ApprovalId,
        decision: NewDecision<'_>,
    ) -> Result<DecisionResult, Error> {
        const SESSION: &str = "
            select session_id from session.approvals where tenant_id = $1 and approval_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let session: Option<Uuid> = holdfast_pg::query_scalar(SESSION)
            .bind(tenant.as_uuid())
            .bind(id.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        let session = session.ok_or_else(|| approval_not_found(&id.to_string()))?.into();
        // Lock order: the lease row first, as in all verbs.
        let lease =
            lock(&mut tx, session).await?.ok_or_else(|| approval_not_found(&id.to_string()))?;
        let found = lock_approval(&mut tx, id).await?;
        let wanted = ApprovalState::from(decision.verdict);
        let running = match (lease.state, lease.owner) {
            (SessionState::Running, Some(owner)) => {
                Some(SessionOwner { owner: RunnerId::from(owner), epoch: lease.epoch })
            }
            _ => None,
        };
        if found.state != ApprovalState::Pending {
            tx.rollback().await?;
            return match found.state == wanted {
                true => {
                    Ok(DecisionResult { approval: found, duplicate: true, wake: false, running })
                }
                false => Err(already_decided_error(&found)),
            };
        }
        let approval = decide(&mut tx, id, decision).await?;
        if decision.verdict == ApprovalDecision::Always {
            insert_rule(&mut tx, &approval, decision.by).await?;
        }
        emit_approval_event(&mut tx, session, "approval.resolved", &[id.as_uuid()]).await?;
        close(&mut tx, session, &[id.as_uuid()]).await?;
        let waits = lease.state == SessionState::WaitForEvent && lease.wait.is_for_approval();
        let wake = waits && make_ready(&mut tx, &lease, KeepWait::No).await?;
        tx.commit().await?;
        Ok(DecisionResult { approval, duplicate: false, wake, running })
    }
}

async fn lock_approval(tx: &mut TenantTx, id: ApprovalId) -> Result<Approval, Error> {
    const SQL: &str = approval!("approval_id = $2 for update");
    let tenant = tx.tenant();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(id.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    row.map(Approval::from).ok_or_else(|| approval_not_found(&id.to_string()))
}

async fn decide(
    tx: &mut TenantTx,
    id: ApprovalId,
    NewDecision { verdict, by, reason }: NewDecision<'_>,
) -> Result<Approval, Error> {
    const SQL: &str = "
        update session.approvals
        set state = $3, decided_by = $4, reason = $5, decided_at = clock_timestamp()
        where tenant_id = $1 and approval_id = $2 and state = 'pending'
        returning approval_id, session_id, asked_in, agent_id, run_id, call, tool, subject, summary,
                  pattern, state, decided_by, reason, asked_at, expires_at, decided_at";
    let tenant = tx.tenant();
    let reason: Option<String> =
        reason.map(|reason| reason.chars().take(NewDecision::MAX_REASON_CHARS).collect());
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(id.as_uuid())
        .bind(ApprovalState::from(verdict).as_str())
        .bind(by.get(..by.floor_char_boundary(512)))
        .bind(reason)
        .fetch_one(tx.conn())
        .await?;
    Ok(row.into())
}

/// Builds the error for a decision that comes too late.
fn already_decided_error(approval: &Approval) -> Error {
    let slug = approval.id.slug();
    Error::Conflict(match approval.state {
        ApprovalState::Expired => {
            format!("approval `{slug}` ran out before anybody answered: ask the agent to try again")
        }
        ApprovalState::Pending
        | ApprovalState::AllowedOnce
        | ApprovalState::AllowedAlways
        | ApprovalState::Denied => format!(
            "approval `{slug}` was already {} by {}: a decision stands",
            approval.state,
            approval.decided_by.as_deref().unwrap_or("nobody known")
        ),
    })
}
