//! Reports about firings that were handed out: delivered, postponed, refused, finished.

use std::time::Duration;

use holdfast_types::{RunId, SessionId};

use super::{
    close::{EndKind, FiringEnd, lock},
    events::EVENT_FAMILY,
};
use crate::store::{
    Error, Firing, FiringRef, Jobs, Outcome,
    log::{class, column},
};

/// Report that a firing was delivered and runs; repeated to extend its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryReport {
    pub firing: FiringRef,
    /// Run that was started; `None` if there is none.
    pub run: Option<RunId>,
    /// Time that the firing may run, from now, before it is given up.
    pub lease: Duration,
    /// Session and seq of the message whose end is the firing's end; `None` if the deliverer
    /// reports the end itself.
    pub message: Option<(SessionId, i64)>,
    /// Whether success requires that the reply to the message was delivered.
    pub arrives: bool,
}

/// Firing that cannot be delivered now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostponedFiring {
    pub firing: Firing,
    /// Time until it is to be handed out again.
    pub after: Duration,
}

/// Firing that cannot be delivered at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub firing: Firing,
    /// [`Outcome::Error`], or [`Outcome::Skipped`] if nothing was wrong.
    pub outcome: Outcome,
    /// Reason as a single word; never a text from the user.
    pub class: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedFiring {
    pub firing: FiringRef,
    pub outcome: Outcome,
    /// Error as a single word; never a text from the user.
    pub class: Option<String>,
    pub took: Option<Duration>,
}

impl Jobs {
    /// Marks firings as delivered and running. Returns how many were still open.
    ///
    /// A report from a former holder counts too: the idempotency key made the message one. Firings
    /// that have ended are not changed.
    pub async fn mark_delivered(&self, delivered: &[DeliveryReport]) -> Result<u64, Error> {
        const SQL: &str = "
            with first as materialized (
                select f.tenant_id, f.job_id, f.slot
                from unnest($1::uuid[], $2::uuid[], $3::text[]) as d (tenant_id, job_id, slot)
                join schedule.firings f
                    on f.job_id = d.job_id and f.slot = d.slot and f.tenant_id = d.tenant_id
                where f.delivered_at is null),
            told as (
                update schedule.firings f
                set state = 'delivered', held = false, offer_at = null,
                    until = clock_timestamp() + d.lease * interval '1 second',
                    run_id = coalesce(d.run_id, f.run_id),
                    session_id = coalesce(d.session_id, f.session_id), seq = coalesce(d.seq, f.seq),
                    arrives = f.arrives or d.arrives, patience = null,
                    delivered_at = coalesce(f.delivered_at, clock_timestamp())
                from unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::float8[],
                            $6::uuid[], $7::bigint[], $8::boolean[])
                     as d (tenant_id, job_id, slot, run_id, lease, session_id, seq, arrives)
                where f.job_id = d.job_id and f.slot = d.slot and f.tenant_id = d.tenant_id
                  and f.state in ('pending', 'delivered')
                returning f.tenant_id, f.job_id, f.slot, f.until, f.session_id),
            event as (
                insert into session.events (tenant_id, family, session_id, name, payload)
                select t.tenant_id, $9, coalesce(t.session_id, '00000000-0000-0000-0000-000000000000'),
                       'job.fired', jsonb_build_object(
                           'job', 'job_' || replace(t.job_id::text, '-', ''), 'slot', t.slot)
                from told t join first using (tenant_id, job_id, slot)),
            running as (
                update schedule.jobs j set running_until = t.until
                from told t
                where j.job_id = t.job_id and j.tenant_id = t.tenant_id and j.running_slot = t.slot)
            select count(*) from told";

