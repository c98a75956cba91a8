//! `memory.queue`: what is still to be embedded.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::TenantId;
use uuid::Uuid;

/// How often a unit is taken before it is given up.
pub const TRIES: i32 = 8;

/// The next tenant after this one for which something waits, in a circle.
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
        sqlx::query_scalar(SQL).bind(after).fetch_optional(tx.conn()).await?;
    if found.is_none() && !after.is_nil() {
        found = sqlx::query_scalar(SQL).bind(Uuid::nil()).fetch_optional(tx.conn()).await?;
    }
    Ok(found.map(TenantId::from))
}

/// Takes up to `most` units of a tenant for a minute. Who dies meanwhile leaves them to others; one
/// that was taken too often is nobody's.
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
    sqlx::query_scalar(SQL).bind(tenant.as_uuid()).bind(most).bind(TRIES).fetch_all(tx.conn()).await
}

/// Gives units back at once, as if they had not been taken: it was not their fault.
pub async fn give_back(tx: &mut SystemTx, tenant: TenantId, units: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "
        update memory.queue
        set attempts = greatest(attempts - 1, 0), ready_at = clock_timestamp()
        where tenant_id = $1 and unit_id = any ($2)";
    sqlx::query(SQL).bind(tenant.as_uuid()).bind(units).execute(tx.conn()).await?;
    Ok(())
}

/// What is embedded of a unit.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Waiting {
    /// The unit.
    pub unit_id: Uuid,
    /// The headings above it.
    pub headings: Vec<String>,
    /// Its text.
    pub text: String,
}

/// What is to be embedded of these units.
pub async fn texts(tx: &mut TenantTx, units: &[Uuid]) -> sqlx::Result<Vec<Waiting>> {
    const SQL: &str = "
        select unit_id, headings, text from memory.units
        where tenant_id = $1 and unit_id = any ($2) order by unit_id";
    let tenant = tx.tenant().as_uuid();
    sqlx::query_as(SQL).bind(tenant).bind(units).fetch_all(tx.conn()).await
}

/// These have their vectors.
pub async fn done(tx: &mut TenantTx, units: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "delete from memory.queue where tenant_id = $1 and unit_id = any ($2)";
    let tenant = tx.tenant().as_uuid();
    sqlx::query(SQL).bind(tenant).bind(units).execute(tx.conn()).await?;
    Ok(())
}

/// Queues the next units that have no vector of a model, in the order of their ids after `after`;
/// the last that was looked at, or `None` at the end.
pub async fn add_lacking(
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
    sqlx::query_scalar(SQL)
        .bind(tenant)
        .bind(model)
        .bind(after)
        .bind(most)
        .fetch_optional(tx.conn())
        .await
}

/// Whether anything of the tenant's waits that was not given up.
pub async fn waits(tx: &mut TenantTx) -> sqlx::Result<bool> {
    const SQL: &str = "
        select exists (
            select from memory.queue where tenant_id = $1 and ready_at < 'infinity')";
    let tenant = tx.tenant().as_uuid();
    sqlx::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

/// How many wait, and how many of those were given up.
pub async fn counts(tx: &mut TenantTx) -> sqlx::Result<(i64, i64)> {
    const SQL: &str = "
        select count(*), count(*) filter (where ready_at = 'infinity')
        from memory.queue where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    sqlx::query_as(SQL).bind(tenant).fetch_one(tx.conn()).await
}
