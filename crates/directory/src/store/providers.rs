//! `control.providers`, and providers of the installation.

pub(crate) mod platform;

use holdfast_pg::TenantTx;
use serde_json::{Map, Value};
use sqlx::types::Json;

use crate::{Error, Provider, ProviderKind};

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    kind: String,
    base_url: String,
    has_key: bool,
    default_model: Option<String>,
    header_names: Vec<String>,
    extra_body: Json<Map<String, Value>>,
}

impl Row {
    fn read(self) -> Result<Provider, Error> {
        Ok(Provider {
            kind: ProviderKind::parse(&self.kind)?,
            name: self.name,
            base_url: self.base_url,
            has_key: self.has_key,
            default_model: self.default_model,
            header_names: self.header_names,
            extra_body: self.extra_body.0,
        })
    }
}

pub(crate) async fn all(tx: &mut TenantTx) -> Result<Vec<Provider>, Error> {
    const SQL: &str = "select name, kind, base_url, api_key is not null as has_key, default_model, \
                       header_names, extra_body from control.providers where tenant_id = $1 \
                       order by name";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    // A kind that only a newer version knows hides one provider, not all of them.
    Ok(rows.into_iter().filter_map(|row| row.read().ok()).collect())
}

pub(crate) async fn get(tx: &mut TenantTx, name: &str) -> Result<Option<Provider>, Error> {
    const SQL: &str = "select name, kind, base_url, api_key is not null as has_key, default_model, \
                       header_names, extra_body from control.providers \
                       where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(name).fetch_optional(tx.conn()).await?;
    row.map(Row::read).transpose()
}

/// Returns the sealed key of a provider.
pub(crate) async fn api_key(tx: &mut TenantTx, name: &str) -> sqlx::Result<Option<Vec<u8>>> {
    const SQL: &str = "select api_key from control.providers where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let key: Option<Option<Vec<u8>>> =
        holdfast_pg::query_scalar(SQL).bind(tenant).bind(name).fetch_optional(tx.conn()).await?;
    Ok(key.flatten())
}

/// Returns the sealed headers of a provider.
pub(crate) async fn headers(tx: &mut TenantTx, name: &str) -> sqlx::Result<Option<Vec<u8>>> {
    const SQL: &str = "select headers from control.providers where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let headers: Option<Option<Vec<u8>>> =
        holdfast_pg::query_scalar(SQL).bind(tenant).bind(name).fetch_optional(tx.conn()).await?;
    Ok(headers.flatten())
}

pub(crate) async fn default_model(tx: &mut TenantTx) -> sqlx::Result<Option<String>> {
    const SQL: &str = "select default_model from control.providers \
                       where tenant_id = $1 and default_model is not null limit 1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_optional(tx.conn()).await
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.providers where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

pub(crate) async fn clear_default_model(tx: &mut TenantTx) -> sqlx::Result<()> {
    const SQL: &str = "update control.providers set default_model = null \
                       where tenant_id = $1 and default_model is not null";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).execute(tx.conn()).await?;
    Ok(())
}

/// Sealed secrets of a provider to store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SealedSecrets<'a> {
    /// `None` keeps the stored key.
    pub(crate) api_key: Option<&'a [u8]>,
    /// `None` keeps the stored headers, `Some(None)` deletes them.
    pub(crate) headers: Option<Option<&'a [u8]>>,
}

/// Stores a provider.
pub(crate) async fn put(
    tx: &mut TenantTx,
    provider: &Provider,
    sealed: SealedSecrets<'_>,
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.providers as p \
                       (tenant_id, name, kind, base_url, api_key, default_model, headers, \
                       header_names, extra_body) \
                       values ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
                       on conflict (tenant_id, name) do update set kind = excluded.kind, \
                       base_url = excluded.base_url, \
                       api_key = coalesce(excluded.api_key, p.api_key), \
                       headers = case when $10 then p.headers else excluded.headers end, \
                       header_names = excluded.header_names, extra_body = excluded.extra_body, \
                       default_model = excluded.default_model, updated_at = now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(&provider.name)
        .bind(provider.kind.as_str())
        .bind(&provider.base_url)
        .bind(sealed.api_key)
        .bind(&provider.default_model)
        .bind(sealed.headers.flatten())
        .bind(&provider.header_names)
        .bind(Json(&provider.extra_body))
        .bind(sealed.headers.is_none())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether the provider existed.
pub(crate) async fn delete(tx: &mut TenantTx, name: &str) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.providers where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(name).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
