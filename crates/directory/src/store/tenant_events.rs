//! `control.tenant_events`: the log of tenants' lives, and the outbox of their publication.

pub(crate) mod webhooks;

use holdfast_pg::{SystemConnection, SystemTx, TenantTx};
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{TenantEvent, TenantEventFilter, tenant::event::TenantEventKind};

#[derive(sqlx::FromRow)]
struct Row {
    event_id: i64,
    tenant: Uuid,
    name: String,
    kind: String,
    detail: Json<Value>,
    created_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> TenantEvent {
        TenantEvent {
            id: self.event_id,
            tenant: self.tenant.into(),
            name: self.name,
            kind: self.kind,
            detail: self.detail.0,
            created_at: self.created_at.to_jiff(),
        }
    }
}

/// Writes an event, in the transaction of what it tells of. The tenant must exist still.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    kind: TenantEventKind,
    detail: Value,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.tenant_events (tenant, name, kind, detail)
        select tenant_id, name, $2, $3 from control.tenants where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(kind.as_str())
        .bind(Json(detail))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// As [`insert`], if the tenant is marked for deletion.
pub(crate) async fn insert_if_deleting(
    tx: &mut TenantTx,
    kind: TenantEventKind,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.tenant_events (tenant, name, kind)
        select tenant_id, name, $2 from control.tenants
        where tenant_id = $1 and deleting_at is not null";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(kind.as_str()).execute(tx.conn()).await?;
    Ok(())
}

pub(crate) async fn page(
    tx: &mut SystemTx,
    filter: TenantEventFilter,
) -> sqlx::Result<Vec<TenantEvent>> {
    const SQL: &str = "
        select event_id, tenant, name, kind, detail, created_at from control.tenant_events
        where ($1::uuid is null or tenant = $1) and event_id > $2
        order by event_id limit $3";
    let rows: Vec<Row> = holdfast_pg::query_as(SQL)
        .bind(filter.tenant.map(|tenant| tenant.as_uuid()))
        .bind(filter.after)
        .bind(filter.limit)
        .fetch_all(tx.conn())
        .await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// Marks up to `limit` events as logged. Returns those of tenants that are not being deleted, oldest
/// first.
pub(crate) async fn take_unlogged(tx: &mut SystemTx, limit: i64) -> sqlx::Result<Vec<TenantEvent>> {
    const SQL: &str = "
        with taken as (
            update control.tenant_events set logged_at = clock_timestamp()
            where event_id = any(array(
                select event_id from control.tenant_events where logged_at is null
                order by event_id limit $1))
            returning event_id, tenant, name, kind, detail, created_at)
        select taken.* from taken
        where exists (select from control.tenants t
                      where t.tenant_id = taken.tenant and t.deleting_at is null)
        order by event_id";
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(limit).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

pub(crate) async fn unpublished(
    once: &mut SystemConnection,
    limit: i64,
) -> sqlx::Result<Vec<TenantEvent>> {
    const SQL: &str = "
        select event_id, tenant, name, kind, detail, created_at from control.tenant_events
        where published_at is null order by event_id limit $1";
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(limit).fetch_all(once.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// Returns the number of events that were not marked before.
pub(crate) async fn mark_published(
    once: &mut SystemConnection,
    events: &[i64],
) -> sqlx::Result<u64> {
    const SQL: &str = "
        update control.tenant_events set published_at = clock_timestamp()
        where event_id = any($1) and published_at is null";
    Ok(holdfast_pg::query(SQL).bind(events).execute(once.conn()).await?.rows_affected())
}

/// Deletes published events of tenants that are gone, and published events and notices that are older
/// than so many days.
pub(crate) async fn prune(once: &mut SystemConnection, days: i32) -> sqlx::Result<u64> {
    const EVENTS: &str = "
        delete from control.tenant_events
        where published_at < clock_timestamp() - $1 * interval '1 day'
           or (published_at is not null and not exists (
                   select from control.tenants t where t.tenant_id = tenant))";
    const NOTICES: &str = "
        delete from control.limit_notices
        where created_at < clock_timestamp() - $1 * interval '1 day'";
    let events = holdfast_pg::query(EVENTS).bind(days).execute(once.conn()).await?;
    holdfast_pg::query(NOTICES).bind(days).execute(once.conn()).await?;
    Ok(events.rows_affected())
}
