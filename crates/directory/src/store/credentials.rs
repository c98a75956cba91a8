//! `control.auth_profiles`, `control.auth_orders` and `control.auth_stats`.

use holdfast_llm::credentials::Stats;
use holdfast_pg::TenantTx;
use jiff::Timestamp;
use sqlx::types::Json;

use crate::{CredentialKind, CredentialStats, CredentialSummary, Error, NewCredential};

/// A sealed credential; the provider's own API key has neither kind nor secret here.
#[derive(sqlx::FromRow)]
pub(crate) struct Row {
    pub(crate) name: String,
    kind: Option<String>,
    pub(crate) secret: Option<Vec<u8>>,
    expires_at: Option<jiff_sqlx::Timestamp>,
    changed: Option<i64>,
    stats: Option<Json<Stats>>,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) strict: Option<bool>,
    /// Version of the tokens, if they can be renewed.
    pub(crate) version: Option<i64>,
}

impl Row {
    pub(crate) fn kind(&self) -> Result<CredentialKind, Error> {
        CredentialKind::parse(self.kind.as_deref().unwrap_or_default())
    }

    pub(crate) fn expires(&self) -> Option<Timestamp> {
        self.expires_at.map(|at| at.to_jiff())
    }

    pub(crate) fn remembered(&self) -> Option<CredentialStats> {
        let (changed, stats) = (self.changed?, self.stats.as_ref()?.0.clone());
        Some(CredentialStats { changed, stats })
    }
}

/// Returns a provider's credentials, its own first, with their statistics and order.
pub(crate) async fn of_provider(tx: &mut TenantTx, provider: &str) -> sqlx::Result<Vec<Row>> {
    const SQL: &str = "
        select n.name, p.kind, p.secret, p.expires_at, s.changed, s.stats, o.names, o.strict,
               case when p.token_url is not null and p.trouble is null then p.version end as version
        from (select 'default' as name
              union all
              select name from control.auth_profiles where tenant_id = $1 and provider = $2) n
        left join control.auth_profiles p
               on p.tenant_id = $1 and p.provider = $2 and p.name = n.name
        left join control.auth_stats s
               on s.tenant_id = $1 and s.provider = $2 and s.name = n.name
        left join control.auth_orders o on o.tenant_id = $1 and o.provider = $2
        order by n.name <> 'default', n.name";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(provider).fetch_all(tx.conn()).await
}

pub(crate) async fn all(tx: &mut TenantTx) -> Result<Vec<CredentialSummary>, Error> {
    #[derive(sqlx::FromRow)]
    struct ListedRow {
        provider: String,
        name: String,
        kind: String,
        expires_at: Option<jiff_sqlx::Timestamp>,
        stats: Option<Json<Stats>>,
        place: Option<i32>,
        strict: Option<bool>,
        token_url: Option<String>,
        client_id: Option<String>,
        trouble: Option<String>,
    }
    const SQL: &str = "
        select k.provider, k.name, k.kind, k.expires_at, s.stats,
               array_position(o.names, k.name) as place, o.strict,
               k.token_url, k.client_id, k.trouble
        from (select tenant_id, name as provider, 'default' as name, 'api_key' as kind,
                     null::timestamptz as expires_at, null::text as token_url,
                     null::text as client_id, null::text as trouble
              from control.providers where tenant_id = $1 and api_key is not null
              union all
              select tenant_id, provider, name, kind, expires_at, token_url, client_id, trouble
              from control.auth_profiles where tenant_id = $1) k
        left join control.auth_stats s
               on s.tenant_id = $1 and s.provider = k.provider and s.name = k.name
        left join control.auth_orders o on o.tenant_id = $1 and o.provider = k.provider
        order by k.provider, o.names is null, place nulls last, k.name";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<ListedRow> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    let card = |row: ListedRow| {
        Ok(CredentialSummary {
            kind: CredentialKind::parse(&row.kind)?,
            provider: row.provider,
            name: row.name,
            expires: row.expires_at.map(|at| at.to_jiff()),
            stats: row.stats.map(|stats| stats.0).unwrap_or_default(),
            place: row.place.and_then(|place| usize::try_from(place).ok()).unwrap_or_default(),
            strict: row.strict.unwrap_or_default(),
            renewed_at: row.token_url.zip(row.client_id),
            trouble: row.trouble,
        })
    };
    rows.into_iter().map(card).collect()
}

