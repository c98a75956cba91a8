//! `control.auth_profiles`: columns for the renewal of tokens.

use std::time::Duration;

use holdfast_pg::TenantTx;

use crate::RENEWAL_LEASE;

/// Delay before a renewal is retried after a transient failure, in seconds.
const TRANSIENT_RETRY_SECS: f64 = 10.0;

/// Sealed tokens of one credential.
#[derive(sqlx::FromRow)]
pub(crate) struct Row {
    pub(crate) version: i64,
    pub(crate) secret: Vec<u8>,
    pub(crate) expires_at: Option<jiff_sqlx::Timestamp>,
    pub(crate) token_url: Option<String>,
    pub(crate) client_id: Option<String>,
    /// Whether this query made the claim.
    pub(crate) is_claimed: bool,
    /// Whether the tokens can be renewed.
    pub(crate) is_claimable: bool,
}

/// Claims the tokens, unless their version differs, another process has the claim, or they cannot
/// be renewed.
pub(crate) async fn claim(
    tx: &mut TenantTx,
    (provider, name): (&str, &str),
    version: i64,
) -> sqlx::Result<Option<Row>> {
    const SQL: &str = "
        update control.auth_profiles
        set renewing_until = clock_timestamp() + make_interval(secs => $5)
        where tenant_id = $1 and provider = $2 and name = $3 and version = $4
          and kind = 'oauth' and token_url is not null and trouble is null
          and (renewing_until is null or renewing_until < clock_timestamp())
        returning version, secret, expires_at, token_url, client_id, true as is_claimed,
                  true as is_claimable";
    holdfast_pg::query_as(SQL)
        .bind(tx.tenant().as_uuid())
        .bind(provider)
        .bind(name)
        .bind(version)
        .bind(RENEWAL_LEASE.as_secs_f64())
        .fetch_optional(tx.conn())
        .await
}

pub(crate) async fn get(
    tx: &mut TenantTx,
    (provider, name): (&str, &str),
) -> sqlx::Result<Option<Row>> {
    const SQL: &str = "
        select version, secret, expires_at, token_url, client_id, false as is_claimed,
               kind = 'oauth' and token_url is not null and trouble is null as is_claimable
        from control.auth_profiles
        where tenant_id = $1 and provider = $2 and name = $3";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(provider)
        .bind(name)
        .fetch_optional(tx.conn())
        .await
}

/// Replaces the tokens of a version. Returns the new version and the expiry.
pub(crate) async fn replace_tokens(
    tx: &mut TenantTx,
    (provider, name): (&str, &str),
    version: i64,
    (sealed, lasts): (&[u8], Option<Duration>),
) -> sqlx::Result<Option<(i64, Option<jiff_sqlx::Timestamp>)>> {
    const SQL: &str = "
        update control.auth_profiles
        set secret = $5, expires_at = clock_timestamp() + make_interval(secs => $6),
            version = version + 1, renewing_until = null, updated_at = now()
        where tenant_id = $1 and provider = $2 and name = $3 and version = $4
        returning version, expires_at";
    holdfast_pg::query_as(SQL)
        .bind(tx.tenant().as_uuid())
        .bind(provider)
        .bind(name)
        .bind(version)
        .bind(sealed)
        .bind(lasts.map(|lasts| lasts.as_secs_f64()))
        .fetch_optional(tx.conn())
        .await
}

pub(crate) async fn record_failure(
    tx: &mut TenantTx,
    (provider, name): (&str, &str),
    version: i64,
    trouble: Option<&str>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        update control.auth_profiles
        set trouble = $5, renewing_until = clock_timestamp() + make_interval(secs => $6)
        where tenant_id = $1 and provider = $2 and name = $3 and version = $4";
    holdfast_pg::query(SQL)
        .bind(tx.tenant().as_uuid())
        .bind(provider)
        .bind(name)
        .bind(version)
        .bind(trouble)
        .bind(TRANSIENT_RETRY_SECS)
        .execute(tx.conn())
        .await?;
    Ok(())
}
