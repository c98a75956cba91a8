//! `control.platform_providers` and `control.platform_keys`.
//!
//! In the transaction of a tenant, row-level security shows what its plan allows and nothing else.

use holdfast_llm::credentials::Stats;
use holdfast_pg::{SystemTx, TenantTx};
use sqlx::types::Json;

use crate::{CredentialStats, Error, PlatformKeySummary, PlatformProvider, ProviderKind};

/// A sealed key of the installation, with its provider.
#[derive(sqlx::FromRow)]
pub(crate) struct KeyRow {
    kind: String,
    pub(crate) base_url: String,
    pub(crate) name: String,
    pub(crate) secret: Vec<u8>,
    changed: i64,
    stats: Json<Stats>,
}

impl KeyRow {
    pub(crate) fn kind(&self) -> Result<ProviderKind, Error> {
        ProviderKind::parse(&self.kind)
    }

    pub(crate) fn remembered(&self) -> Option<CredentialStats> {
        let stats = self.stats.0.clone();
        (self.changed > 0).then_some(CredentialStats { changed: self.changed, stats })
    }
}

/// Returns the keys of a provider that the plan of the tenant allows, by name.
pub(crate) async fn keys_for(tx: &mut TenantTx, provider: &str) -> sqlx::Result<Vec<KeyRow>> {
    const SQL: &str = "
        select p.kind, p.base_url, k.name, k.secret, k.changed, k.stats
        from control.platform_providers p join control.platform_keys k on k.provider = p.name
        where p.name = $1 order by k.name";
    holdfast_pg::query_as(SQL).bind(provider).fetch_all(tx.conn()).await
}

/// Whether the plan of the tenant allows a provider that has a key.
pub(crate) async fn is_allowed(tx: &mut TenantTx, provider: &str) -> sqlx::Result<bool> {
    const SQL: &str = "select exists (select from control.platform_keys where provider = $1)";
    holdfast_pg::query_scalar(SQL).bind(provider).fetch_one(tx.conn()).await
}

/// Returns the default model of the first provider that the plan of the tenant allows.
pub(crate) async fn default_model(tx: &mut TenantTx) -> sqlx::Result<Option<String>> {
    const SQL: &str = "
        select default_model from control.platform_providers
        where default_model is not null order by name limit 1";
    holdfast_pg::query_scalar(SQL).fetch_optional(tx.conn()).await
}

/// Returns all providers of the installation with their keys, or one.
pub(crate) async fn all(
    tx: &mut SystemTx,
    name: Option<&str>,
) -> Result<Vec<PlatformProvider>, Error> {
    #[derive(sqlx::FromRow)]
    struct Row {
        provider: String,
        kind: String,
        base_url: String,
        default_model: Option<String>,
        name: String,
        stats: Json<Stats>,
        updated_at: jiff_sqlx::Timestamp,
    }
    const SQL: &str = "
        select p.name as provider, p.kind, p.base_url, p.default_model, k.name, k.stats,
               k.updated_at
        from control.platform_providers p join control.platform_keys k on k.provider = p.name
        where $1::text is null or p.name = $1
        order by p.name, k.name";
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(name).fetch_all(tx.conn()).await?;
    let mut providers: Vec<PlatformProvider> = Vec::new();
    for row in rows {
        if providers.last().is_none_or(|last| last.name != row.provider) {
            providers.push(PlatformProvider {
                kind: ProviderKind::parse(&row.kind)?,
                name: row.provider,
                base_url: row.base_url,
                default_model: row.default_model,
                keys: Vec::new(),
            });
        }
        let Some(provider) = providers.last_mut() else { continue };
        let (stats, updated_at) = (row.stats.0, row.updated_at.to_jiff());
        provider.keys.push(PlatformKeySummary { name: row.name, stats, updated_at });
    }
    Ok(providers)
}

/// Locks the providers against other changes until the end of the transaction.
pub(crate) async fn lock(tx: &mut SystemTx) -> sqlx::Result<()> {
    const SQL: &str = "select pg_advisory_xact_lock(hashtext('control.platform_providers'))";
    holdfast_pg::query(SQL).execute(tx.conn()).await?;
    Ok(())
}

pub(crate) async fn put(tx: &mut SystemTx, provider: &PlatformProvider) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.platform_providers (name, kind, base_url, default_model)
        values ($1, $2, $3, $4)
        on conflict (name) do update
            set kind = excluded.kind, base_url = excluded.base_url,
                default_model = excluded.default_model, updated_at = now()";
    holdfast_pg::query(SQL)
        .bind(&provider.name)
        .bind(provider.kind.as_str())
        .bind(&provider.base_url)
        .bind(&provider.default_model)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Stores a sealed key in the place of one of the same name, without that one's statistics.
pub(crate) async fn put_key(
    tx: &mut SystemTx,
    (provider, name): (&str, &str),
    sealed: &[u8],
    now: i64,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.platform_keys as k (provider, name, secret, changed)
        values ($1, $2, $3, $4)
        on conflict (provider, name) do update
            set secret = excluded.secret, stats = '{}', updated_at = now(),
                changed = greatest(excluded.changed, k.changed + 1)";
    holdfast_pg::query(SQL)
        .bind(provider)
        .bind(name)
        .bind(sealed)
        .bind(now)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Deletes a key, and its provider with the last one. Returns whether there was such a key.
pub(crate) async fn delete_key(
    tx: &mut SystemTx,
    provider: &str,
    name: &str,
) -> sqlx::Result<bool> {
    const KEY: &str = "delete from control.platform_keys where provider = $1 and name = $2";
    const PROVIDER: &str = "
        delete from control.platform_providers p
        where name = $1 and not exists (select from control.platform_keys where provider = p.name)";
    let done = holdfast_pg::query(KEY).bind(provider).bind(name).execute(tx.conn()).await?;
    holdfast_pg::query(PROVIDER).bind(provider).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

/// Stores statistics of a key, unless newer ones are stored.
pub(crate) async fn store_stats(
    tx: &mut SystemTx,
    (provider, name): (&str, &str),
    remembered: &CredentialStats,
) -> sqlx::Result<()> {
    const SQL: &str = "
        update control.platform_keys set changed = $3, stats = $4
        where provider = $1 and name = $2 and changed < $3";
    holdfast_pg::query(SQL)
        .bind(provider)
        .bind(name)
        .bind(remembered.changed)
        .bind(Json(&remembered.stats))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns all sealed keys, as (provider, name, secret), and locks them.
pub(crate) async fn sealed(tx: &mut SystemTx) -> sqlx::Result<Vec<(String, String, Vec<u8>)>> {
    const SQL: &str = "
        select provider, name, secret from control.platform_keys
        order by provider, name for update";
    holdfast_pg::query_as(SQL).fetch_all(tx.conn()).await
}

/// Replaces a sealed key by the same one, sealed anew.
pub(crate) async fn reseal(
    tx: &mut SystemTx,
    (provider, name): (&str, &str),
    sealed: &[u8],
) -> sqlx::Result<()> {
    const SQL: &str = "
        update control.platform_keys set secret = $3 where provider = $1 and name = $2";
    holdfast_pg::query(SQL).bind(provider).bind(name).bind(sealed).execute(tx.conn()).await?;
    Ok(())
}
