//! `memory.erasures`: deleted sessions and agents, requested erasures, and their results.

use std::collections::BTreeMap;

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::TenantId;
use sqlx::types::Json;
use uuid::Uuid;

use super::forget::Count;

pub type Rows = BTreeMap<String, i64>;

/// Adds counts to the rows by table.
pub fn add_counts(mut rows: Rows, counts: &[Count]) -> Rows {
    for (what, count) in counts {
        *rows.entry((*what).to_owned()).or_default() += count;
    }
    rows
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Erasure {
    /// `session`, `user` or `agent`.
    pub what: String,
    /// Id of the session or agent, as in the memory tables.
    pub subject: String,
    /// Number of passes so far.
    pub passes: i32,
    pub erased: Json<Rows>,
}

/// Returns the due erasures of all tenants, at most 50.
pub async fn due(tx: &mut SystemTx) -> sqlx::Result<Vec<(TenantId, Uuid)>> {
    const SQL: &str = "
        select tenant_id, erasure_id from memory.erasures
        where due_at <= now() and due_at is not null order by due_at limit 50";
    let found: Vec<(Uuid, Uuid)> = holdfast_pg::query_as(SQL).fetch_all(tx.conn()).await?;
    Ok(found.into_iter().map(|(tenant, id)| (TenantId::from(tenant), id)).collect())
}

/// Locks and returns a due erasure; `None` if another process has it or it is done.
pub async fn take(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<Option<Erasure>> {
    const SQL: &str = "
        select what, subject, passes, erased from memory.erasures
        where tenant_id = $1 and erasure_id = $2 and due_at <= now()
        for update skip locked";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(id).fetch_optional(tx.conn()).await
}

/// Records the result of a pass. `again` is the delay of the next pass in seconds; `None` ends the
/// erasure.
pub async fn record_pass(
    tx: &mut TenantTx,
    id: Uuid,
    (erased, left): (&Rows, &Rows),
    again: Option<f64>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        update memory.erasures
        set passes = passes + 1, erased_at = clock_timestamp(), erased = $3, left_over = $4,
            due_at = clock_timestamp() + make_interval(secs => $5)
        where tenant_id = $1 and erasure_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(id)
        .bind(Json(erased))
        .bind(Json(left))
        .bind(again)
        .execute(tx.conn())
        .await?;
    Ok(())
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ErasureStatus {
    pub what: String,
    pub subject: String,
    pub asked_at: jiff_sqlx::Timestamp,
    pub erased_at: Option<jiff_sqlx::Timestamp>,
    pub done: bool,
    pub erased: Json<Rows>,
    pub left_over: Json<Rows>,
}

/// Lists a tenant's erasures, newest first; of one subject if it is not empty.
pub async fn list(
    tx: &mut TenantTx,
    subject: &str,
    limit: i64,
) -> sqlx::Result<Vec<ErasureStatus>> {
    const SQL: &str = "
        select what, subject, asked_at, erased_at, due_at is null as done, erased, left_over
        from memory.erasures
        where tenant_id = $1 and ($2 = '' or subject = $2)
        order by asked_at desc limit $3";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(subject).bind(limit).fetch_all(tx.conn()).await
}
