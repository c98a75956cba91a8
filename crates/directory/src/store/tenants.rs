//! `control.tenants`.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::TenantId;
use jiff_sqlx::ToSqlx as _;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, PlanLimits, Product, Tenant, TenantChanges, TenantState};

#[derive(sqlx::FromRow)]
struct Row {
    tenant_id: Uuid,
    name: String,
    state: String,
    rate: i32,
    product: Json<Product>,
    plan: Option<String>,
    limits: Json<PlanLimits>,
    own_limits: Vec<String>,
    expires_at: Option<jiff_sqlx::Timestamp>,
    created_at: jiff_sqlx::Timestamp,
    is_deleting: bool,
}

impl Row {
    fn read(self) -> Result<Tenant, Error> {
        Ok(Tenant {
            id: self.tenant_id.into(),
            name: self.name,
            state: match self.is_deleting {
                true => TenantState::Deleting,
                false => TenantState::parse(&self.state)?,
            },
            rate: self.rate.unsigned_abs(),
            product: self.product.0,
            plan: self.plan,
            limits: self.limits.0,
            own_limits: self.own_limits,
            expires_at: self.expires_at.map(jiff_sqlx::Timestamp::to_jiff),
            created_at: self.created_at.to_jiff(),
        })
    }
}

pub(crate) async fn insert(tx: &mut TenantTx, name: &str, data_key: &[u8]) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.tenants (tenant_id, name, data_key) values ($1, $2, $3)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(name).bind(data_key).execute(tx.conn()).await?;
    Ok(())
}

/// Locks the tenant against other changes. Returns whether it exists.
pub(crate) async fn lock(tx: &mut TenantTx) -> sqlx::Result<bool> {
    const SQL: &str = "select 1 from control.tenants where tenant_id = $1 for no key update";
    let tenant = tx.tenant().as_uuid();
    let found: Option<i32> =
        holdfast_pg::query_scalar(SQL).bind(tenant).fetch_optional(tx.conn()).await?;
    Ok(found.is_some())
}

/// Makes all queries of the transaction see one snapshot. Must be the first statement.
pub(crate) async fn use_snapshot(tx: &mut TenantTx) -> sqlx::Result<()> {
    const SQL: &str = "set transaction isolation level repeatable read, read only";
    holdfast_pg::query(SQL).execute(tx.conn()).await?;
    Ok(())
}

pub(crate) async fn data_key(tx: &mut TenantTx) -> sqlx::Result<Option<Vec<u8>>> {
    const SQL: &str = "select data_key from control.tenants where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_optional(tx.conn()).await
}

/// Replaces the sealed data key.
pub(crate) async fn set_data_key(tx: &mut TenantTx, data_key: &[u8]) -> sqlx::Result<()> {
    const SQL: &str = "update control.tenants set data_key = $2 where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(data_key).execute(tx.conn()).await?;
    Ok(())
}

/// Returns up to `limit` tenants in the order of their ids, after this one.
pub(crate) async fn ids_after(
    tx: &mut SystemTx,
    after: Option<TenantId>,
    limit: u16,
) -> sqlx::Result<Vec<TenantId>> {
    const SQL: &str = "select tenant_id from control.tenants where $1::uuid is null or tenant_id > $1 \
                       order by tenant_id limit $2";
    let ids: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
        .bind(after.map(TenantId::as_uuid))
        .bind(i64::from(limit))
        .fetch_all(tx.conn())
        .await?;
    Ok(ids.into_iter().map(TenantId::from).collect())
}

pub(crate) async fn get(tx: &mut TenantTx) -> Result<Option<Tenant>, Error> {
    const SQL: &str = "select tenant_id, name, state, rate, product, plan, limits, own_limits, \
                              expires_at, created_at, deleting_at is not null as is_deleting \
                       from control.tenants \
                       where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).fetch_optional(tx.conn()).await?;
    row.map(Row::read).transpose()
}

