//! `control.identities`.

pub(crate) mod links;

use holdfast_pg::TenantTx;

use crate::Identity;

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<Identity>> {
    const SQL: &str = "select channel, peer, canonical from control.identities \
                       where tenant_id = $1 order by canonical, channel, peer";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<(String, String, String)> =
        holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    let read = |(channel, peer, canonical)| Identity { channel, peer, canonical };
    Ok(rows.into_iter().map(read).collect())
}

/// Returns the number of identities other than this one.
pub(crate) async fn count_except(tx: &mut TenantTx, identity: &Identity) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.identities \
                       where tenant_id = $1 and (channel, peer) <> ($2, $3)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(&identity.channel)
        .bind(&identity.peer)
        .fetch_one(tx.conn())
        .await
}

pub(crate) async fn put(tx: &mut TenantTx, identity: &Identity) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.identities (tenant_id, channel, peer, canonical) \
                       values ($1, $2, $3, $4) \
                       on conflict (tenant_id, channel, peer) \
                       do update set canonical = excluded.canonical";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(&identity.channel)
        .bind(&identity.peer)
        .bind(&identity.canonical)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether the identity existed.
pub(crate) async fn delete(tx: &mut TenantTx, channel: &str, peer: &str) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.identities \
                       where tenant_id = $1 and channel = $2 and peer = $3";
    let tenant = tx.tenant().as_uuid();
    let done =
        holdfast_pg::query(SQL).bind(tenant).bind(channel).bind(peer).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
