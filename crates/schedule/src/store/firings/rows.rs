//! Writes to firings whose jobs are locked.

use holdfast_pg::Connection;
use uuid::Uuid;

use super::close::FiringEnd;
use crate::store::{Error, Slot, log::column};

/// Closed firing: index in the input, from 1; slot time, origin, run and session.
pub(crate) type ClosedRow = (i64, jiff_sqlx::Timestamp, String, Option<Uuid>, Option<Uuid>);

pub(crate) async fn close(
    conn: &mut Connection,
    closing: &[FiringEnd],
) -> Result<Vec<ClosedRow>, Error> {
    const SQL: &str = "
        update schedule.firings f
        set state = case when e.how = 'refused' then 'refused' else 'done' end,
            held = false, offer_at = null, until = null, closed_at = clock_timestamp()
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::integer[])
             with ordinality as e (tenant_id, job_id, slot, how, attempt, place)
        where f.job_id = e.job_id and f.slot = e.slot and f.tenant_id = e.tenant_id
          and case e.how
                when 'finished' then f.state in ('pending', 'delivered')
                when 'refused' then f.state = 'pending' and f.attempts = e.attempt
                else f.state = 'delivered' and f.until <= clock_timestamp()
              end
        returning e.place, f.slot_at, f.origin, f.run_id, f.session_id";

    let mut rows: Vec<ClosedRow> = holdfast_pg::query_as(SQL)
        .bind(column(closing, |one| one.id.tenant.as_uuid()))
        .bind(column(closing, |one| one.id.job.as_uuid()))
        .bind(column(closing, |one| one.id.slot.to_string()))
        .bind(column(closing, |one| one.how.as_str()))
        .bind(column(closing, |one| one.attempt))
        .fetch_all(conn)
        .await?;
    rows.sort_by_key(|row| (row.1.to_jiff(), row.0));
    Ok(rows)
}

/// Retry of a firing: tenant, job, slot and delay in seconds.
pub(crate) type Retry = (Uuid, Uuid, Slot, i32);

pub(crate) async fn retry(conn: &mut Connection, retries: &[Retry]) -> Result<(), Error> {
    const SQL: &str = "
        insert into schedule.firings (tenant_id, job_id, slot, slot_at, origin, offer_at)
        select tenant_id, job_id, slot, slot_at, 'retry',
               clock_timestamp() + pause * interval '1 second'
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::integer[])
             as r (tenant_id, job_id, slot, slot_at, pause)
        on conflict (job_id, slot, tenant_id) do nothing";

    if retries.is_empty() {
        return Ok(());
    }
    let at = |slot: &Slot| match slot {
        Slot::At(at) | Slot::Again { at, .. } => Some(jiff_sqlx::Timestamp::from(*at)),
        Slot::Now(_) => None,
    };
    holdfast_pg::query(SQL)
        .bind(column(retries, |retry| retry.0))
        .bind(column(retries, |retry| retry.1))
        .bind(column(retries, |retry| retry.2.to_string()))
        .bind(column(retries, |retry| at(&retry.2)))
        .bind(column(retries, |retry| retry.3))
        .execute(conn)
        .await?;
    Ok(())
}

/// Makes all pending firings of a resumed job available. Returns how many.
pub(crate) async fn release(conn: &mut Connection, tenant: Uuid, job: Uuid) -> Result<u64, Error> {
    const SQL: &str = "
        update schedule.firings set offer_at = coalesce(offer_at, clock_timestamp())
        where job_id = $2 and tenant_id = $1 and state = 'pending'";
    Ok(holdfast_pg::query(SQL).bind(tenant).bind(job).execute(conn).await?.rows_affected())
}

/// Makes the oldest waiting firing of each job available.
pub(crate) async fn wake(conn: &mut Connection, jobs: &[(Uuid, Uuid)]) -> Result<(), Error> {
    const SQL: &str = "
        update schedule.firings f set offer_at = clock_timestamp()
        from unnest($1::uuid[], $2::uuid[]) as k (tenant_id, job_id)
        cross join lateral (
            select w.slot from schedule.firings w
            where w.job_id = k.job_id and w.tenant_id = k.tenant_id
              and w.state = 'pending' and w.offer_at is null
            order by w.slot_at limit 1) next
        where f.job_id = k.job_id and f.tenant_id = k.tenant_id and f.slot = next.slot";

    if jobs.is_empty() {
        return Ok(());
    }
    holdfast_pg::query(SQL)
        .bind(column(jobs, |job| job.0))
        .bind(column(jobs, |job| job.1))
        .execute(conn)
        .await?;
    Ok(())
}
