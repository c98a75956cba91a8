//! `control.account_positions`.

use holdfast_pg::TenantTx;
use holdfast_types::AccountId;

pub(crate) async fn get(
    tx: &mut TenantTx,
    id: AccountId,
    name: &str,
) -> sqlx::Result<Option<String>> {
    const SQL: &str = "select position from control.account_positions \
                       where tenant_id = $1 and account_id = $2 and name = $3";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(name)
        .fetch_optional(tx.conn())
        .await
}

pub(crate) async fn put(
    tx: &mut TenantTx,
    id: AccountId,
    name: &str,
    position: &str,
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.account_positions as p \
                           (tenant_id, account_id, name, position) \
                       select tenant_id, account_id, $3, $4 from control.accounts \
                       where tenant_id = $1 and account_id = $2 \
                       on conflict (tenant_id, account_id, name) do update \
                       set position = excluded.position, updated_at = now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(name)
        .bind(position)
        .execute(tx.conn())
        .await?;
    Ok(())
}
