//! Writing a step of a turn, and the statement that all writes of a turn share.

use holdfast_pg::TenantTx;
use holdfast_types::{Entry, RunId, SessionId};
use sqlx::types::Json;

use crate::{
    Append, Appended, Claim, Error, NewDelivery, Sessions,
    sessions::{Lease, lock_claimed},
};

impl Sessions {
    /// Writes what happened in a step, if the session is still this runner's.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if it is not: stop, and write nothing more. After any other error nobody
    /// knows whether it was written; [`load`](Self::load) tells.
    pub async fn append(&self, claim: &Claim, append: Append) -> Result<Appended, Error> {
        const LEASE: &str = "
            update session.session_lease
            set next_entry = next_entry + $3, next_out = next_out + $4,
                attempts = case when $5 then 0 else attempts end
            where tenant_id = $1 and session_id = $2";

        let progress = append.entries.iter().any(Entry::is_progress);
        let written = Written {
            run: append.run,
            entries: &append.entries,
            seen: &append.seen,
            deliveries: &append.deliveries,
        };

        let mut tx = self.pools.tenant(claim.tenant).await?;
        let lease = lock_claimed(&mut tx, claim).await?;
        write(&mut tx, &lease, &written).await?;
        sqlx::query(LEASE)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(written.entry_count())
            .bind(written.delivery_count())
            .bind(progress)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;

        Ok(Appended {
            pause: lease.paused,
            cancel_upto: lease.cancel_upto,
            next_in: lease.next_in,
            next_entry: lease.next_entry + written.entry_count(),
        })
    }
}

/// What a turn writes besides its end.
pub(crate) struct Written<'a> {
    pub run: Option<RunId>,
    pub entries: &'a [Entry],
    pub seen: &'a [i64],
    pub deliveries: &'a [NewDelivery],
}

impl Written<'_> {
    pub fn entry_count(&self) -> i64 {
        i64::try_from(self.entries.len()).unwrap_or(i64::MAX)
    }

    pub fn delivery_count(&self) -> i64 {
        i64::try_from(self.deliveries.len()).unwrap_or(i64::MAX)
    }
}

/// Writes entries, marks and replies under a lease that is locked.
pub(crate) async fn write(
    tx: &mut TenantTx,
    lease: &Lease,
    written: &Written<'_>,
) -> Result<(), Error> {
    const ENTRIES: &str = "
        with marked as (
            update session.inbox set state = 'seen', run_id = $4
            where tenant_id = $1 and session_id = $2 and seq = any($8) and state = 'new')
        insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
        select $1, $2, e.seq, $3, $4, e.kind, e.body
        from unnest($5::bigint[], $6::text[], $7::jsonb[]) as e (seq, kind, body)";

    let tenant = tx.tenant();
    if let Some(run) = written.run
        && !(written.entries.is_empty() && written.seen.is_empty())
    {
        sqlx::query(ENTRIES)
            .bind(tenant.as_uuid())
            .bind(lease.session.as_uuid())
            .bind(lease.epoch)
            .bind(run.as_uuid())
            .bind((lease.next_entry..).take(written.entries.len()).collect::<Vec<i64>>())
            .bind(written.entries.iter().map(Entry::kind).collect::<Vec<_>>())
            .bind(written.entries.iter().map(Json).collect::<Vec<_>>())
            .bind(written.seen)
            .execute(tx.conn())
            .await?;
    }
    if let Some(run) = written.run
        && !written.deliveries.is_empty()
    {
        deliver(tx, lease.session, run, lease.next_out, written.deliveries).await?;
    }
    Ok(())
}

/// Stores replies to send. One that has been stored under its id stays as it is.
pub(crate) async fn deliver(
    tx: &mut TenantTx,
    session: SessionId,
    run: RunId,
    first: i64,
    deliveries: &[NewDelivery],
) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.deliveries
            (tenant_id, session_id, out_seq, delivery_id, run_id, channel, account_id, target, body, trace)
        select $1, $2, d.seq, d.id, $3, d.channel, d.account, d.target, d.body,
               (select trace from session.inbox i
                where i.tenant_id = $1 and i.session_id = $2 and i.message_id = $3)
        from unnest($4::bigint[], $5::uuid[], $6::text[], $7::uuid[], $8::jsonb[], $9::text[])
             as d (seq, id, channel, account, target, body)
        on conflict on constraint deliveries_id_key do nothing";

    let tenant = tx.tenant();
    sqlx::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(run.as_uuid())
        .bind((first..).take(deliveries.len()).collect::<Vec<i64>>())
        .bind(deliveries.iter().map(|d| d.id.as_uuid()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.target.channel.as_str()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.target.account.as_uuid()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| Json(&d.target)).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.text.as_str()).collect::<Vec<_>>())
        .execute(tx.conn())
        .await?;
    Ok(())
}
