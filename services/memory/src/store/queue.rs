//! `memory.queue`: units that wait for embedding.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::TenantId;
use uuid::Uuid;

/// Attempts before a unit is given up.
pub const MAX_ATTEMPTS: i32 = 8;

/// Returns the next tenant after `after` with queued units; continues from the first one at the
/// end.
pub async fn next_tenant(
    tx: &mut SystemTx,
    after: Option<TenantId>,
) -> sqlx::Result<Option<TenantId>> {
    const SQL: &str = "
        select tenant_id from memory.queue
        where tenant_id > $1 and ready_at <= clock_timestamp()
        order by tenant_id limit 1";
    let after = after.map_or(Uuid::nil(), TenantId::as_uuid);
    let mut found: Option<Uuid> =
        holdfast_pg::query_scalar(SQL).bind(after).fetch_optional(tx.conn()).await?;
    if found.is_none() && !after.is_nil() {
        found = holdfast_pg::query_scalar(SQL).bind(Uuid::nil()).fetch_optional(tx.conn()).await?;
    }
    Ok(found.map(TenantId::from))
}

/// Claims up to `most` units of a tenant for a minute. If this process crashes, another one claims
/// them again; after [`TRIES`] claims a unit is given up.
pub async fn claim(tx: &mut SystemTx, tenant: TenantId, most: i64) -> sqlx::Result<Vec<Uuid>> {
    const SQL: &str = "
        update memory.queue q
        set attempts = attempts + 1,
            ready_at = case when attempts + 1 >= $3 then 'infinity'
                            else clock_timestamp() + interval '60 seconds' end
        where q.tenant_id = $1 and q.unit_id in (
            select unit_id from memory.queue
            where tenant_id = $1 and ready_at <= clock_timestamp()
            order by ready_at limit $2
            for update skip locked)
        returning q.unit_id";
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(most)
        .bind(MAX_ATTEMPTS)
        .fetch_all(tx.conn())
        .await
}

/// Returns units to the queue at once without counting the attempt, after a failure that is not
/// theirs.
pub async fn give_back(tx: &mut SystemTx, tenant: TenantId, units: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "
        update memory.queue
        set attempts = greatest(attempts - 1, 0), ready_at = clock_timestamp()
        where tenant_id = $1 and unit_id = any ($2)";
    holdfast_pg::query(SQL).bind(tenant.as_uuid()).bind(units).execute(tx.conn()).await?;
    Ok(())
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct QueuedUnit {
    pub unit_id: Uuid,
    pub headings: Vec<String>,
    pub text: String,
}

/// Returns the texts to embed.
pub async fn texts(tx: &mut TenantTx, units: &[Uuid]) -> sqlx::Result<Vec<QueuedUnit>> {
    const SQL: &str = "
        select unit_id, headings, text from memory.units
        where tenant_id = $1 and unit_id = any ($2) order by unit_id";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(units).fetch_all(tx.conn()).await
}

pub async fn done(tx: &mut TenantTx, units: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "delete from memory.queue where tenant_id = $1 and unit_id = any ($2)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(units).execute(tx.conn()).await?;
    Ok(())
}

/// Queues units that have no vector of a model, one page by id after `after`. Returns the last id
/// of the page, `None` at the end.
pub async fn queue_missing(
    tx: &mut TenantTx,
    model: &str,
    after: Uuid,
    most: i64,
) -> sqlx::Result<Option<Uuid>> {
    const SQL: &str = "
        with page as (
            select unit_id from memory.units
            where tenant_id = $1 and place >= 0 and unit_id > $3 order by unit_id limit $4
        ), added as (
            insert into memory.queue (tenant_id, unit_id)
            select $1, p.unit_id from page p
            where not exists (
                select from memory.vectors v
                where v.unit_id = p.unit_id and v.tenant_id = $1 and v.model = $2)
            on conflict do nothing
        )
        select unit_id from page order by unit_id desc limit 1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(model)
        .bind(after)
        .bind(most)
        .fetch_optional(tx.conn())
        .await
}

/// Returns whether the tenant has queued units that are not given up.
pub async fn has_queued(tx: &mut TenantTx) -> sqlx::Result<bool> {
    const SQL: &str = "
        select exists (
            select from memory.queue where tenant_id = $1 and ready_at < 'infinity')";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

/// Returns the number of queued units and of those given up.
pub async fn counts(tx: &mut TenantTx) -> sqlx::Result<(i64, i64)> {
    const SQL: &str = "
        select count(*), count(*) filter (where ready_at = 'infinity')
        from memory.queue where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).fetch_one(tx.conn()).await
}
