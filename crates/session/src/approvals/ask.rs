//! Requesting approvals: the requests, the journal's notes and the session's wait, all or nothing.

use std::time::Duration;

use holdfast_pg::TenantTx;
use holdfast_types::{SessionId, Wait};
use uuid::Uuid;

use super::{ApprovalBatch, NewApproval, WaitResult, emit_approval_event, millis, subject_hash};
use crate::{
    Approvals, Claim, Error,
    protocol::{
        append::insert_deliveries,
        complete::{LeaseChanges, end_claim},
        outside_text::mark_outside_text,
        sweep::append_entries,
    },
    sessions::{has_message, lock_claimed},
    system_events::apply_system_events,
};

impl Approvals<'_> {
    /// Requests approvals for calls, and makes the session wait until one of them is decided or
    /// expires. The caller's claim ends.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current, [`Error::JournalMoved`] if the journal or the
    /// inbox is not as the caller read it. After any other error it is unknown whether the requests were
    /// stored; [`load`](crate::Sessions::load) shows it.
    pub async fn ask(self, claim: &Claim, ask: ApprovalBatch) -> WaitResult {
        const MARK_SEEN: &str = "
            update session.inbox set state = 'seen', run_id = $3
            where tenant_id = $1 and session_id = $2 and seq = any($4) and state = 'new'";

        let count = |items: usize| i64::try_from(items).unwrap_or(i64::MAX);
        let mut tx = self.pools.tenant(claim.tenant).await?;
        let lease = lock_claimed(&mut tx, claim).await?;
        if ask.at != lease.next_entry || !has_message(&mut tx, claim.session, ask.newest).await? {
            tx.rollback().await?;
            return Err(Error::JournalMoved);
        }
        append_entries(&mut tx, &lease, ask.run, &ask.entries).await?;
        apply_system_events(&mut tx, ask.run, &ask.entries).await?;
        mark_outside_text(&mut tx, claim.session, &ask.entries).await?;
        holdfast_pg::query(MARK_SEEN)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(ask.run.as_uuid())
            .bind(&ask.seen)
            .execute(tx.conn())
            .await?;
        let requests = ask.approvals.iter().filter_map(|new| new.request.clone());
        let deliveries: Vec<_> = ask.deliveries.iter().cloned().chain(requests).collect();
        insert_deliveries(&mut tx, claim.session, ask.run, lease.next_out, &deliveries).await?;
        for new in &ask.approvals {
            store(&mut tx, claim.session, &ask, new).await?;
        }
        let ids: Vec<Uuid> = ask.approvals.iter().map(|new| new.id.as_uuid()).collect();
        emit_approval_event(&mut tx, claim.session, "approval.requested", &ids).await?;
        let first = ask.approvals.iter().map(|new| new.timeout).min();
        let wait = Wait::for_approval(millis(first.unwrap_or(Duration::ZERO)));
        let rested = end_claim(
            &mut tx,
            &lease,
            LeaseChanges {
                finished: 0,
                finishes: &[],
                entries: count(ask.entries.len()),
                replies: count(deliveries.len()),
                wait: &wait,
            },
        )
        .await?;
        tx.commit().await?;
        Ok(rested)
    }
}

async fn store(
    tx: &mut TenantTx,
    session: SessionId,
    ask: &ApprovalBatch,
    new: &NewApproval,
) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.approvals
            (tenant_id, approval_id, slug, session_id, agent_id, run_id, step, call, tool, subject,
             subject_hash, summary, pattern, expires_at, asked_in)
        select $1, $2, $3, $4, agent_id, $5, $6, $7, $8, $9, $10, $11, $12,
               clock_timestamp() + $13 * interval '1 millisecond', $14
        from session.sessions where tenant_id = $1 and session_id = $4";
    const LINK_REQUEST: &str = "
        update session.deliveries set approval_id = $3
        where tenant_id = $1 and delivery_id = $2";

    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(new.id.as_uuid())
        .bind(new.id.slug())
        .bind(session.as_uuid())
        .bind(ask.run.as_uuid())
        .bind(new.step)
        .bind(&new.call)
        .bind(&new.tool)
        .bind(&new.subject)
        .bind(subject_hash(&new.subject).as_slice())
        .bind(&new.summary)
        .bind(&new.pattern)
        .bind(i64::try_from(new.timeout.as_millis()).unwrap_or(i64::MAX))
        .bind(new.asked_in.map(SessionId::as_uuid))
        .execute(tx.conn())
        .await?;
    if let Some(request) = &new.request {
        holdfast_pg::query(LINK_REQUEST)
            .bind(tenant.as_uuid())
            .bind(request.id.as_uuid())
            .bind(new.id.as_uuid())
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}
