//! Requested erasures, and data that is stored after them: memory extraction may have been running
//! at the time of the request.
//!
//! The row in `memory.erasures` has the time of the request. The second pass erases what a session
//! or user said up to then; what was said since is kept.

use std::time::Duration;

use holdfast_pg::TenantTx;
use sqlx::types::Json;
use uuid::Uuid;

use super::{erasures::Rows, forget::Count};

/// Delay between the first and the second pass.
pub const DELAY: Duration = Duration::from_secs(15 * 60);

/// Records that a session (`session`) or user (`user`) was just erased, with the counts, and
/// schedules the second pass in `again` seconds.
pub async fn record_requested(
    tx: &mut TenantTx,
    (what, subject): (&str, &str),
    (erased, left): (&Rows, &Rows),
    again: f64,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into memory.erasures as e
            (tenant_id, what, subject, asked_at, until, passes, erased_at, erased, left_over, due_at)
        select $1, $2, $3, now, now, 1, now, $4, $5, now + make_interval(secs => $6)
        from clock_timestamp() as now
        on conflict (subject, what, tenant_id) do update
            set asked_at = excluded.asked_at, until = excluded.until, passes = 1,
                erased_at = excluded.erased_at, erased = excluded.erased,
                left_over = excluded.left_over, due_at = excluded.due_at
            where e.until is not null";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(what)
        .bind(subject)
        .bind(Json(erased))
        .bind(Json(left))
        .bind(again)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns the time up to which content is erased; `None` means all.
pub async fn until(tx: &mut TenantTx, erasure: Uuid) -> sqlx::Result<Option<jiff_sqlx::Timestamp>> {
    const SQL: &str = "select until from memory.erasures where tenant_id = $1 and erasure_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(erasure).fetch_one(tx.conn()).await
}

/// Erases content that was said up to `until` and stored later. Returns the erased and the
/// remaining rows by table.
pub async fn erase(
    tx: &mut TenantTx,
    (what, subject): (&str, &str),
    until: jiff_sqlx::Timestamp,
) -> sqlx::Result<(Vec<Count>, Vec<Count>)> {
    // Vectors and queue entries are deleted with their units.
    const OF_USER: [(&str, &str, &str); 2] = [
        (
            "units",
            "delete from memory.units where tenant_id = $1 and user_id = $2 and at <= $3 and kind < 6",
            "select count(*) from memory.units
             where tenant_id = $1 and user_id = $2 and at <= $3 and kind < 6",
        ),
        (
            "items",
            "delete from memory.items where tenant_id = $1 and user_id = $2 and at <= $3",
            "select count(*) from memory.items where tenant_id = $1 and user_id = $2 and at <= $3",
        ),
    ];
    const OF_SESSION: [(&str, &str, &str); 2] = [
        (
            "units",
            "delete from memory.units where tenant_id = $1 and session = $2 and at <= $3 and kind < 6",
            "select count(*) from memory.units
             where tenant_id = $1 and session = $2 and at <= $3 and kind < 6",
        ),
        (
            "items",
            "delete from memory.items where tenant_id = $1 and session = $2 and at <= $3",
            "select count(*) from memory.items where tenant_id = $1 and session = $2 and at <= $3",
        ),
    ];
    let tables = if what == "user" { OF_USER } else { OF_SESSION };
    let tenant = tx.tenant().as_uuid();
    let (mut erased, mut left) = (Vec::new(), Vec::new());
    for (table, delete, count) in tables {
        let gone = holdfast_pg::query(delete).bind(tenant).bind(subject).bind(until);
        let gone = gone.execute(tx.conn()).await?.rows_affected();
        erased.push((table, i64::try_from(gone).unwrap_or(i64::MAX)));
        let rows = holdfast_pg::query_scalar(count).bind(tenant).bind(subject).bind(until);
        left.push((table, rows.fetch_one(tx.conn()).await?));
    }
    Ok((erased, left))
}
