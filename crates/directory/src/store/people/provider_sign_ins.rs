//! `control.provider_sign_ins`.

use holdfast_pg::TenantTx;
use holdfast_types::PersonId;

use crate::ProviderSignIn;

/// Stores the newest refresh token of a person.
pub(crate) async fn put(
    tx: &mut TenantTx,
    person: PersonId,
    provider: &ProviderSignIn,
    sealed: &[u8],
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.provider_sign_ins (tenant_id, person_id, issuer, client_id, refresh_token)
        values ($1, $2, $3, $4, $5)
        on conflict (tenant_id, person_id) do update set issuer = excluded.issuer,
            client_id = excluded.client_id, refresh_token = excluded.refresh_token,
            checked_at = now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(person.as_uuid())
        .bind(&provider.issuer)
        .bind(&provider.client_id)
        .bind(sealed)
        .execute(tx.conn())
        .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
pub(crate) struct SealedSignIn {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) refresh_token: Vec<u8>,
}

/// Returns the refresh token of a person if it was not used for so many seconds, and counts as a use of
/// it: a provider may accept it once only. Of concurrent calls one gets it.
pub(crate) async fn claim(
    tx: &mut TenantTx,
    person: PersonId,
    seconds: f64,
) -> sqlx::Result<Option<SealedSignIn>> {
    const SQL: &str = "
        update control.provider_sign_ins set checked_at = now()
        where tenant_id = $1 and person_id = $2 and checked_at <= now() - make_interval(secs => $3)
        returning issuer, client_id, refresh_token";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(person.as_uuid())
        .bind(seconds)
        .fetch_optional(tx.conn())
        .await
}

/// Replaces a refresh token that was used, if it still is `old`.
pub(crate) async fn replace(
    tx: &mut TenantTx,
    person: PersonId,
    (old, new): (&[u8], &[u8]),
) -> sqlx::Result<()> {
    const SQL: &str = "update control.provider_sign_ins set refresh_token = $4 \
                       where tenant_id = $1 and person_id = $2 and refresh_token = $3";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(person.as_uuid())
        .bind(old)
        .bind(new)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Stores that a refresh token was last used so many seconds ago, which says when it is used again.
pub(crate) async fn postpone(
    tx: &mut TenantTx,
    person: PersonId,
    seconds: f64,
) -> sqlx::Result<()> {
    const SQL: &str = "update control.provider_sign_ins \
                       set checked_at = now() - make_interval(secs => $3) \
                       where tenant_id = $1 and person_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(person.as_uuid())
        .bind(seconds)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Deletes a refresh token, if it still is `old`. Returns whether it was.
pub(crate) async fn delete(tx: &mut TenantTx, person: PersonId, old: &[u8]) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.provider_sign_ins \
                       where tenant_id = $1 and person_id = $2 and refresh_token = $3";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(person.as_uuid())
        .bind(old)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}