/// Returns whether the tenant was changed; one that is being deleted is not.
pub(crate) async fn update(tx: &mut TenantTx, changes: &TenantChanges) -> sqlx::Result<bool> {
    const SQL: &str = "update control.tenants \
                       set state = coalesce($2, state), rate = coalesce($3, rate), \
                           product = coalesce($4, product), \
                           expires_at = case when $5 then $6 \
                               when $2 = 'active' and expires_at <= now() then null \
                               else expires_at end \
                       where tenant_id = $1 and deleting_at is null";
    let tenant = tx.tenant().as_uuid();
    let rate = changes.rate.map(|rate| i32::try_from(rate).unwrap_or(i32::MAX));
    let changed = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(changes.state.map(TenantState::as_str))
        .bind(rate)
        .bind(changes.product.as_ref().map(Json))
        .bind(changes.expires_at.is_some())
        .bind(changes.expires_at.flatten().map(|at| at.to_sqlx()))
        .execute(tx.conn())
        .await?;
    Ok(changed.rows_affected() > 0)
}

/// Suspends the tenant for ever, and marks it for deletion. `false` if it was marked before.
pub(crate) async fn mark_deleting(tx: &mut TenantTx) -> sqlx::Result<bool> {
    const SQL: &str = "
        update control.tenants set state = 'suspended', deleting_at = clock_timestamp()
        where tenant_id = $1 and deleting_at is null";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

/// Returns the active tenants whose time is over.
pub(crate) async fn expired(tx: &mut SystemTx) -> sqlx::Result<Vec<TenantId>> {
    const SQL: &str = "
        select tenant_id from control.tenants
        where state = 'active' and expires_at <= clock_timestamp() order by expires_at";
    let found: Vec<Uuid> = holdfast_pg::query_scalar(SQL).fetch_all(tx.conn()).await?;
    Ok(found.into_iter().map(TenantId::from).collect())
}

/// Suspends the tenant if its time is over. Returns whether it did.
pub(crate) async fn expire(tx: &mut TenantTx) -> sqlx::Result<bool> {
    const SQL: &str = "
        update control.tenants set state = 'suspended'
        where tenant_id = $1 and state = 'active' and expires_at <= clock_timestamp()";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

/// Returns the tenants that are marked for deletion.
pub(crate) async fn deleting(tx: &mut SystemTx) -> sqlx::Result<Vec<TenantId>> {
    const SQL: &str = "
        select tenant_id from control.tenants where deleting_at is not null order by deleting_at";
    let found: Vec<Uuid> = holdfast_pg::query_scalar(SQL).fetch_all(tx.conn()).await?;
    Ok(found.into_iter().map(TenantId::from).collect())
}

/// Deletes the tenant itself and its place in the queue, if it is marked for deletion.
pub(crate) async fn delete(tx: &mut TenantTx) -> sqlx::Result<()> {
    const TENANT: &str = "
        delete from control.tenants where tenant_id = $1 and deleting_at is not null";
    const QUEUE: &str = "
        delete from session.tenant_queue
        where tenant_id = $1 and not exists (select from control.tenants where tenant_id = $1)";
    let tenant = tx.tenant().as_uuid();
    for sql in [TENANT, QUEUE] {
        holdfast_pg::query(sql).bind(tenant).execute(tx.conn()).await?;
    }
    Ok(())
}

pub(crate) async fn all(tx: &mut SystemTx) -> Result<Vec<Tenant>, Error> {
    const SQL: &str = "select tenant_id, name, state, rate, product, plan, limits, own_limits, \
                              expires_at, created_at, deleting_at is not null as is_deleting \
                       from control.tenants order by name";
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).fetch_all(tx.conn()).await?;
    rows.into_iter().map(Row::read).collect()
}

pub(crate) async fn by_name(tx: &mut SystemTx, name: &str) -> sqlx::Result<Option<TenantId>> {
    const SQL: &str = "select tenant_id from control.tenants where name = $1";
    let found: Option<Uuid> =
        holdfast_pg::query_scalar(SQL).bind(name).fetch_optional(tx.conn()).await?;
    Ok(found.map(TenantId::from))
}
