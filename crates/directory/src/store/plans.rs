//! `control.plans`, and the plans of tenants.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::TenantId;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{NewPlan, Plan, PlanLimits};

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    description: String,
    limits: Json<PlanLimits>,
    platform_providers: Vec<String>,
    updated_at: jiff_sqlx::Timestamp,
    tenants: i64,
}

impl Row {
    fn read(self) -> Plan {
        Plan {
            name: self.name,
            description: self.description,
            limits: self.limits.0,
            platform_providers: self.platform_providers,
            updated_at: self.updated_at.to_jiff(),
            tenants: self.tenants.unsigned_abs(),
        }
    }
}

/// Returns the plan with this name, or all plans.
pub(crate) async fn find(tx: &mut SystemTx, name: Option<&str>) -> sqlx::Result<Vec<Plan>> {
    const SQL: &str = "
        select name, description, limits, platform_providers, updated_at,
               (select count(*) from control.tenants where plan = p.name) as tenants
        from control.plans p where $1::text is null or name = $1 order by name";
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(name).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// Creates or replaces a plan. Its version grows only if its limits change.
pub(crate) async fn put(tx: &mut SystemTx, plan: &NewPlan) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.plans as p (name, description, limits, platform_providers)
        select $1, $2, $3, array(select distinct name from unnest($4::text[]) name order by name)
        on conflict (name) do update
            set description = excluded.description, limits = excluded.limits, updated_at = now(),
                platform_providers = excluded.platform_providers,
                version = p.version + (p.limits <> excluded.limits)::integer";
    holdfast_pg::query(SQL)
        .bind(&plan.name)
        .bind(&plan.description)
        .bind(Json(plan.limits))
        .bind(&plan.platform_providers)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether there was such a plan.
pub(crate) async fn delete(tx: &mut SystemTx, name: &str) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.plans where name = $1";
    Ok(holdfast_pg::query(SQL).bind(name).execute(tx.conn()).await?.rows_affected() > 0)
}

/// Returns up to `limit` tenants whose limits are not those of their plan, by their ids.
pub(crate) async fn outdated_tenants(
    tx: &mut SystemTx,
    after: TenantId,
    limit: i64,
) -> sqlx::Result<Vec<TenantId>> {
    const SQL: &str = "
        select tenant_id from control.tenants t join control.plans p on p.name = t.plan
        where t.plan_version is distinct from p.version and tenant_id > $1
        order by tenant_id limit $2";
    let ids: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
        .bind(after.as_uuid())
        .bind(limit)
        .fetch_all(tx.conn())
        .await?;
    Ok(ids.into_iter().map(TenantId::from).collect())
}

/// Sets the plan of a tenant; `None` for none.
pub(crate) async fn set(tx: &mut TenantTx, plan: Option<&str>) -> sqlx::Result<()> {
    const SQL: &str = "update control.tenants set plan = $2 where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(plan).execute(tx.conn()).await?;
    Ok(())
}

/// Marks limits that the tenant has of its own from now on, and others that follow its plan again.
pub(crate) async fn set_own_limits(
    tx: &mut TenantTx,
    own: &[&str],
    follow: &[&str],
) -> sqlx::Result<()> {
    const SQL: &str = "
        update control.tenants set own_limits = array(
            select distinct name from unnest(own_limits || $2::text[]) name
            where not name = any($3::text[]) order by name)
        where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(own).bind(follow).execute(tx.conn()).await?;
    Ok(())
}

/// Puts the limits of the tenant's plan into effect.
pub(crate) async fn apply(tx: &mut TenantTx) -> sqlx::Result<()> {
    const SQL: &str = "select control.apply_plan($1)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).execute(tx.conn()).await?;
    Ok(())
}

/// Returns the tenants with limits, or one tenant.
pub(crate) async fn limits(
    tx: &mut SystemTx,
    tenant: Option<TenantId>,
) -> sqlx::Result<Vec<(TenantId, PlanLimits)>> {
    const SQL: &str = "
        select tenant_id, limits from control.tenants
        where ($1::uuid is null and limits <> '{}') or tenant_id = $1";
    let rows: Vec<(Uuid, Json<PlanLimits>)> = holdfast_pg::query_as(SQL)
        .bind(tenant.map(|tenant| tenant.as_uuid()))
        .fetch_all(tx.conn())
        .await?;
    Ok(rows.into_iter().map(|(tenant, limits)| (tenant.into(), limits.0)).collect())
}

/// Records that a notice about a limit is given in this period; `false` if it was given before.
pub(crate) async fn insert_notice(
    tx: &mut TenantTx,
    (limit, level, is_monthly): (&str, &str, bool),
) -> sqlx::Result<bool> {
    const SQL: &str = "
        insert into control.limit_notices (tenant_id, limit_name, period, level)
        select $1, $2, to_char(clock_timestamp() at time zone 'utc',
                               case when $4 then 'YYYY-MM' else 'YYYY-MM-DD' end), $3
        on conflict do nothing";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(limit)
        .bind(level)
        .bind(is_monthly)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}