        if delivered.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pools.system().await?;
        lock(tx.conn(), delivered.iter().map(|one| one.firing)).await?;
        let count: i64 = holdfast_pg::query_scalar(SQL)
            .bind(column(delivered, |one| one.firing.tenant.as_uuid()))
            .bind(column(delivered, |one| one.firing.job.as_uuid()))
            .bind(column(delivered, |one| one.firing.slot.to_string()))
            .bind(column(delivered, |one| one.run.map(RunId::as_uuid)))
            .bind(column(delivered, |one| one.lease.as_secs_f64()))
            .bind(column(delivered, |one| one.message.map(|message| message.0.as_uuid())))
            .bind(column(delivered, |one| one.message.map(|message| message.1)))
            .bind(column(delivered, |one| one.arrives))
            .bind(EVENT_FAMILY)
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(count.unsigned_abs())
    }

    /// Hands firings back for a while. Returns how many the caller still held. Resets the loss
    /// counter, since the caller survived the firing.
    pub async fn postpone(&self, postponed: &[PostponedFiring]) -> Result<u64, Error> {
        // The job counts as running until the firing is handed out again, so that a slot in between
        // overlaps with it.
        const SQL: &str = "
            with later as (
                update schedule.firings f
                set held = false, lost = 0, offer_at = clock_timestamp() + p.after * interval '1 second'
                from unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::float8[])
                     as p (tenant_id, job_id, slot, attempt, after)
                where f.job_id = p.job_id and f.slot = p.slot and f.tenant_id = p.tenant_id
                  and f.state = 'pending' and f.attempts = p.attempt
                returning f.tenant_id, f.job_id, f.slot, f.offer_at),
            running as (
                update schedule.jobs j
                set running_until = greatest(j.running_until, l.offer_at + $6 * interval '1 second')
                from later l
                where j.job_id = l.job_id and j.tenant_id = l.tenant_id and j.running_slot = l.slot)
            select count(*) from later";

        if postponed.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pools.system().await?;
        lock(tx.conn(), postponed.iter().map(|one| one.firing.id)).await?;
        let count: i64 = holdfast_pg::query_scalar(SQL)
            .bind(column(postponed, |one| one.firing.id.tenant.as_uuid()))
            .bind(column(postponed, |one| one.firing.id.job.as_uuid()))
            .bind(column(postponed, |one| one.firing.id.slot.to_string()))
            .bind(column(postponed, |one| one.firing.attempt))
            .bind(column(postponed, |one| one.after.as_secs_f64()))
            .bind(self.handover.as_secs_f64())
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(count.unsigned_abs())
    }

    /// Ends firings that cannot be delivered. Returns how many the caller still held. An error
    /// delays the job's next slot, and is retried if there is none.
    pub async fn refuse(&self, refused: &[Refused]) -> Result<u64, Error> {
        let closing: Vec<FiringEnd> = refused
            .iter()
            .map(|one| FiringEnd {
                id: one.firing.id,
                how: EndKind::Refused,
                attempt: one.firing.attempt,
                outcome: one.outcome,
                class: Some(class(&one.class)),
                millis: None,
            })
            .collect();
        self.close(&closing).await
    }

    /// Ends firings that have run. Returns how many were still open.
    ///
    /// An error delays the job's next slot by 30 s, 1, 5, 15 or 60 min, by the number of
    /// consecutive errors. A job that has no slot left is retried up to three times, unless its
    /// reply is still being delivered ([`UNSENT`](crate::store::CLASS_UNSENT)). Without slot and retry the job
    /// is done, and is deleted if it succeeded and `delete_after_run` is set.
    pub async fn finish(&self, ended: &[FinishedFiring]) -> Result<u64, Error> {
        let closing: Vec<FiringEnd> = ended
            .iter()
            .map(|one| FiringEnd {
                id: one.firing,
                how: EndKind::Finished,
                attempt: 0,
                outcome: one.outcome,
                class: one.class.as_deref().map(class),
                millis: one.took.map(|took| i64::try_from(took.as_millis()).unwrap_or(i64::MAX)),
            })
            .collect();
        self.close(&closing).await
    }
}
