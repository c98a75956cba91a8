//! Writing one step of a turn.

use holdfast_pg::TenantTx;
use holdfast_types::{ChannelAction, Entry, RunId, SessionId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{
    Claim, Error, NewDelivery, Sessions, StepSignals, StepWrite, WriteCost,
    protocol::{behaviors::apply_effects, outside_text::mark_outside_text},
    sessions::lock_claimed,
    summary::copy_summary_to_session,
    system_events::apply_system_events,
};

impl Sessions {
    /// Writes one step, if the claim is current.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current: stop, and write nothing more.
    /// [`Error::JournalMoved`] if the journal or the inbox is not as the caller read it. After any other
    /// error it is unknown whether the step was written; [`load`](Self::load) shows it.
    pub async fn append(&self, claim: &Claim, append: StepWrite) -> Result<StepSignals, Error> {
        self.append_with_cost(claim, append, &WriteCost::default()).await
    }

    /// Writes one step like [`append`](Self::append), together with its cost.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append).
    pub async fn append_with_cost(
        &self,
        claim: &Claim,
        append: StepWrite,
        spent: &WriteCost,
    ) -> Result<StepSignals, Error> {
        // The fence comes first, under the row's lock, and all writes depend on its row. `ingest`
        // locks this row before it touches the inbox; the other order would deadlock with a
        // repeated message.
        const SQL: &str = "
            with held as materialized (
                select next_entry from session.session_lease
                where tenant_id = $1 and session_id = $2 and epoch = $3 and owner = $12
                  and state = 'RUNNING'
                  and next_entry = coalesce($11, next_entry)
                  and ($13::bigint is null or exists (
                      select from session.inbox i
                      where i.tenant_id = $1 and i.session_id = $2 and i.seq = $13
                        and i.message_id = $14))
                for update),
            marked as (
                update session.inbox i set state = 'seen', run_id = $4
                from held
                where i.tenant_id = $1 and i.session_id = $2 and i.seq = any($5) and i.state = 'new'),
            written as (
                insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
                select $1, $2, held.next_entry + e.n - 1, $3, $4, e.kind, e.body
                from held, unnest($6::text[], $7::jsonb[]) with ordinality as e (kind, body, n))
            update session.session_lease l
            set next_entry = l.next_entry + $8, next_out = l.next_out + $9,
                attempts = case when $10 then 0 else attempts end,
                retries = case when $10 then 0 else retries end
            from held
            where l.tenant_id = $1 and l.session_id = $2
            returning paused is not null, cancel_upto, next_in, l.next_entry, next_out - $9";

        let count = |items: usize| i64::try_from(items).unwrap_or(i64::MAX);
        // Without a run no entries are written: only the cost is, and the signals are read.
        let append = if append.run.is_some() { append } else { StepWrite::default() };
        let StepWrite { run, at, newest, entries, seen, deliveries, no_progress, effects } = append;
        let run = run.unwrap_or_else(|| Uuid::nil().into());
        let progress = !no_progress && entries.iter().any(Entry::is_progress);

        let mut tx = self.pools.tenant(claim.tenant).await?;
        let row: Option<(bool, i64, i64, i64, i64)> = holdfast_pg::query_as(SQL)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(claim.epoch)
            .bind(run.as_uuid())
            .bind(&seen)
            .bind(entries.iter().map(Entry::kind).collect::<Vec<_>>())
            .bind(entries.iter().map(Json).collect::<Vec<_>>())
            .bind(count(entries.len()))
            .bind(count(deliveries.len()))
            .bind(progress)
            .bind(at)
            .bind(claim.runner.as_uuid())
            .bind(newest.map(|(seq, _)| seq))
            .bind(newest.map(|(_, message)| message.as_uuid()))
            .fetch_optional(tx.conn())
            .await?;
        let Some((pause, cancel_upto, next_in, next_entry, next_out)) = row else {
            let held = lock_claimed(&mut tx, claim).await;
            tx.rollback().await?;
            return Err(held.err().unwrap_or(Error::JournalMoved));
        };
        if !deliveries.is_empty() {
            insert_deliveries(&mut tx, claim.session, run, next_out, &deliveries).await?;
        }
        copy_summary_to_session(&mut tx, claim.session, &entries).await?;
        mark_outside_text(&mut tx, claim.session, &entries).await?;
        apply_system_events(&mut tx, run, &entries).await?;
        apply_effects(&mut tx, effects.as_ref()).await?;
        spent.charge_budgets(&mut tx).await?;
        tx.commit().await?;
        Ok(StepSignals { pause, cancel_upto, next_in, next_entry })
    }
}

/// Stores deliveries. A delivery whose id is already stored stays unchanged. All delays begin at
/// one time, so that the pauses between them are exact.
pub(crate) async fn insert_deliveries(
    tx: &mut TenantTx,
    session: SessionId,
    run: RunId,
    first: i64,
    deliveries: &[NewDelivery],
) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.deliveries
            (tenant_id, session_id, out_seq, delivery_id, run_id, channel, account_id, target, body, act,
             is_cosmetic, next_at, trace)
        select $1, $2, d.seq, d.id, $3, d.channel, d.account, d.target, d.body, d.act, d.is_cosmetic,
               statement_timestamp() + d.delay * interval '1 millisecond',
               (select trace from session.inbox i
                where i.tenant_id = $1 and i.session_id = $2 and i.message_id = $3)
        from unnest($4::bigint[], $5::uuid[], $6::text[], $7::uuid[], $8::jsonb[], $9::text[],
                    $10::jsonb[], $11::boolean[], $12::bigint[])
             as d (seq, id, channel, account, target, body, act, is_cosmetic, delay)
        on conflict on constraint deliveries_id_key do nothing";

    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(run.as_uuid())
        .bind((first..).take(deliveries.len()).collect::<Vec<i64>>())
        .bind(deliveries.iter().map(|d| d.id.as_uuid()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.target.channel.as_str()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.target.account.as_uuid()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| Json(&d.target)).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.text.as_str()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.act.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(
            deliveries
                .iter()
                .map(|d| d.act.as_ref().is_some_and(ChannelAction::is_cosmetic))
                .collect::<Vec<_>>(),
        )
        .bind(
            deliveries
                .iter()
                .map(|d| i64::try_from(d.delay.as_millis()).unwrap_or(i64::MAX))
                .collect::<Vec<_>>(),
        )
        .execute(tx.conn())
        .await?;
    Ok(())
}