pub(crate) async fn put(tx: &mut TenantTx, new: &NewCredential, sealed: &[u8]) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.auth_profiles as p
               (tenant_id, provider, name, kind, secret, expires_at, token_url, client_id)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (tenant_id, provider, name) do update
            set kind = excluded.kind, secret = excluded.secret, expires_at = excluded.expires_at,
                token_url = excluded.token_url, client_id = excluded.client_id,
                version = p.version + 1, renewing_until = null, trouble = null,
                updated_at = now()";
    let renewed_at = new.refresh.as_ref().map(|_| &new.renewed_at);
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(&new.provider)
        .bind(&new.name)
        .bind(new.kind.as_str())
        .bind(sealed)
        .bind(new.expires.map(jiff_sqlx::Timestamp::from))
        .bind(renewed_at.map(|at| at.token_url.as_str()))
        .bind(renewed_at.map(|at| at.client_id.as_str()))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether the credential existed.
pub(crate) async fn delete(tx: &mut TenantTx, provider: &str, name: &str) -> sqlx::Result<bool> {
    const SQL: &str = "
        with stats as (
            delete from control.auth_stats
            where tenant_id = $1 and provider = $2 and name = $3),
        own as (
            update control.providers set api_key = null, updated_at = now()
            where tenant_id = $1 and name = $2 and $3 = 'default' and api_key is not null
            returning 1),
        gone as (
            delete from control.auth_profiles
            where tenant_id = $1 and provider = $2 and name = $3
            returning 1)
        select exists (select from own) or exists (select from gone)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(provider).bind(name).fetch_one(tx.conn()).await
}

/// Stores an order, or deletes it if there are no names.
pub(crate) async fn order(
    tx: &mut TenantTx,
    provider: &str,
    names: &[String],
    strict: bool,
) -> sqlx::Result<()> {
    const FORGET: &str = "delete from control.auth_orders where tenant_id = $1 and provider = $2";
    const SQL: &str = "
        insert into control.auth_orders (tenant_id, provider, names, strict)
        values ($1, $2, $3, $4)
        on conflict (tenant_id, provider) do update
            set names = excluded.names, strict = excluded.strict";
    let tenant = tx.tenant().as_uuid();
    if names.is_empty() {
        holdfast_pg::query(FORGET).bind(tenant).bind(provider).execute(tx.conn()).await?;
        return Ok(());
    }
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(provider)
        .bind(names)
        .bind(strict)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Stores statistics, unless newer ones are stored or the provider was deleted.
pub(crate) async fn store_stats(
    tx: &mut TenantTx,
    provider: &str,
    name: &str,
    now: &CredentialStats,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.auth_stats as s (tenant_id, provider, name, changed, stats)
        select $1, $2, $3, $4, $5
        where exists (select from control.providers where tenant_id = $1 and name = $2
                      for key share)
        on conflict (tenant_id, provider, name) do update
            set changed = excluded.changed, stats = excluded.stats
            where s.changed < excluded.changed";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(provider)
        .bind(name)
        .bind(now.changed)
        .bind(Json(&now.stats))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Resets statistics. The time of the reset is after that of the stored ones, so that an older
/// update of another process does not undo it.
pub(crate) async fn reset_stats(
    tx: &mut TenantTx,
    provider: &str,
    name: &str,
    now: i64,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.auth_stats as s (tenant_id, provider, name, changed, stats)
        values ($1, $2, $3, $4, '{}')
        on conflict (tenant_id, provider, name) do update
            set changed = greatest(excluded.changed, s.changed + 1), stats = excluded.stats";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(provider)
        .bind(name)
        .bind(now)
        .execute(tx.conn())
        .await?;
    Ok(())
}
