//! Outcome of approval requests: returned to the turn that asked, or waited for further.

use std::time::Duration;

use holdfast_pg::TenantTx;
use holdfast_types::{ApprovalState, RunId, SessionId, Wait};
use uuid::Uuid;

use super::{close::close, emit_approval_event, millis};
use crate::{
    Approvals, Claim, CompletionResult, Error, NewDelivery,
    protocol::{
        append::insert_deliveries,
        complete::{LeaseChanges, end_claim},
    },
    sessions::lock_claimed,
};

/// Outcome of the approvals that a turn waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettleResult {
    /// Some calls are decided or expired. The session stays claimed.
    Decided(Vec<DecidedCall>),
    /// No decision yet: the session waits again, and the claim has ended.
    Waiting(CompletionResult),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedCall {
    pub call: String,
    /// Never [`ApprovalState::Pending`].
    pub state: ApprovalState,
    /// Why the person denied the call, if they said so.
    pub reason: Option<String>,
}

impl Approvals<'_> {
    /// Returns the decisions about these calls of a turn's thought. Expires requests that are past
    /// their deadline. If no call is decided, the session waits again.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn settle(
        self,
        claim: &Claim,
        run: RunId,
        step: i32,
        calls: &[String],
    ) -> Result<SettleResult, Error> {
        const OVERDUE: &str = "
            update session.approvals set state = 'expired', decided_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and state = 'pending' and run_id = $3
              and expires_at <= clock_timestamp()
            returning approval_id";
        const READ: &str = "
            select call, state, reason,
                   (extract(epoch from expires_at - clock_timestamp()) * 1000)::bigint
            from session.approvals
            where tenant_id = $1 and run_id = $2 and step = $3 and call = any($4)";

        let mut tx = self.pools.tenant(claim.tenant).await?;
        let lease = lock_claimed(&mut tx, claim).await?;
        let overdue: Vec<Uuid> = holdfast_pg::query_scalar(OVERDUE)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(run.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        emit_approval_event(&mut tx, claim.session, "approval.resolved", &overdue).await?;
        close(&mut tx, claim.session, &overdue).await?;
        let rows: Vec<CallRow> = holdfast_pg::query_as(READ)
            .bind(claim.tenant.as_uuid())
            .bind(run.as_uuid())
            .bind(step)
            .bind(calls)
            .fetch_all(tx.conn())
            .await?;
        let words: Vec<DecidedCall> =
            calls.iter().filter_map(|call| decided_call(call, &rows)).collect();
        if !words.is_empty() {
            tx.commit().await?;
            return Ok(SettleResult::Decided(words));
        }
        let left = rows.iter().map(|(.., left)| u64::try_from(*left).unwrap_or(0)).min();
        let left = Duration::from_millis(left.unwrap_or(0).saturating_add(1));
        let wait = Wait::for_approval(millis(left));
        let rested = end_claim(
            &mut tx,
            &lease,
            LeaseChanges { finished: 0, finishes: &[], entries: 0, replies: 0, wait: &wait },
        )
        .await?;
        tx.commit().await?;
        Ok(SettleResult::Waiting(rested))
    }

    /// Returns the subject hash of a call that a person allowed; `None` if the call was not
    /// allowed.
    pub async fn approved_subject_hash(
        self,
        claim: &Claim,
        run: RunId,
        step: i32,
        call: &str,
    ) -> Result<Option<Vec<u8>>, Error> {
        const SQL: &str = "
            select subject_hash from session.approvals
            where tenant_id = $1 and run_id = $2 and step = $3 and call = $4
              and state in ('allowed_once', 'allowed_always')";
        let mut tx = self.pools.tenant(claim.tenant).await?;
        let hash = holdfast_pg::query_scalar(SQL)
            .bind(claim.tenant.as_uuid())
            .bind(run.as_uuid())
            .bind(step)
            .bind(call)
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(hash)
    }

    /// Expires the pending approvals of a turn that ends.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn withdraw(self, claim: &Claim, run: RunId) -> Result<(), Error> {
        const SQL: &str = "
            update session.approvals set state = 'expired', decided_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and state = 'pending' and run_id = $3
            returning approval_id";
        let mut tx = self.pools.tenant(claim.tenant).await?;
        lock_claimed(&mut tx, claim).await?;
        let withdrawn: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(run.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        emit_approval_event(&mut tx, claim.session, "approval.resolved", &withdrawn).await?;
        close(&mut tx, claim.session, &withdrawn).await?;
        Ok(tx.commit().await?)
    }

    /// Finishes a message that refers to an approval and decides nothing. Stores the reason as the
    /// message's outcome, and sends it if there is a target. The message does not become part of
    /// the waiting turn.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn reject_message(
        self,
        claim: &Claim,
        seq: i64,
        reason: &str,
        answer: Option<NewDelivery>,
    ) -> Result<(), Error> {
        const SQL: &str = "
            with finished as (
                update session.inbox
                set state = 'done', outcome = 'failed', reason = $4, run_id = message_id,
                    finished_at = clock_timestamp()
                where tenant_id = $1 and session_id = $2 and seq = $3 and state in ('new', 'seen')
                returning message_id),
            event as (
                insert into session.events (tenant_id, family, session_id, name, payload)
                select $1, 'messages', $2, 'MessageRejected',
                       jsonb_build_object('seq', $3::bigint, 'run', message_id)
                from finished),
            counted as (
                update session.session_lease
                set done_in = done_in + (select count(*) from finished),
                    next_out = next_out + $5
                where tenant_id = $1 and session_id = $2 and exists (select from finished))
            select message_id from finished";
        let mut tx = self.pools.tenant(claim.tenant).await?;
        let lease = lock_claimed(&mut tx, claim).await?;
        let message: Option<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(seq)
            .bind(reason)
            .bind(i64::from(answer.is_some()))
            .fetch_optional(tx.conn())
            .await?;
        if let (Some(message), Some(answer)) = (message, answer) {
            insert_reply(&mut tx, claim.session, message, lease.next_out, answer).await?;
        }
        Ok(tx.commit().await?)
    }
}

async fn insert_reply(
    tx: &mut TenantTx,
    session: SessionId,
    message: Uuid,
    next_out: i64,
    answer: NewDelivery,
) -> Result<(), Error> {
    insert_deliveries(tx, session, message.into(), next_out, &[answer]).await
}

/// Returns the decision about a call. A call without a record counts as expired, and is not made.
/// Id, state, reason of a denial, and milliseconds until it expires.
type CallRow = (String, String, Option<String>, i64);

fn decided_call(call: &str, rows: &[CallRow]) -> Option<DecidedCall> {
    let found = rows.iter().find(|(known, ..)| known == call);
    let (state, reason) = match found {
        Some((_, state, reason, _)) => (ApprovalState::parse(state), reason.clone()),
        None => (None, None),
    };
    let state = state.unwrap_or(ApprovalState::Expired);
    (state != ApprovalState::Pending).then(|| DecidedCall { call: call.to_owned(), state, reason })
}
