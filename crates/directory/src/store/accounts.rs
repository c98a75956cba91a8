//! `control.accounts` and `control.account_status`.

pub(crate) mod positions;
pub(crate) mod widget_messages;

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::{AccountId, TenantId};
use serde_json::Value;
use uuid::Uuid;

use crate::{Account, AccountStatus, ListedAccount, NewAccount, ReportedStatus};

#[derive(sqlx::FromRow)]
struct Row {
    account_id: Uuid,
    channel: String,
    name: String,
    enabled: bool,
    settings: Value,
    version: i64,
    created_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> Account {
        Account {
            id: self.account_id.into(),
            channel: self.channel,
            name: self.name,
            enabled: self.enabled,
            settings: self.settings,
            version: self.version,
            created_at: self.created_at.to_jiff(),
        }
    }
}

pub(crate) async fn all(tx: &mut TenantTx, channel: Option<&str>) -> sqlx::Result<Vec<Account>> {
    const SQL: &str = "select account_id, channel, name, enabled, settings, version, created_at \
                       from control.accounts \
                       where tenant_id = $1 and ($2::text is null or channel = $2) \
                       order by channel, name";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(channel).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

pub(crate) async fn get(tx: &mut TenantTx, id: AccountId) -> sqlx::Result<Option<Account>> {
    const SQL: &str = "select account_id, channel, name, enabled, settings, version, created_at \
                       from control.accounts where tenant_id = $1 and account_id = $2";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Row::read))
}

/// Returns the sealed secrets of an account.
pub(crate) async fn secrets(tx: &mut TenantTx, id: AccountId) -> sqlx::Result<Option<Vec<u8>>> {
    const SQL: &str =
        "select secrets from control.accounts where tenant_id = $1 and account_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(id.as_uuid()).fetch_optional(tx.conn()).await
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.accounts where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    id: AccountId,
    new: &NewAccount,
    sealed: &[u8],
) -> sqlx::Result<Account> {
    const SQL: &str = "insert into control.accounts \
                       (tenant_id, account_id, channel, name, enabled, settings, secrets) \
                       values ($1, $2, $3, $4, $5, $6, $7) \
                       returning account_id, channel, name, enabled, settings, version, created_at";
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(&new.channel)
        .bind(&new.name)
        .bind(new.enabled)
        .bind(&new.settings)
        .bind(sealed)
        .fetch_one(tx.conn())
        .await?;
    Ok(row.read())
}

/// Updates an account; `sealed` of `None` keeps the stored secrets.
pub(crate) async fn update(
    tx: &mut TenantTx,
    id: AccountId,
    new: &NewAccount,
    sealed: Option<&[u8]>,
) -> sqlx::Result<Account> {
    const SQL: &str = "update control.accounts set name = $3, enabled = $4, settings = $5, \
                       secrets = coalesce($6, secrets), version = version + 1, updated_at = now() \
                       where tenant_id = $1 and account_id = $2 \
                       returning account_id, channel, name, enabled, settings, version, created_at";
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(&new.name)
        .bind(new.enabled)
        .bind(&new.settings)
        .bind(sealed)
        .fetch_one(tx.conn())
        .await?;
    Ok(row.read())
}

/// Returns whether the account existed.
pub(crate) async fn delete(tx: &mut TenantTx, id: AccountId) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.accounts where tenant_id = $1 and account_id = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(id.as_uuid()).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

/// Returns the accounts of these channels to serve: enabled ones of active tenants.
pub(crate) async fn to_serve(
    tx: &mut SystemTx,
    channels: &[&str],
) -> sqlx::Result<Vec<ListedAccount>> {
    const SQL: &str = "select a.tenant_id, a.account_id, a.version, a.channel \
                       from control.accounts a join control.tenants t using (tenant_id) \
                       where a.channel = any($1) and a.enabled and t.state = 'active' \
                       order by a.account_id";
    let rows: Vec<(Uuid, Uuid, i64, String)> =
        holdfast_pg::query_as(SQL).bind(channels).fetch_all(tx.conn()).await?;
    let read = |(tenant, id, version, channel): (Uuid, Uuid, i64, String)| ListedAccount {
        tenant: tenant.into(),
        id: id.into(),
        version,
        channel,
    };
    Ok(rows.into_iter().map(read).collect())
}

pub(crate) async fn tenant_of(tx: &mut SystemTx, id: AccountId) -> sqlx::Result<Option<TenantId>> {
    const SQL: &str = "select a.tenant_id \
                       from control.accounts a join control.tenants t using (tenant_id) \
                       where a.account_id = $1 and a.enabled and t.state = 'active'";
    let found: Option<Uuid> =
        holdfast_pg::query_scalar(SQL).bind(id.as_uuid()).fetch_optional(tx.conn()).await?;
    Ok(found.map(TenantId::from))
}

/// Maximum length of a stored detail, in characters.
const MAX_DETAIL_CHARS: usize = 500;

type StatusRow = (Uuid, String, String, jiff_sqlx::Timestamp, jiff_sqlx::Timestamp);

/// Returns what bridges last reported.
pub(crate) async fn statuses(tx: &mut TenantTx) -> sqlx::Result<Vec<ReportedStatus>> {
    const SQL: &str = "select account_id, state, detail, since, checked_at \
                       from control.account_status where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<StatusRow> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    let read = |(account, state, detail, since, checked_at): StatusRow| ReportedStatus {
        account: account.into(),
        state,
        detail,
        since: since.to_jiff(),
        checked_at: checked_at.to_jiff(),
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Records a report, unless the account was deleted.
pub(crate) async fn put_status(
    tx: &mut TenantTx,
    id: AccountId,
    status: &AccountStatus,
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.account_status as s (tenant_id, account_id, state, detail) \
                       select tenant_id, account_id, $3, $4 from control.accounts \
                       where tenant_id = $1 and account_id = $2 \
                       on conflict (tenant_id, account_id) do update \
                       set since = case when s.state = excluded.state then s.since else now() end, \
                           state = excluded.state, detail = excluded.detail, checked_at = now()";
    let tenant = tx.tenant().as_uuid();
    let detail: String = status.detail.chars().take(MAX_DETAIL_CHARS).collect();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(status.state.as_str())
        .bind(detail)
        .execute(tx.conn())
        .await?;
    Ok(())
}
