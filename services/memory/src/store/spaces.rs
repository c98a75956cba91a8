//! `memory.spaces`: embedding model and index of each tenant.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::TenantId;
use uuid::Uuid;

use super::vectors::Model;

/// Search settings of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Space {
    /// Model of the vectors that questions are compared with.
    pub model: String,
    pub dimension: i32,
    /// The tenant's own table with an index; `None` means an exact scan.
    pub own: Option<String>,
    /// Previous model whose vectors are not deleted yet.
    pub former: Option<String>,
}

/// Returns the tenant's settings; `None` until it has a vector.
pub async fn get(tx: &mut TenantTx) -> sqlx::Result<Option<Space>> {
    const SQL: &str =
        "select model, dimension, own, former from memory.spaces where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).fetch_optional(tx.conn()).await
}

/// Returns the tenant's settings; creates them with this model for its first vector.
pub async fn ensure(tx: &mut TenantTx, model: Model<'_>) -> sqlx::Result<Space> {
    const SQL: &str = "
        insert into memory.spaces (tenant_id, model, dimension) values ($1, $2, $3)
        on conflict (tenant_id) do nothing
        returning model, dimension, own, former";
    if let Some(space) = get(tx).await? {
        return Ok(space);
    }
    let tenant = tx.tenant().as_uuid();
    let made: Option<Space> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(model.name)
        .bind(i32::try_from(model.dimension).unwrap_or(i32::MAX))
        .fetch_optional(tx.conn())
        .await?;
    match made {
        Some(space) => Ok(space),
        None => get(tx).await?.ok_or(sqlx::Error::RowNotFound),
    }
}

/// Switches the tenant to another model. Refuses while vectors of a third model exist, which would
/// otherwise never be deleted. Returns whether it switched.
pub async fn switch(tx: &mut TenantTx, model: Model<'_>) -> sqlx::Result<bool> {
    const SQL: &str = "
        update memory.spaces
        set former = model, model = $2, dimension = $3, own = null, changed_at = clock_timestamp()
        where tenant_id = $1 and model <> $2 and (former is null or former = $2)";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(model.name)
        .bind(i32::try_from(model.dimension).unwrap_or(i32::MAX))
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Drops the former model's table and its mention.
pub async fn forget_former(tx: &mut TenantTx, model: &str) -> sqlx::Result<()> {
    const DROP: &str = "select memory.drop_own($1)";
    const SQL: &str = "update memory.spaces set former = null where tenant_id = $1 and former = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(DROP).bind(model).execute(tx.conn()).await?;
    holdfast_pg::query(SQL).bind(tenant).bind(model).execute(tx.conn()).await?;
    Ok(())
}

/// Returns another dimension under which vectors of this model are stored for some tenant.
pub async fn other_dimension(tx: &mut SystemTx, model: Model<'_>) -> sqlx::Result<Option<i32>> {
    const SQL: &str =
        "select dimension from memory.spaces where model = $1 and dimension <> $2 limit 1";
    holdfast_pg::query_scalar(SQL)
        .bind(model.name)
        .bind(i32::try_from(model.dimension).unwrap_or(i32::MAX))
        .fetch_optional(tx.conn())
        .await
}

/// Creates the tenant's own table with its index. Returns the number of vectors in it.
pub async fn make_own(tx: &mut TenantTx) -> sqlx::Result<i64> {
    holdfast_pg::query("set local statement_timeout = 0").execute(tx.conn()).await?;
    holdfast_pg::query_scalar("select memory.make_own()").fetch_one(tx.conn()).await
}

/// Returns the tenants with another model, except those switched after this process started: an old
/// process must not undo what a newer configuration did.
pub async fn outdated(
    tx: &mut SystemTx,
    model: &str,
    running_s: i64,
) -> sqlx::Result<Vec<TenantId>> {
    const SQL: &str = "
        select tenant_id from memory.spaces
        where model <> $1 and changed_at < clock_timestamp() - make_interval(secs => $2)
        order by tenant_id limit 100";
    let found: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
        .bind(model)
        .bind(seconds(running_s))
        .fetch_all(tx.conn())
        .await?;
    Ok(found.into_iter().map(TenantId::from).collect())
}

/// Returns the tenants whose former model's vectors are no longer used by any process.
pub async fn with_former(tx: &mut SystemTx, after_s: i64) -> sqlx::Result<Vec<(TenantId, String)>> {
    const SQL: &str = "
        select tenant_id, former from memory.spaces
        where former is not null and changed_at < clock_timestamp() - make_interval(secs => $1)
        order by tenant_id limit 100";
    let found: Vec<(Uuid, String)> =
        holdfast_pg::query_as(SQL).bind(seconds(after_s)).fetch_all(tx.conn()).await?;
    Ok(found.into_iter().map(|(tenant, former)| (tenant.into(), former)).collect())
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a process's life")]
const fn seconds(whole: i64) -> f64 {
    whole as f64
}
